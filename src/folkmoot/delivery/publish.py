"""Publishing: an accepted message goes to everyone who shall have it (MQTT 5 sections 3.3.4, 4.3; A1 to A4).

Owns who that is: here at once, at other nodes, and one member of each shared subscription. What partitions that are led
here store of it is `keeping`.
"""

from __future__ import annotations

from folkmoot.channel.forward_sender import ForwardSender
from folkmoot.delivery.keeping import MATCHED, REFUSED, STORED, Keeping
from folkmoot.delivery.shared import Lost, Shared
from folkmoot.partition.producer import Producers
from folkmoot.partition.queue import Queue
from folkmoot.partition.retained import TO_TRANSIENT, Retained
from folkmoot.routing.route import Route, Routes
from folkmoot.session.session import Session
from folkmoot.session.subscription import Recipient
from folkmoot.store.message import Message
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import CHOOSE, FROM_CLIENT, QUEUE, RETAIN, STREAM, TO_GROUPS, Application, Task
from folkmoot.turn.state import State

__all__ = ["Publishing"]


class Publishing:
    """Gives messages to sessions, groups, other nodes, and to what is kept of them here."""

    def __init__(
        self,
        state: State,
        fabric: Fabric,
        forward_sender: ForwardSender,
        keeping: Keeping,
        queue: Queue,
        routes: Routes,
        shared: Shared,
        retained: Retained,
        producers: Producers,
    ) -> None:
        self.state = state
        self.fabric = fabric
        self.forward_sender = forward_sender
        self.receipts = forward_sender.commits.receipts
        self.keeping = keeping
        self.queue = queue
        self.routes = routes
        self.shared = shared
        self.retained = retained
        self.producers = producers
        # Of the message in hand: which of the groups with members here goes to which other place
        self._chosen: list[tuple[bytes, str, int]] = []
        self._local_groups: dict[bytes, bool] = {}
        self._choices: list[bytes] = []  # groups of which another node chooses the member

    def publish(self, message: Message, publisher: Session | None, producer: bytes, sequence: int) -> int:
        """Deliver and store a message; return flags: MATCHED, STORED (acknowledged later), REFUSED (by a quota).

        producer: the name of an idempotent producer (empty = none), sequence: its number for this message.
        """
        route = self.routes.lookup(message.topic)
        if producer:
            self.keeping.begin()
        result = 0
        kept_here = True
        if message.retain:
            kept_here = self.state.leads[self.state.partition_of(message.topic)]
            if kept_here:
                result |= self.keeping.retain(message, producer, sequence)
                if result & REFUSED:
                    return result
        if route.logs:
            result |= MATCHED | STORED
            if self.state.storage_full and message.qos == 0:
                # Nobody can be told, and the last room is for what is promised.
                self.state.counters.storage_refused += 1
            else:
                self.keeping.stream(route.logs, message, producer, sequence)
        if self._local_groups:
            self._local_groups.clear()
            self._chosen.clear()
        self._choices.clear()
        self.keeping.mark_home(message, publisher, producer)
        if route.transient or route.groups:
            result |= self._live(route, message, publisher, producer, sequence)
        if route.durable:
            result |= self.keeping.store(route.durable, message, publisher, producer, sequence)
        message.origin = b""
        if route.elsewhere or self._choices or not kept_here:
            result |= self._elsewhere(route, message, publisher, producer, sequence, kept_here)
        if not result & MATCHED:
            self.state.counters.publish_unmatched += 1
        return result

    def _elsewhere(
        self,
        route: Route,
        message: Message,
        publisher: Session | None,
        producer: bytes,
        sequence: int,
        kept_here: bool,
    ) -> int:
        """Hand the message to those nodes that need it, and to no others."""
        tasks: dict[int, Task] = {}
        nodes: dict[str, list[bytes]] = {}
        for partition in route.away:
            tasks[partition] = Task(partition, QUEUE)
        for partition in route.away_logs:
            self._task(tasks, partition).bits |= STREAM
        for node_id in route.nodes:
            nodes[node_id] = []
        for name, places in route.shared.items():
            if name not in self._local_groups and not (producer and self._entrust(name, message, producer, sequence)):
                place = self.shared.choose_place(name, None, places)
                assert place is not None, "a shared subscription elsewhere has members"
                self._share_out(name, place.location.node_id, place.location.partition, tasks, nodes)
        for name, node_id, partition in self._chosen:
            self._share_out(name, node_id, partition, tasks, nodes)
        for name in self._choices:
            task = self._task(tasks, self.state.partition_of(name))
            task.bits |= CHOOSE
            task.choices.append(name)
        result = MATCHED if tasks or nodes else 0
        if not kept_here:
            self._task(tasks, self.state.partition_of(message.topic)).bits |= RETAIN
        flags = 0 if publisher is None else FROM_CLIENT
        connection = None if publisher is None else publisher.connection
        self.forward_sender.publish(message, producer, sequence, flags, list(tasks.values()), nodes, connection)
        self.state.counters.cluster_messages_sent += len(tasks) + len(nodes)
        return result | STORED if tasks else result

    def _task(self, tasks: dict[int, Task], partition: int) -> Task:
        task = tasks.get(partition)
        if task is None:
            task = Task(partition, 0)
            tasks[partition] = task
        return task

    def _share_out(
        self,
        name: bytes,
        node_id: str,
        partition: int,
        tasks: dict[int, Task],
        nodes: dict[str, list[bytes]],
    ) -> None:
        if node_id:
            nodes.setdefault(node_id, []).append(name)
        else:
            self._task(tasks, partition).groups.append(name)

    def apply(self, application: Application, task: Task, origin: bytes) -> None:
        """Store a message that another node, or this one before a partition came to it, has for one partition."""
        message = application.message
        producer, sequence = application.producer, application.number
        route = self.routes.lookup(message.topic)
        publisher = self.state.sessions.get(message.publisher) if application.flags & FROM_CLIENT else None
        if producer:
            self.keeping.begin()
        if task.bits & RETAIN:
            self.keeping.retain(message, producer, sequence)
        if task.bits & STREAM:
            self.keeping.stream(
                [log for log in route.logs if log.store_partition == task.partition], message, producer, sequence
            )
        message.origin = origin
        if task.bits & QUEUE:
            self.keeping.store(
                [recipient for recipient in route.durable if recipient.session.partition == task.partition],
                message,
                publisher,
                producer,
                sequence,
            )
        for name in task.choices:
            if self.keeping.takes(task.partition, producer, sequence):
                self._lose(name, message, task.partition)
        for name in task.groups:
            group = self.routes.groups.get(name)
            if group is None or not self.shared.deliver(group, message, task.partition):
                self._lose(name, message, task.partition)  # its members have gone meanwhile

    def _lose(self, name: bytes, message: Message, partition: int) -> None:
        """Have a member of a group found at the end of the turn; the partition keeps the message until it is there."""
        self.shared.homeless.append(Lost(name, message, partition))
        self.receipts.stored(partition)

    def deliver(self, application: Application, groups: list[bytes]) -> None:
        """Give a message of another node to the transient sessions of this one."""
        message = application.message
        route = self.routes.lookup(message.topic)
        producer = application.producer
        to_all = not application.flags & TO_GROUPS
        if to_all and (not producer or self.producers.advance_live(producer, application.number)):
            if message.retain:
                self.retained.came(TO_TRANSIENT, message.topic)
            for recipient in route.transient:
                self.send(recipient, message, None)
        for name in groups:
            group = self.routes.groups.get(name)
            if group is None or not self.shared.deliver(group, message, -1):
                self.shared.homeless.append(Lost(name, message, -1))

    def _live(self, route: Route, message: Message, publisher: Session | None, producer: bytes, sequence: int) -> int:
        result = 0
        if route.transient:
            result = MATCHED
            if not producer or self.producers.advance_live(producer, sequence):
                if message.retain:
                    self.retained.came(TO_TRANSIENT, message.topic)
                for recipient in route.transient:
                    self.send(recipient, message, publisher)
        for group in route.groups:
            if producer and self._entrust(group.name, message, producer, sequence):
                self._local_groups[group.name] = True
                result |= MATCHED | STORED
                continue
            places = route.shared.get(group.name)
            if places is not None:
                self._local_groups[group.name] = True
                place = self.shared.choose_place(group.name, group, places)
                if place is not None:
                    self._chosen.append((group.name, place.location.node_id, place.location.partition))
                    continue
            knows = self.state.partition_of(group.name)
            if publisher is not None and publisher.durable:
                knows = publisher.partition  # as it does where there are other nodes, see `entry`
            if not self.keeping.takes(knows, producer, sequence):
                result |= MATCHED | STORED
                continue
            outcome = self.shared.deliver(group, message)
            if outcome:
                result |= MATCHED
            if outcome == 2:
                result |= STORED
        return result

    def _entrust(self, name: bytes, message: Message, producer: bytes, sequence: int) -> bool:
        """Let the partition of a group's name choose the member for what an idempotent producer sends.

        It knows what was sent, whichever node it comes to: the members, who take turns, do not. False without others.
        """
        if not self.fabric.others:
            return False
        partition = self.state.partition_of(name)
        if not self.state.leads[partition]:
            self._choices.append(name)
        elif self.keeping.takes(partition, producer, sequence):
            self._lose(name, message, partition)
        return True

    def publish_live(self, message: Message) -> None:
        """Deliver a message of the server itself to those who are connected; nothing is stored."""
        for recipient in self.routes.lookup(message.topic).recipients:
            self.queue.send_qos0(recipient.session, message, message.retain and recipient.retain, recipient.identifiers)

    def send(self, recipient: Recipient, message: Message, publisher: Session | None) -> None:
        """Send to a transient session."""
        session = recipient.session
        wish: Recipient | None = recipient
        if session is publisher:
            wish = recipient.own  # [MQTT-3.8.3-3]
            if wish is None:
                return
        assert wish is not None
        qos = min(message.qos, wish.qos)  # [MQTT-3.8.4-8]
        retain = message.retain and wish.retain  # [MQTT-3.3.1-12] [MQTT-3.3.1-13]
        if qos == 0:
            self.queue.send_qos0(session, message, retain, wish.identifiers)
        else:
            self.queue.offer(session, message, qos, retain, wish.identifiers, b"")
