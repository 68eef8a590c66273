"""Clients of streams in a drawn run: idempotent producers, publishers that ask for receipts, and replays (A9)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.mqtt.kind import PUBACK, PUBREC
from folkmoot.mqtt.packet import Ack, Publish, Suback
from folkmoot.store.record import Entry
from tests.harness.peer import properties
from tests.simulated_cluster.drawn import REFUSED, DrawnClient, Message
from tests.simulated_cluster.drawn_reader import Place, Watch

__all__ = ["AskingClient", "Producer", "ReplayClient"]

ABSURD = 6 * 10**17
"""Above 2^59, and more than 2^56 above all that a producer has sent: such a number is refused everywhere."""

_PLAIN, _NUMBERED, _ABSURD = "plain", "numbered", "absurd"
_NO_LEADER = 0x83
_BUSY = 0x89
_GONE = 0x8F


class AskingClient(DrawnClient):
    """A client that may ask for receipts. receipts: by message, the change of each partition that has stored it."""

    def __init__(self, *arguments: Any, asks: bool = False, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.asks = asks
        self.receipts: dict[int, dict[int, tuple[int, int]]] = {}
        self._begun: dict[int, int] = {}  # by message: the oldest view of a node when it was sent first

    def pairs(self, message: Message) -> list[tuple[str, str]]:
        """Return the user properties of a message."""
        del message
        return [("folkmoot-receipt", "1")] if self.asks else []

    def _views(self) -> list[int]:
        return [site.cluster_node.fabric.epoch for site in self.cluster.live()]

    def _in_sync(self, partition: int) -> int:
        """Return how many copies of a partition are in sync now: there were more, perhaps, when it was written to."""
        views = [site.cluster_node.view for site in self.cluster.live()]
        return min([len(view.replicas[partition]) for view in views if view is not None])

    def _packet(self, message: Message, packet_id: int, dup: bool) -> Publish:
        self._begun.setdefault(message.number, min(self._views()))
        packet = super()._packet(message, packet_id, dup)
        pairs = self.pairs(message)
        packet.properties = properties(user_properties=pairs) if pairs else None
        return packet

    def _acknowledged(self, packet: Ack) -> None:
        message = self.flows.get(packet.packet_id) if packet.kind in (PUBACK, PUBREC) else None
        super()._acknowledged(packet)
        if message is not None:
            self._confirmed(message, packet)

    def _confirmed(self, message: Message, packet: Ack) -> None:
        pairs = [] if packet.properties is None else packet.properties.user_properties
        if not self.asks or packet.code >= REFUSED:
            assert not pairs, f"{self} did not ask: {packet}"
            return
        moved = max(self._views()) > self._begun[message.number]
        if not pairs:
            assert moved or message.repeated, f"{self}: {message} has no receipt: {packet}"
            return
        found: dict[int, tuple[int, int]] = {}
        for at in range(0, len(pairs), 4):
            names = [name for name, _ in pairs[at : at + 4]]
            copies, epoch, partition, sequence = [int(value) for _, value in pairs[at : at + 4]]
            assert names == [f"folkmoot-{name}" for name in ("replicas", "epoch", "partition", "sequence")]
            least = min(self.cluster.min_in_sync, self._in_sync(partition))
            assert least <= copies <= len(self.cluster.sites), f"{self}: {message}: {pairs}"
            found[partition] = (epoch, sequence)
        streams = self.cluster[self.site].node.streams
        needed = {log.store_partition for log in streams.match(message.topic.encode())}
        assert needed <= set(found), f"{self}: the receipt of {message} lacks some of {needed}: {pairs}"
        if message.sends == 1 and not moved:  # else it may be a later change than the one that has stored it
            self.receipts[message.number] = found


class Producer(AskingClient):
    """An idempotent producer: it numbers its messages, and repeats what was not acknowledged, and sometimes more."""

    def __init__(self, *arguments: Any, rng: Random, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.rng = rng
        self.qos = rng.choice((1, 2))
        self.step = rng.choice((1, 1, 7, 1000))
        self.last = rng.choice((0, 0, 20_260_101_000_000, 1_600_000_000_000_000))
        self.numbers: dict[int, int] = {}  # by message
        self.unsure: dict[
            int, Message
        ] = {}  # sent, and neither acknowledged nor refused, in the order of their numbers
        self.absurd: set[int] = set()  # messages with a number that must be refused
        self._kind = _PLAIN  # of what it publishes now

    def publish(self, topic: str, qos: int, retain: bool, expiry_s: int = 0) -> None:
        """Publish a message, without a number unless it is called by `produce` or `mistake`."""
        super().publish(topic, qos, retain and self._kind != _PLAIN)

    def produce(self, topic: str, retain: bool = False) -> None:
        """Publish the next message."""
        self._publish_as(_NUMBERED, topic, retain)
        number = len(self.ledger.messages)
        self.unsure[number] = self.ledger.messages[number]

    def mistake(self, topic: str) -> None:
        """Publish a message with an absurd number."""
        self._publish_as(_ABSURD, topic, False)

    def _publish_as(self, kind: str, topic: str, retain: bool) -> None:
        self._kind = kind
        self.publish(topic, self.qos, retain)
        self._kind = _PLAIN

    def repeat(self, message: Message) -> None:
        """Publish a message again, with its number."""
        packet_id = self._packet_id()
        self.flows[packet_id] = message
        (self.pubacks if message.qos == 1 else self.pubrecs).append(packet_id)
        message.repeated = message.anew = True
        message.sends += 1
        self._send(self._packet(message, packet_id, False))

    def known(self) -> list[Message]:
        """Return its messages that were acknowledged."""
        return [self.ledger.messages[number] for number in self.numbers if self.ledger.messages[number].acked]

    def pairs(self, message: Message) -> list[tuple[str, str]]:
        """Name the producer, and number the message, unless it is a plain one."""
        if message.number not in self.numbers:
            if self._kind == _ABSURD:
                self.absurd.add(message.number)
                self.numbers[message.number] = ABSURD + self.rng.randint(0, 10**9)
            elif self._kind == _NUMBERED:
                self.last += self.rng.randint(1, self.step)
                self.numbers[message.number] = self.last
            else:
                return super().pairs(message)
        number = str(self.numbers[message.number])
        return [*super().pairs(message), ("folkmoot-producer", "p"), ("folkmoot-seq", number)]

    def _accepted(self, present: bool) -> None:
        super()._accepted(present)
        under_way = {message.number for message in self.flows.values()}
        for message in list(self.unsure.values()):
            if message.number not in under_way:
                self.repeat(message)

    def _confirmed(self, message: Message, packet: Ack) -> None:
        if message.number in self.numbers:
            is_absurd = message.number in self.absurd
            assert (packet.code >= REFUSED) == is_absurd, f"{self}: {message}: {packet}"
        self.unsure.pop(message.number, None)
        super()._confirmed(message, packet)


class _Asked:
    """A SUBSCRIBE of a replay: between which offsets of each partition it begins, if it is done."""

    def __init__(self, sent: int, ends: dict[Place, int], oldest: dict[Place, int]) -> None:
        self.sent = sent
        self.ends = dict(ends)
        self.oldest = dict(oldest)
        self.granted = 0  # the moment of its SUBACK

    def __repr__(self) -> str:
        return f"SUBSCRIBE {self.sent} {self.granted}"


class _Arrival:
    def __init__(self, packet: Publish, place: Place, offset: int, connection: int) -> None:
        self.packet = packet
        self.place = place
        self.offset = offset
        self.connection = connection

    def __repr__(self) -> str:
        dup = " dup" if self.packet.dup else ""
        return f"{self.place[1]}:{self.offset} qos={self.packet.qos}{dup} over {self.connection}"


class Replayed:
    """What came of a replay in one session."""

    def __init__(self) -> None:
        self.asked: list[_Asked] = []
        self.arrivals: list[_Arrival] = []


class ReplayClient(AskingClient):
    """A client with a subscription to a replay, and perhaps others."""

    def __init__(
        self,
        *arguments: Any,
        watch: Watch,
        rng: Random,
        stream: str,
        filters: Sequence[tuple[str, int]] = (),
        **named: Any,
    ) -> None:
        self.watch = watch
        self.stream = stream
        self.start, text = _start(rng, watch.cluster.now)
        self.topic = rng.choice(("#", "#", "t/#", "t/0", "t/1"))
        self.wish = f"$stream/{stream}/{text}/{self.topic}"
        self.qos = rng.choice((1, 1, 2, 2, 0))
        self.sessions_of: list[Replayed] = [Replayed()]
        self.places = [place for place in watch.ends if place[0] == stream]
        self._asking: dict[int, _Asked] = {}
        super().__init__(*arguments, filters=[(self.wish, self.qos), *filters], **named)

    @property
    def replayed(self) -> Replayed:
        """What has come in this session."""
        return self.sessions_of[-1]

    def subscribe(self, name: str) -> None:
        """Send SUBSCRIBE, and note what can be read before."""
        if name == self.wish:
            asked = _Asked(self.ledger.tick(), self.watch.ends, self.watch.oldest)
            self._asking[self._packet_id()] = asked
            self.replayed.asked.append(asked)
        super().subscribe(name)

    def _subscribed(self, packet: Suback) -> None:
        asked = self._asking.pop(packet.packet_id, None)
        if asked is not None and packet.codes != [self.qos]:
            kind = self.start[0]
            gone = kind == "offset" and any(self.watch.oldest[place] for place in self.places)
            allowed = [_NO_LEADER] if kind == "latest" else [_GONE] if gone else []
            assert packet.codes[0] in allowed, f"{self}: {packet} for {self.wish}"
            self.subacks.pop(packet.packet_id)
            self.newest.pop(self.wish, None)
            self.sure.pop(self.wish, None)
            self.replayed.asked.remove(asked)
            return
        super()._subscribed(packet)
        if asked is not None:
            asked.granted = self.ledger.tick()

    def look(self) -> bool:
        """Take what has come.

        Who waits for the beginning of new records may have to connect and ask again; where retention overtakes a
        replay, it ends.
        """
        waits = self.start[0] == "latest" and bool(self._asking)
        known, peer = len(self.ends), self.peer
        came = super().look()
        code = 0 if peer is None or self.peer is peer else peer.close_code
        if code == _NO_LEADER and any(self.watch.oldest[place] for place in self.places):
            self.sure[self.wish] = False
            del self.ends[known:]
        elif code == _BUSY and waits:
            del self.ends[known:]
        return came

    def _arrives(self, packet: Publish) -> None:
        names = {} if packet.properties is None else dict(packet.properties.user_properties)
        if "folkmoot-offset" not in names:
            super()._arrives(packet)
            return
        place = (self.stream, int(names["folkmoot-partition"]))
        offset = int(names["folkmoot-offset"])
        if not self._is_new(packet, -1 - 1000 * offset - place[1]):
            return
        known = self.watch.find(place, offset)
        assert known is not None, f"A9: {self} gets {offset} of {place}, which ends at {self.watch.ends[place]}"
        record = known.record
        mine = (packet.topic, packet.payload, int(names["folkmoot-time"]), packet.qos, packet.retain)
        expected = (record.topic, record.payload, known.time_us, min(self.qos, record.qos), False)
        assert mine == expected, f"A9: {self} gets {packet} as {offset} of {place} instead of {known}"
        assert not packet.dup or packet.qos, f"{self}: {packet}"
        self.replayed.arrivals.append(_Arrival(packet, place, offset, self.connections))

    def _end_session(self) -> None:
        super()._end_session()
        self._asking.clear()
        if self.replayed.asked or self.replayed.arrivals:
            self.sessions_of.append(Replayed())

    def _forget(self) -> None:
        super()._forget()
        self._asking.clear()

    # -- the end ------------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Each record came once and in its turn, from where the replay began; and all of them, if it goes on."""
        for session in self.sessions_of:
            goes_on = session is self.replayed and self.sure.get(self.wish) is True and self.state == "open"
            for place in self.places:
                _Course(self, session, place).judge(goes_on)

    def matches(self, entry: Entry) -> bool:
        """Whether a record is of the topics of the replay, and answered by the client."""
        topic = entry.record.topic.decode()
        return self.topic in ("#", topic, topic[:2] + "#") and min(self.qos, entry.record.qos) > 0


