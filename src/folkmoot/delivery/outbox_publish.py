"""Publishing what must go together with a change of one partition: QoS 2 of persistent sessions, wills, lost messages.

What the partition itself has for a message is in that same change; all the rest becomes one entry (`outbox`). Without
others in the view a turn is one batch, and nothing of this is needed.
"""

from __future__ import annotations

from typing import Final

from folkmoot.channel.outbox import Outbox
from folkmoot.delivery.keeping import MATCHED, REFUSED, STORED
from folkmoot.delivery.publish import Publishing
from folkmoot.delivery.shared import ANYWHERE, Lost
from folkmoot.routing.route import Group, Route
from folkmoot.session.session import Session
from folkmoot.store.message import Message
from folkmoot.turn.message import FROM_CLIENT, QUEUE, RETAIN, STREAM, TO_GROUPS, Application, Task
from folkmoot.turn.state import State

__all__ = ["OutboxPublishing"]

_NO_HOME: Final = -1  # in place of the partition whose own part goes into the change itself


class OutboxPublishing:
    """Publishes on behalf of partitions that this node leads."""

    def __init__(self, state: State, outbox: Outbox, publishing: Publishing) -> None:
        self.state = state
        self.outbox = outbox
        self.publishing = publishing
        self.keeping = publishing.keeping
        self.shared = publishing.shared
        self.node_id = publishing.fabric.node_id
        # Of the message in hand
        self._tasks: dict[int, Task] = {}
        self._nodes: dict[str, list[bytes]] = {}

    def publish(self, home: int, message: Message, publisher: Session | None, producer: bytes, number: int) -> int:
        """Deliver and store a message together with this turn's change of `home`; flags as of `Publishing.publish`."""
        publishing = self.publishing
        if not self.outbox.is_needed(home):
            return publishing.publish(message, publisher, producer, number)
        self.keeping.begin()
        self._tasks = {}
        self._nodes = {}
        route = publishing.routes.lookup(message.topic)
        result = 0
        if message.retain:
            result |= self._retain(home, message, producer, number)
            if result & REFUSED:
                return result
        result |= self._logs(home, route, message, producer, number)
        self.keeping.mark_home(message, publisher, producer)
        result |= self._durable(home, route, message, publisher, producer, number)
        if route.groups or route.shared:
            result |= MATCHED | STORED
            if self.keeping.takes(home, producer, number):  # the members take turns: none of them knows what others got
                self._groups(home, route, message)
        message.origin = b""
        self._to_nodes(route)
        if self._nodes:
            result |= MATCHED
        result |= self._promise(home, message, publisher, producer, number)
        if not result & MATCHED:
            self.state.counters.publish_unmatched += 1
        return result

    def entrust(self, home: int, message: Message) -> int:
        """Promise all of a message in this turn's change of `home`, what `home` itself has for it included.

        Nobody gets anything before the change is certain, and it can be taken back whole. REFUSED: the node keeps no
        more retained messages, and nothing has happened.
        """
        publishing = self.publishing
        if not self.outbox.is_needed(home):
            return publishing.publish(message, None, b"", 0)
        self.keeping.begin()
        self._tasks = {}
        self._nodes = {}
        route = publishing.routes.lookup(message.topic)
        result = 0
        if message.retain:
            result |= self._retain(_NO_HOME, message, b"", 0)
            if result & REFUSED:
                return result
        result |= self._logs(_NO_HOME, route, message, b"", 0)
        result |= self._durable(_NO_HOME, route, message, None, b"", 0)
        self._groups(_NO_HOME, route, message)
        self._to_nodes(route)
        tasks = self._tasks
        nodes = self._nodes
        if not tasks and not nodes:
            self.state.counters.publish_unmatched += 1
            return result
        self.outbox.put(home, message, b"", 0, 0, list(tasks.values()), nodes, True)
        self.state.counters.cluster_messages_sent += len(tasks) + len(nodes)
        return result | MATCHED | STORED

    def _to_nodes(self, route: Route) -> None:
        """Let the transient subscribers of all nodes get it."""
        if route.transient:
            self._nodes.setdefault(self.node_id, [])
        for node_id in route.nodes:
            self._nodes.setdefault(node_id, [])

    def _task(self, partition: int) -> Task:
        task = self._tasks.get(partition)
        if task is None:
            task = Task(partition, 0)
            self._tasks[partition] = task
        return task

    def _share_out(self, name: bytes, node_id: str, partition: int) -> None:
        """Let a member of a group get it: at a node, or (without one) in a partition."""
        if node_id:
            self._nodes.setdefault(node_id, []).append(name)
        else:
            self._task(partition).groups.append(name)

    def _retain(self, home: int, message: Message, producer: bytes, number: int) -> int:
        partition = self.state.partition_of(message.topic)
        if partition == home:
            return self.keeping.retain(message, producer, number)
        if self.state.leads[partition] and not self.keeping.retained.has_room(message):
            return REFUSED
        self._task(partition).bits |= RETAIN
        return STORED

    def _logs(self, home: int, route: Route, message: Message, producer: bytes, number: int) -> int:
        if not route.logs and not route.away_logs:
            return 0
        if self.state.storage_full and message.qos == 0:
            self.state.counters.storage_refused += 1
            return MATCHED | STORED
        mine = [log for log in route.logs if log.store_partition == home]
        if mine:
            self.keeping.stream(mine, message, producer, number)
        for log in route.logs:
            if log.store_partition != home:
                self._task(log.store_partition).bits |= STREAM
        for partition in route.away_logs:
            self._task(partition).bits |= STREAM
        return MATCHED | STORED

    def _durable(
        self, home: int, route: Route, message: Message, publisher: Session | None, producer: bytes, number: int
    ) -> int:
        mine = [recipient for recipient in route.durable if recipient.session.partition == home]
        result = self.keeping.store(mine, message, publisher, producer, number) if mine else 0
        for recipient in route.durable:
            if recipient.session.partition != home:
                self._task(recipient.session.partition).bits |= QUEUE
                result |= MATCHED | STORED
        for partition in route.away:
            self._task(partition).bits |= QUEUE
            result |= MATCHED | STORED
        return result

    def _groups(self, home: int, route: Route, message: Message) -> None:
        """Let one member of each shared subscription get it, wherever it is."""
        for group in route.groups:
            places = route.shared.get(group.name)
            place = None if places is None else self.shared.choose_place(group.name, group, places)
            if place is not None:
                self._share_out(group.name, place.location.node_id, place.location.partition)
            else:
                self._give(home, group, message)
        for name, places in route.shared.items():
            if name not in self.publishing.routes.groups:
                place = self.shared.choose_place(name, None, places)
                assert place is not None, "a shared subscription elsewhere has members"
                self._share_out(name, place.location.node_id, place.location.partition)

    def _give(self, home: int, group: Group, message: Message) -> None:
        """Let a member of this node get it."""
        member = self.shared.choose(group, ANYWHERE)
        if member is None:
            return
        session = member.session
        if not session.durable:
            self._nodes.setdefault(self.node_id, []).append(group.name)
        elif session.partition != home:
            self._task(session.partition).groups.append(group.name)
        else:
            self.shared.offer(member, group, message, home)

    def _promise(self, home: int, message: Message, publisher: Session | None, producer: bytes, number: int) -> int:
        """Have all others get it; this node's transient subscribers alone need no promise: they end with it."""
        tasks = self._tasks
        nodes = self._nodes
        if not tasks and not nodes:
            return 0
        flags = 0 if publisher is None else FROM_CLIENT
        connection = None if publisher is None else publisher.connection
        if not tasks and len(nodes) == 1 and self.node_id in nodes and not self.outbox.busy(home):
            self.publishing.deliver(Application(message, producer, number, flags), nodes[self.node_id])
            return 0
        self.outbox.put(home, message, producer, number, flags, list(tasks.values()), nodes, False, connection)
        self.state.counters.cluster_messages_sent += len(tasks) + len(nodes)
        return STORED

    # -- messages of lost members -------------------------------------------------------------------------------------

    def pass_on(self) -> None:
        """Give the messages of shared subscriptions that have lost their member to others, wherever there are any."""
        while self.shared.homeless:
            homeless = self.shared.homeless
            self.shared.homeless = []
            for lost in homeless:
                if not self._pass_on(lost):
                    self.state.counters.publish_unmatched += 1

    def _pass_on(self, lost: Lost) -> bool:
        self._tasks = {}
        self._nodes = {}
        group = self.publishing.routes.groups.get(lost.group)
        member = None if group is None else self.shared.choose(group, ANYWHERE)
        places = self.publishing.routes.interest.places_of(lost.group)
        if member is not None and member.absent and self.shared.is_anybody_there(places):
            member = None
        if group is not None and member is not None:
            partition = member.session.partition if member.session.durable else -1
            together = partition == lost.home or partition < 0 or lost.home < 0  # or in the one batch of a node alone
            if together or not self.outbox.is_needed(lost.home):
                if self.shared.offer(member, group, lost.message, partition):
                    return True
            else:
                self._task(partition).groups.append(group.name)
        if not self._tasks:
            place = self.shared.choose_place(lost.group, None, places) if places else None
            if place is None:
                return False
            self._share_out(lost.group, place.location.node_id, place.location.partition)
        if lost.home >= 0:
            self.outbox.put(lost.home, lost.message, b"", 0, TO_GROUPS, list(self._tasks.values()), self._nodes)
        else:
            forward_sender = self.publishing.forward_sender
            forward_sender.publish(lost.message, b"", 0, TO_GROUPS, list(self._tasks.values()), self._nodes)
        return True
