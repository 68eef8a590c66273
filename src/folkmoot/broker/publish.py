"""Publishing: an accepted message goes to everyone who shall have it (MQTT 5 sections 3.3.4, 4.3; A1 to A4)."""

from __future__ import annotations

from typing import Final

from folkmoot.broker.body import Bodies
from folkmoot.broker.fabric import Fabric
from folkmoot.broker.message import CHOOSE, FROM_CLIENT, QUEUE, RETAIN, STREAM, TO_GROUPS, Application, Share
from folkmoot.broker.producer import Producers
from folkmoot.broker.queue import Queue
from folkmoot.broker.request import Requests
from folkmoot.broker.retained import TO_TRANSIENT, Retained
from folkmoot.broker.route import Route, Routes
from folkmoot.broker.shared import Lost, Shared
from folkmoot.broker.state import State
from folkmoot.session.session import Session
from folkmoot.session.subscription import Target
from folkmoot.store.message import Message
from folkmoot.store.origin import AT_HOME
from folkmoot.streams.log import StreamLog
from folkmoot.streams.record import encode_record

__all__ = ["MATCHED", "REFUSED", "STORED", "Publishing"]

MATCHED: Final = 1
STORED: Final = 2
REFUSED: Final = 4

# A message smaller than this is cheaper to copy into each queue row than to look up.
_BODY_BYTES_MIN: Final = 128


