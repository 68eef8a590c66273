"""Publishing: an accepted message goes to all its subscribers (MQTT 5 sections 3.3.4, 4.3; A1 to A4).

Owns the choice: live sessions here, other nodes, and one member of each shared subscription. `keeping` stores what
belongs to partitions that this node leads.
"""

from __future__ import annotations

from folkmoot.channel.parts import ChannelParts
from folkmoot.delivery.keeping import MATCHED, REFUSED, STORED, Keeping
from folkmoot.delivery.plan import Plan
from folkmoot.delivery.shared import TRANSIENT, Lost, Shared
from folkmoot.partition.parts import PartitionParts
from folkmoot.partition.retained import TO_TRANSIENT
from folkmoot.routing.interest import SharedLocation
from folkmoot.routing.route import Route, Routes
from folkmoot.session.session import Session
from folkmoot.session.subscription import Recipient
from folkmoot.store.message import Message
from folkmoot.store.origin import is_transaction, is_will, origin_of
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import DEFER, FROM_CLIENT, QUEUE, RETAIN, STREAM, TO_GROUPS, Application, Task
from folkmoot.turn.state import State
from folkmoot.turn.work import DELIVERY_STEPS

__all__ = ["Publishing"]


class Publishing:
    """Gives messages to sessions, groups, other nodes, and to `keeping`."""

    def __init__(
        self,
        state: State,
        fabric: Fabric,
        channel: ChannelParts,
        partition: PartitionParts,
        keeping: Keeping,
        routes: Routes,
        shared: Shared,
    ) -> None:
        self.state = state
        self.fabric = fabric
        self.forward_sender = channel.forward_sender
        self.deferral = channel.deferral
        self.receipts = self.forward_sender.commits.receipts
        self.keeping = keeping
        self.queue = partition.queue
        self.routes = routes
        self.shared = shared
        self.retained = partition.retained
        self.producers = partition.producers
        # Of the current message: the groups with members here whose turn is at another location
        self._chosen: list[SharedLocation] = []
        self._choices: list[bytes] = []  # groups of which another node chooses the member

    def publish(self, message: Message, publisher: Session | None, producer: bytes, sequence: int) -> int:
        """Deliver and store a message; return flags: MATCHED, STORED (acknowledged later), REFUSED (by a quota).

        producer: the name of an idempotent producer (empty = none), sequence: its number for this message.
        """
        route = self.routes.lookup(message.topic)
        self.state.work.steps += DELIVERY_STEPS * (len(route.recipients) + 2 * len(route.groups))
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
                # A will has nobody to report to, and the last room is for acknowledged messages.
                self.state.counters.storage_refused += 1
            else:
                self.keeping.stream(route.logs, message, producer, sequence)
        self._chosen.clear()
        self._choices.clear()
        if route.transient or route.groups:
            result |= self._live(route, message, publisher, producer, sequence)
        if route.persistent:
            result |= self.keeping.store(route.persistent, message, publisher, producer, sequence)
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
        """Forward the message to the nodes that need it, and to no others."""
        plan = Plan()
        for partition in route.away:
            plan.add_task(partition, QUEUE)
        for partition in route.away_logs:
            plan.add_task(partition, STREAM)
        for node_id in route.nodes:
            plan.add_node(node_id)
        for name in self.shared.only_elsewhere(route):
            if producer and self._entrust(name, message, producer, sequence):
                continue
            location = self.shared.choose_location(name, None, route.shared[name])
            if location is not None:
                plan.add_member(location)
        for chosen in self._chosen:
            plan.add_member(chosen)
        for name in self._choices:
            plan.add_choice(self.state.partition_of(name), name)
        result = 0 if plan.is_empty() else MATCHED
        if not kept_here:
            plan.add_task(self.state.partition_of(message.topic), RETAIN)
        flags = 0 if publisher is None else FROM_CLIENT
        connection = None if publisher is None else publisher.connection
        stored = False
        if self.fabric.leaderless and self.fabric.defers and publisher is not None and not producer:
            if message.qos or message.retain:
                stored = self.deferral.take(plan.tasks, message, flags, publisher.client_id, connection)
        self.state.counters.cluster_messages_sent += len(plan)
        if not plan.is_empty():
            tasks = list(plan.tasks.values())
            sent = self.forward_sender.publish(message, producer, sequence, flags, tasks, plan.nodes, connection)
            stored = sent or stored
        return result | STORED if stored else result

    def apply(self, application: Application, task: Task, origin: bytes, late: bool) -> None:
        """Store a forwarded message in one partition; late: another side of a split has acknowledged it."""
        message = application.message
        producer, sequence = application.producer, application.number
        if is_transaction(producer):
            producer, sequence = b"", 0  # a mark has told whether the partition has it
        route = self.routes.lookup(message.topic)
        publisher = self.state.sessions.get(message.publisher) if application.flags & FROM_CLIENT else None
        work = self.state.work
        work.steps += DELIVERY_STEPS * (1 + 2 * len(task.groups))
        if producer:
            self.keeping.begin(late)
        if task.bits & RETAIN:
            self.keeping.retain(message, producer, sequence, late)
        if task.bits & STREAM:
            self.keeping.stream(
                [log for log in route.logs if log.store_partition == task.partition], message, producer, sequence
            )
        if task.bits & DEFER:
            self.deferral.keep(task, message, application.flags & FROM_CLIENT)
        message.origin = origin_of(producer, sequence) if is_will(producer) else origin
        if task.bits & QUEUE:
            recipients = route.persistent_in(task.partition)
            work.steps += DELIVERY_STEPS * len(recipients)
            self.keeping.store(recipients, message, publisher, producer, sequence)
        for name in task.choices:
            if self.keeping.takes(task.partition, producer, sequence):
                self._lose(name, message, task.partition)
        for name in task.groups:
            if not self.shared.arrive(name, message, task.partition, application.refused):
                self.receipts.stored(task.partition)  # until another member has it

    def _lose(self, name: bytes, message: Message, partition: int) -> None:
        """Find another member of a group at the end of the turn; the partition keeps the message until then."""
        self.shared.lose(Lost(name, message, partition, []))
        self.receipts.stored(partition)

    def deliver(self, application: Application, groups: list[bytes]) -> None:
        """Deliver a forwarded message to the transient sessions of this node."""
        message = application.message
        route = self.routes.lookup(message.topic)
        producer = application.producer
        self.state.work.steps += DELIVERY_STEPS * (len(route.transient) + 2 * len(groups))
        to_all = not application.flags & TO_GROUPS
        if to_all and (not producer or self.producers.advance_live(producer, application.number)):
            if message.retain:
                self.retained.came(TO_TRANSIENT, message.topic)
            for recipient in route.transient:
                self.send(recipient, message, None)
        for name in groups:
            self.shared.arrive(name, message, TRANSIENT, application.refused)

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
                result |= MATCHED | STORED
                continue
            locations = route.shared.get(group.name)
            if locations is not None:
                chosen = self.shared.choose_location(group.name, group, locations)
                if chosen is not None:
                    self._chosen.append(chosen)
                    continue
            knows = self.state.partition_of(group.name)
            if publisher is not None and publisher.persistent:
                knows = publisher.partition  # as it does where there are other nodes, see `entry`
            if not self.keeping.takes(knows, producer, sequence):
                result |= MATCHED | STORED
                continue
            outcome = self.shared.deliver(group, message)
            result |= MATCHED
            if outcome == 2:
                result |= STORED
            elif not outcome and locations is not None and self.routes.interest.within_reach(locations):
                self.shared.lose(Lost(group.name, message, -1, []))  # members elsewhere may take it
                result |= STORED
        return result

    def _entrust(self, name: bytes, message: Message, producer: bytes, sequence: int) -> bool:
        """Let the partition of a group's name choose the member for a message of an idempotent producer.

        The partition knows what the producer has sent to any node. The members, which take turns, do not. False without
        other nodes.
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
        """Deliver a message of the server itself to connected subscribers; nothing is stored."""
        recipients = self.routes.lookup(message.topic).recipients
        self.state.work.steps += DELIVERY_STEPS * len(recipients)
        for recipient in recipients:
            retain = recipient.retain_of(message.retain)
            self.queue.send_qos0(recipient.session, message, retain, recipient.identifiers)

    def send(self, recipient: Recipient, message: Message, publisher: Session | None) -> None:
        """Send to a transient session."""
        session = recipient.session
        terms = recipient.terms_for(session is publisher)
        if terms is None:
            return
        qos = terms.qos_of(message.qos)
        retain = terms.retain_of(message.retain)
        if qos == 0:
            self.queue.send_qos0(session, message, retain, terms.identifiers)
        else:
            self.queue.offer(session, message, qos, retain, terms.identifiers, b"")