class _Course:
    """The way of a replay through one partition: all states in which it may be, as (SUBSCRIBE, next of the offsets)."""

    def __init__(self, client: ReplayClient, session: Replayed, place: Place) -> None:
        self.client = client
        self.session = session
        self.place = place
        self.entries = client.watch.seen[place]
        self.offsets = [offset for offset, entry in sorted(self.entries.items()) if client.matches(entry)]
        self.index = {offset: index for index, offset in enumerate(self.offsets)}
        self.bounds = [self._bounds(asked) for asked in session.asked]

    def _bounds(self, asked: _Asked) -> tuple[int, int]:
        """Return between which two of its offsets a replay begins."""
        kind, number = self.client.start
        end = asked.ends[self.place]
        if kind == "earliest":
            first = last = 0
        elif kind == "latest":
            first, last = end, self._published_after(asked.granted)
        elif kind == "offset":
            first, last = min(number, end), number
        else:
            times = [offset for offset, entry in sorted(self.entries.items()) if entry.time_us >= number]
            last = times[0] if times else self.client.watch.ends[self.place]
            first = min(last, end)
        first = max(first, asked.oldest[self.place])
        return self._at(first), self._at(max(last, self.client.watch.oldest[self.place]))

    def _at(self, offset: int) -> int:
        return len([one for one in self.offsets if one < offset])

    def _published_after(self, moment: int) -> int:
        messages = self.client.ledger.messages
        if moment:
            for offset, entry in sorted(self.entries.items()):
                message = messages[int(entry.record.payload)]
                if message.sent > moment:
                    return offset
        return self.client.watch.ends[self.place]

    def _begins(self, after: int, index: int) -> list[tuple[int, int]]:
        """Return the states when a later SUBSCRIBE than this one begins at one of its offsets."""
        found = []
        for number in range(after + 1, len(self.bounds)):
            first, last = self.bounds[number]
            if first <= index <= last:
                found.append((number, index))
        return found

    def judge(self, goes_on: bool) -> None:
        """Follow the arrivals."""
        states = {(-1, -1)}
        came: dict[int, int] = {}  # by offset: the connection
        arrivals = [one for one in self.session.arrivals if one.place == self.place and one.packet.qos]
        for arrival in arrivals:
            index = self.index[arrival.offset]
            following: set[tuple[int, int]] = set()
            for number, at in states:
                if at == index:
                    following.add((number, index + 1))
                if arrival.packet.dup and arrival.packet.qos == 1 and arrival.offset in came:
                    following.add((number, at))
                following.update([(begun, start + 1) for begun, start in self._begins(number, index)])
            assert following, (
                f"A9: {self.client} gets {arrival} of {self.place}, in the states {states} of {self.offsets}, "
                f"{self.session.asked} {self.bounds}: {arrivals}"
            )
            states = following
            came[arrival.offset] = arrival.connection
        granted = [number for number, asked in enumerate(self.session.asked) if asked.granted]
        if not goes_on or not granted:
            return
        end = len(self.offsets)
        complete = {number for number, at in states if at == end}
        complete |= {begun for number, _ in states for begun, _ in self._begins(number, end)}
        assert any(number >= granted[-1] for number in complete), (
            f"A9: {self.client} has not got all of {self.place}: {states} of {self.offsets}, "
            f"{self.session.asked} {self.bounds}: {arrivals}"
        )


def _start(rng: Random, now: int) -> tuple[tuple[str, int], str]:
    """Draw where a replay begins; return what, and how it is written."""
    kind = rng.choice(("earliest", "earliest", "earliest", "latest", "latest", "offset", "time"))
    if kind == "offset":
        number = rng.choice((0, 2, 5, 20))
        return (kind, number), str(number)
    if kind == "time":
        number = now + rng.choice((-5 * SECOND, 100 * MILLISECOND, 500 * MILLISECOND, SECOND, 2 * SECOND))
        moment = datetime.fromtimestamp(number // SECOND, UTC).replace(microsecond=number % SECOND)
        return (kind, number), moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return (kind, 0), kind