class Publishing:
    """Gives messages to sessions, groups, the retained store and streams."""

    def __init__(
        self,
        state: State,
        fabric: Fabric,
        requests: Requests,
        bodies: Bodies,
        queue: Queue,
        routes: Routes,
        shared: Shared,
        retained: Retained,
        producers: Producers,
    ) -> None:
        self.state = state
        self.fabric = fabric
        self.requests = requests
        self.receipts = requests.commits.receipts
        self.bodies = bodies
        self.queue = queue
        self.routes = routes
        self.shared = shared
        self.retained = retained
        self.producers = producers
        # Of the message in hand: which partitions take it from its producer (decided once per partition)
        self._taken: dict[int, bool] = {}
        # and which of the groups with members here goes to which other place
        self._chosen: list[tuple[bytes, str, int]] = []
        self._local_groups: dict[bytes, bool] = {}
        self._choices: list[bytes] = []  # groups of which another node chooses the member

    def publish(self, message: Message, publisher: Session | None, producer: bytes, sequence: int) -> int:
        """Deliver and store a message; return flags: MATCHED, STORED (acknowledged later), REFUSED (by a quota).

        producer: the name of an idempotent producer (empty = none), sequence: its number for this message.
        """
        route = self.routes.lookup(message.topic)
        if producer:
            self.begin()
        result = 0
        kept_here = True
        if message.retain:
            kept_here = self.state.leads[self.state.partition_of(message.topic)]
            if kept_here:
                result |= self.retain(message, producer, sequence)
                if result & REFUSED:
                    return result
        if route.logs:
            result |= MATCHED | STORED
            if self.state.storage_full and message.qos == 0:
                # Nobody can be told, and the last room is for what is promised.
                self.state.counters.storage_refused += 1
            else:
                self.stream(route.logs, message, producer, sequence)
        if self._local_groups:
            self._local_groups.clear()
            self._chosen.clear()
        self._choices.clear()
        self.mark_home(message, publisher, producer)
        if route.transient or route.groups:
            result |= self._live(route, message, publisher, producer, sequence)
        if route.durable:
            result |= self.store(route.durable, message, publisher, producer, sequence)
        message.origin = b""
        if route.elsewhere or self._choices or not kept_here:
            result |= self._elsewhere(route, message, publisher, producer, sequence, kept_here)
        if not result & MATCHED:
            self.state.counters.publish_unmatched += 1
        return result

    def mark_home(self, message: Message, publisher: Session | None, producer: bytes) -> None:
        """Say of what is stored next that its publisher waits here to be told of it; it sends the message again if not.

        What an idempotent producer sends again counts as known.
        """
        if publisher is not None and not producer and self.fabric.others:
            message.origin = AT_HOME

    def begin(self) -> None:
        """A message is in hand: no partition has been asked whether it takes it from its producer."""
        self._taken.clear()

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
        shares: dict[int, Share] = {}
        nodes: dict[str, list[bytes]] = {}
        for partition in route.away:
            shares[partition] = Share(partition, QUEUE)
        for partition in route.away_logs:
            self._share(shares, partition).bits |= STREAM
        for node_id in route.nodes:
            nodes[node_id] = []
        for name, places in route.shared.items():
            if name not in self._local_groups and not (producer and self._entrust(name, message, producer, sequence)):
                place = self.shared.choose_place(name, 0, places)
                assert place is not None, "a shared subscription elsewhere has members"
                self._share_out(name, place.place.node_id, place.place.partition, shares, nodes)
        for name, node_id, partition in self._chosen:
            self._share_out(name, node_id, partition, shares, nodes)
        for name in self._choices:
            share = self._share(shares, self.state.partition_of(name))
            share.bits |= CHOOSE
            share.choices.append(name)
        result = MATCHED if shares or nodes else 0
        if not kept_here:
            self._share(shares, self.state.partition_of(message.topic)).bits |= RETAIN
        flags = 0 if publisher is None else FROM_CLIENT
        connection = None if publisher is None else publisher.connection
        self.requests.publish(message, producer, sequence, flags, list(shares.values()), nodes, connection)
        self.state.counters.cluster_messages_sent += len(shares) + len(nodes)
        return result | STORED if shares else result

    def _share(self, shares: dict[int, Share], partition: int) -> Share:
        share = shares.get(partition)
        if share is None:
            share = Share(partition, 0)
            shares[partition] = share
        return share

    def _share_out(
        self,
        name: bytes,
        node_id: str,
        partition: int,
        shares: dict[int, Share],
        nodes: dict[str, list[bytes]],
    ) -> None:
        if node_id:
            nodes.setdefault(node_id, []).append(name)
        else:
            self._share(shares, partition).groups.append(name)

    def apply(self, application: Application, share: Share, origin: bytes) -> None:
        """Store a message that another node, or this one before a partition came to it, has for one partition."""
        message = application.message
        producer, sequence = application.producer, application.number
        route = self.routes.lookup(message.topic)
        publisher = self.state.sessions.get(message.publisher) if application.flags & FROM_CLIENT else None
        if producer:
            self.begin()
        if share.bits & RETAIN:
            self.retain(message, producer, sequence)
        if share.bits & STREAM:
            self.stream(
                [log for log in route.logs if log.store_partition == share.partition], message, producer, sequence
            )
        message.origin = origin
        if share.bits & QUEUE:
            self.store(
                [target for target in route.durable if target.session.partition == share.partition],
                message,
                publisher,
                producer,
                sequence,
            )
        for name in share.choices:
            if self.takes(share.partition, producer, sequence):
                self._lose(name, message, share.partition)
        for name in share.groups:
            group = self.routes.groups.get(name)
            if group is None or not self.shared.deliver(group, message, share.partition):
                self._lose(name, message, share.partition)  # its members have gone meanwhile

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
            for target in route.transient:
                self.send(target, message, None)
        for name in groups:
            group = self.routes.groups.get(name)
            if group is None or not self.shared.deliver(group, message, -1):
                self.shared.homeless.append(Lost(name, message, -1))

    def takes(self, partition: int, producer: bytes, sequence: int) -> bool:
        """Whether a partition takes the message: always, unless its producer has published it there before."""
        if not producer or not self.state.leads[partition]:
            return True
        taken = self._taken.get(partition)
        if taken is None:
            taken = self.producers.advance(partition, producer, sequence)
            self._taken[partition] = taken
        return taken

    def retain(self, message: Message, producer: bytes, sequence: int) -> int:
        """Keep a message as the retained one of its topic, whose partition this node leads: STORED or REFUSED."""
        if producer and not self.retained.has_room(message):
            return REFUSED  # before its sequence is taken: the producer will repeat it
        if not self.takes(partition := self.state.partition_of(message.topic), producer, sequence):
            self.receipts.known(partition)
        elif not self.retained.set(message):
            return REFUSED
        self.requests.barrier.kept_here(self.state.writer.token)
        return STORED

    def stream(self, logs: list[StreamLog], message: Message, producer: bytes, sequence: int) -> None:
        """Append a message to stream partitions that this node leads."""
        record = encode_record(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            message.publisher.encode(),
            message.properties,
        )
        for log in logs:
            if self.takes(log.store_partition, producer, sequence):
                log.append(record, self.state.now)
                self.state.counters.stream_records += 1
                self.receipts.stored(log.store_partition)
            else:
                self.receipts.known(log.store_partition)

    def _live(self, route: Route, message: Message, publisher: Session | None, producer: bytes, sequence: int) -> int:
        result = 0
        if route.transient:
            result = MATCHED
            if not producer or self.producers.advance_live(producer, sequence):
                if message.retain:
                    self.retained.came(TO_TRANSIENT, message.topic)
                for target in route.transient:
                    self.send(target, message, publisher)
        self._chosen.clear()
        self._local_groups.clear()
        for group in route.groups:
            if producer and self._entrust(group.name, message, producer, sequence):
                self._local_groups[group.name] = True
                result |= MATCHED | STORED
                continue
            places = route.shared.get(group.name)
            if places is not None:
                self._local_groups[group.name] = True
                place = self.shared.choose_place(group.name, len(group.members), places)
                if place is not None:
                    self._chosen.append((group.name, place.place.node_id, place.place.partition))
                    continue
            knows = self.state.partition_of(group.name)
            if publisher is not None and publisher.durable:
                knows = publisher.partition  # as it does where there are other nodes, see `errand`
            if not self.takes(knows, producer, sequence):
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
        elif self.takes(partition, producer, sequence):
            self._lose(name, message, partition)
        return True

    def publish_live(self, message: Message) -> None:
        """Deliver a message of the server itself to those who are connected; nothing is stored."""
        for target in self.routes.lookup(message.topic).targets:
            self.queue.send_qos0(target.session, message, message.retain and target.retain, target.identifiers)

    def send(self, target: Target, message: Message, publisher: Session | None) -> None:
        """Send to a transient session."""
        session = target.session
        wish: Target | None = target
        if session is publisher:
            wish = target.own  # [MQTT-3.8.3-3]
            if wish is None:
                return
        assert wish is not None
        qos = min(message.qos, wish.qos)  # [MQTT-3.8.4-8]
        retain = message.retain and wish.retain  # [MQTT-3.3.1-12] [MQTT-3.3.1-13]
        if qos == 0:
            self.queue.send_qos0(session, message, retain, wish.identifiers)
        else:
            self.queue.offer(session, message, qos, retain, wish.identifiers, b"")

    def store(
        self, targets: list[Target], message: Message, publisher: Session | None, producer: bytes, sequence: int
    ) -> int:
        """Queue a message for persistent sessions, those of a partition side by side: MATCHED and perhaps STORED."""
        result = MATCHED
        count = len(targets)
        start = 0
        while start < count:
            partition = targets[start].session.partition
            end = start + 1
            while end < count and targets[end].session.partition == partition:
                end += 1
            if self.takes(partition, producer, sequence):
                if message.retain:
                    self.retained.came(partition, message.topic)
                if self._store_for(targets, start, end, message, publisher):
                    result |= STORED
            else:
                result |= STORED  # the first copy may still be on its way to the disk
                self.receipts.known(partition)
            start = end
        return result

    def _store_for(
        self, targets: list[Target], start: int, end: int, message: Message, publisher: Session | None
    ) -> bool:
        """Queue a message for the sessions of one partition; False when none of them stores it."""
        body = 0
        if end - start > 1 and message.size >= _BODY_BYTES_MIN and message.qos and self.bodies.has_room():
            body = self.bodies.store(targets[start].session.partition, message)
        stored = False
        for i in range(start, end):
            wish: Target | None = targets[i]
            session = targets[i].session
            if session is publisher:
                wish = targets[i].own
                if wish is None:
                    continue
            assert wish is not None
            if self._store_one(session, wish, message, body):
                stored = True
        partition = targets[start].session.partition
        if body and not self.bodies.names(partition, body):
            self.bodies.release(partition, body)
        return stored

    def _store_one(self, session: Session, wish: Target, message: Message, body: int) -> bool:
        qos = min(message.qos, wish.qos)
        retain = message.retain and wish.retain
        if qos == 0:
            if message.asked_again:
                self.state.counters.dropped_qos0_moved += 1  # at most once [MQTT-4.3.1-1]: it may be there already
                return False
            if self.queue.sends_qos0(session):
                self.queue.send_qos0(session, message, retain, wish.identifiers)
                return False
            if not self.state.limits.queue_qos0_offline:
                return False
            return self.queue.append(session, message, 0, retain, wish.identifiers, b"", 0)
        if not self.queue.append(session, message, qos, retain, wish.identifiers, b"", body):
            return False
        if body:
            self.bodies.hold(session.partition, body)
        return True
