"""The two roles of load traffic, publisher and subscriber, and the window between them.

Owns the flows of QoS 0, 1 and 2 on both sides, in whole chunks: what a chunk says is found by comparing columns of
bytes, what it answers is sliced or assembled from columns. A packet that fits no column takes the slow way, correctly.
"""

from __future__ import annotations

from collections import Counter, deque
from time import perf_counter_ns
from typing import Final

from folkmoot.client.histogram import LatencyHistogram
from folkmoot.client.loadloop import Deferred, Faults, LoadLoop
from folkmoot.client.loadpeer import Peer
from folkmoot.client.packetrun import MALFORMED, column, find_packet_end, measure_run, reply_to_ids
from folkmoot.client.template import (
    ACK_BYTES,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    MessageLayout,
    MessageRing,
    ack_ring,
    sequence_ring,
    subscribe_packet,
)
from folkmoot.client.workload import Target

__all__ = ["Publisher", "Route", "Subscriber"]

SUBACK: Final = 0x90
PUBLISH: Final = 0x30
REFUSED: Final = 0x80
ENDLESS: Final = 1 << 62


class Publisher(Peer):
    """Publishes messages of a ring and follows their acknowledgements.

    `sent` messages went out, `acked` of them are complete (with QoS 0 it stays 0), `released` have their PUBREC.
    `limit` is where `sent` stops. Samples from before `since_ns` are not counted.
    """

    def __init__(
        self, loop: LoadLoop, target: Target, connect: bytes, faults: Faults, ring: MessageRing, sample_every: int
    ) -> None:
        super().__init__(loop, target, ring.layout.version, connect, faults)
        self.ring = ring
        self.qos = ring.layout.qos
        self.route: Route | None = None
        self.sent = 0
        self.acked = 0
        self.released = 0
        self.limit = ENDLESS
        self.sample_every = sample_every
        self.next_sample = 0
        self.since_ns = 0
        self.ack_latency = LatencyHistogram()
        self._timed: deque[tuple[int, int]] = deque()
        self._acks = ack_ring(PUBACK if self.qos == 1 else PUBCOMP, ring.size) if self.qos else b""
        self._receipts = ack_ring(PUBREC, ring.size) if self.qos == 2 else b""
        self._releases = ack_ring(PUBREL, ring.size) if self.qos == 2 else b""

    def on_accepted(self) -> None:
        """Ready as soon as the broker accepts."""
        self.receive = self._read_acks if self.qos else self._read_nothing

    def publish(self, count: int, stamp_ns: int = 0) -> None:
        """Send the next `count` messages in one write; those whose turn it is carry `stamp_ns`, or the time now."""
        first = self.sent
        self.sent = first + count
        if self.sent <= self.next_sample:
            self.send(self.ring.slice(first, count))
            return
        every = self.sample_every
        at = self.next_sample
        self.next_sample = at + (self.sent - at + every - 1) // every * every
        stamp_ns = stamp_ns or perf_counter_ns()
        if self.qos:
            self._timed.extend((number, stamp_ns) for number in range(at, self.sent, every))
        self.send(self.ring.stamped(first, count, every, at, stamp_ns))

    def _read_nothing(self, data: bytes) -> None:
        self.unexpected(data)

    def _read_acks(self, data: bytes) -> None:
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, size = 0, len(data)
        while at < size and not self.closed:
            if self.qos == 1:
                count = self._match(data, at, self._acks, self.acked)
                self.acked += count
            else:
                count = self._match(data, at, self._acks, self.acked) if self.acked < self.released else 0
                self.acked += count
                if not count:
                    count = self._match(data, at, self._receipts, self.released)
                    self._release(count)
            if not count:
                end = find_packet_end(data, at)
                if end == 0:
                    self._rest = data[at:]
                    break
                self._read_odd(data[at:end] if end != MALFORMED else data[at:])
                at = end if end != MALFORMED else size
            at += count * ACK_BYTES
        if self._timed and self._timed[0][0] < self.acked:
            self._time_acks()
        if self.route is not None:
            self.route.defer()

    def _time_acks(self) -> None:
        now = perf_counter_ns()
        while self._timed and self._timed[0][0] < self.acked:
            stamp_ns = self._timed.popleft()[1]
            if stamp_ns >= self.since_ns:
                self.ack_latency.record(now - stamp_ns)

    def _match(self, data: bytes, at: int, ring: bytes, done: int) -> int:
        """Return how many acknowledgements from `at` on are the expected ones, in order."""
        start = (done & (self.ring.size - 1)) * ACK_BYTES
        count = min((len(data) - at) // ACK_BYTES, self.sent - done)
        if count <= 0:
            return 0
        if data[at : at + count * ACK_BYTES] == ring[start : start + count * ACK_BYTES]:
            return count
        # Two kinds in one chunk, or something odd: the run of the expected kind, then of the expected ids.
        count = min(measure_run(data, at, ACK_BYTES, ring[:2]), count)
        while count and data[at : at + count * ACK_BYTES] != ring[start : start + count * ACK_BYTES]:
            count //= 2
        return count

    def _release(self, count: int) -> None:
        if count:
            start = (self.released & (self.ring.size - 1)) * ACK_BYTES
            self.released += count
            self.send(self._releases[start : start + count * ACK_BYTES])

    def _read_odd(self, packet: bytes) -> None:
        """An acknowledgement out of order or with a reason code: correct or not, it is counted by its id."""
        kind = packet[:1]
        code = packet[4] if len(packet) > 4 else 0
        if len(packet) < ACK_BYTES or kind not in {PUBACK[:1], PUBREC[:1], PUBCOMP[:1]}:
            self.unexpected(packet)
            return
        if code >= REFUSED:
            self.faults.add("refused message", f"acknowledged with code 0x{code:02x}")
        elif code:
            self.faults.add("no subscriber", f"acknowledged with code 0x{code:02x}")
        else:
            self.faults.add("acknowledged out of order")
        if kind == PUBREC[:1]:
            self.released += 1
            if code < REFUSED:
                self.send(PUBREL + packet[2:4])
                return
        self.acked += 1


class Subscriber(Peer):
    """Receives the messages of one layout and acknowledges them; `received` counts them.

    Samples stamped from `since_ns` to `until_ns` go to `latency`.
    `slot` is its place in its route. With several routes
    (fan-in) it tells the routes apart by the source bytes.
    """

    def __init__(
        self, loop: LoadLoop, target: Target, connect: bytes, faults: Faults, layout: MessageLayout, topic_filter: bytes
    ) -> None:
        super().__init__(loop, target, layout.version, connect, faults)
        self.layout = layout
        self.topic_filter = topic_filter
        self.routes: list[Route] = []
        self.slot = 0
        self.subscribed = False
        self.received = 0
        self.latency = LatencyHistogram()
        self.since_ns = 0
        self.until_ns = ENDLESS
        self._next = 0
        self._size = 1
        self._cycle = 1
        self._expected = b""

    @property
    def settled(self) -> bool:
        """Whether the subscription stands."""
        return self.subscribed

    def expect(self, ring_size: int, cycle: int) -> None:
        """Check the order of the messages by the sequence bytes of a ring (one publisher only)."""
        self._size, self._cycle, self._expected = ring_size, cycle, sequence_ring(ring_size)

    def on_accepted(self) -> None:
        """Subscribe."""
        self.receive = self._read_suback
        self.send(subscribe_packet(self.version, 1, self.topic_filter, self.layout.qos))

    def _read_suback(self, data: bytes) -> None:
        data = self._rest + data
        end = find_packet_end(data, 0)
        if end == 0:
            self._rest = data
            return
        self._rest = b""
        # Messages may come before the SUBACK; here there are none yet, since publishers wait for all subscribers.
        if end == MALFORMED or data[0] != SUBACK:
            self.unexpected(data)
        elif data[end - 1] != self.layout.qos:
            self.fail("refused subscription", f"SUBACK with code 0x{data[end - 1]:02x}")
        else:
            self.subscribed = True
            self.receive = self._read_messages
            if end < len(data):
                self.receive(data[end:])

    def _read_messages(self, data: bytes) -> None:
        if self._rest:
            data, self._rest = self._rest + data, b""
        layout = self.layout
        at, size = 0, len(data)
        while at < size and not self.closed:
            count = measure_run(data, at, layout.stride, layout.head)
            if count:
                end = at + count * layout.stride
                self._take(data, at, count)
            elif layout.qos == 2 and (count := measure_run(data, at, ACK_BYTES, PUBREL)):
                end = at + count * ACK_BYTES
                self.send(reply_to_ids(PUBCOMP, data, at, 2, count, ACK_BYTES))
            else:
                end = find_packet_end(data, at)
                if end == 0:
                    self._rest = data[at:]
                    return
                if end == MALFORMED:
                    self.unexpected(data[at:])
                    return
                self._read_odd(data[at:end])
            at = end

    def _take(self, data: bytes, at: int, count: int) -> None:
        """Take a run of messages: answer, check the order, time the samples, and open the window again."""
        layout = self.layout
        stride = layout.stride
        if layout.qos:
            head = PUBACK if layout.qos == 1 else PUBREC
            self.send(reply_to_ids(head, data, at, layout.id_at, count, stride))
        self.received += count
        if count == 1:
            if data[at + layout.mark_at] == 1:
                self._time(data, at, b"\x01")
        elif 1 in (marks := column(data, at, layout.mark_at, count, stride)):
            self._time(data, at, marks)
        if len(self.routes) > 1:
            self._share(data, at, count)
            return
        if self._expected:
            start = self._next & (self._size - 1)
            seen = column(data, at, layout.sequence_at, count, stride)
            if seen == self._expected[start : start + count]:
                self._next += count
            else:
                count = self._check_order(seen)
        if self.routes:
            self.routes[0].take(self.slot, count)

    def _time(self, data: bytes, at: int, marks: bytes) -> None:
        now = perf_counter_ns()
        index = marks.find(1)
        while index >= 0:
            start = at + index * self.layout.stride + self.layout.stamp_at
            stamp = int.from_bytes(data[start : start + 8], "big")
            if self.since_ns <= stamp <= self.until_ns:
                self.latency.record(now - stamp)
            index = marks.find(1, index + 1)

    def _share(self, data: bytes, at: int, count: int) -> None:
        layout = self.layout
        high = column(data, at, layout.source_at, count, layout.stride)
        low = column(data, at, layout.source_at + 1, count, layout.stride)
        for (first, second), number in Counter(zip(high, low, strict=True)).items():
            self.routes[first << 8 | second].take(self.slot, number)

    def _check_order(self, seen: bytes) -> int:
        """Count gaps and repetitions in a column of sequence bytes; return by how many messages the window opens."""
        settled = 0
        for sequence in seen:
            ahead = (sequence - self._next) % self._cycle
            if ahead <= self._cycle // 2:
                if ahead:
                    self.faults.add("lost", "messages are missing in the order of a publisher", ahead)
                self._next += ahead + 1
                settled += ahead + 1
            else:
                self.faults.add("repeated", "a message came twice or behind a later one")
        return settled

    def _read_odd(self, packet: bytes) -> None:
        """A packet outside a run: a message with DUP or of another length, or nothing that was asked for."""
        layout = self.layout
        if packet[0] & 0xF0 != PUBLISH or len(packet) != layout.stride:
            self.unexpected(packet)
            return
        # DUP says that the broker sent it before; on one connection without a fault it must not.
        self.faults.add("marked as duplicate")
        self._take(packet, 0, 1)


class Route(Deferred):
    """A publisher, its subscribers and the window between them.

    A message is outstanding until the publisher has its acknowledgement and every subscriber the message. With a
    `paced` route messages are published when they are due, and wait in `backlog` with the time they became due.
    """

    def __init__(self, publisher: Publisher, subscribers: list[Subscriber], window: int, *, paced: bool) -> None:
        self.publisher = publisher
        self.window = window
        self.paced = paced
        self.backlog: deque[tuple[int, int]] = deque()
        self.counts = [0] * len(subscribers)
        self.low = 0
        self.deferred = False
        publisher.route = self
        for slot, subscriber in enumerate(subscribers):
            subscriber.slot = slot
            subscriber.routes.append(self)

    def take(self, slot: int, count: int) -> None:
        """A subscriber received messages of this route."""
        counts = self.counts
        before = counts[slot]
        counts[slot] = before + count
        # Only the slowest of the subscribers can move the window.
        if before == self.low:
            self.low = min(counts) if len(counts) > 1 else before + count
            self.defer()

    def defer(self) -> None:
        """Fill at the end of the turn: one write then carries what all chunks of the turn allow."""
        if not self.deferred:
            self.deferred = True
            self.publisher.loop.deferred.append(self)

    def settle(self) -> None:
        """Fill now."""
        self.deferred = False
        self.fill()

    def due(self, stamp_ns: int, count: int) -> None:
        """Messages of a paced route are due since `stamp_ns`."""
        self.backlog.append((stamp_ns, count))
        self.fill()

    def fill(self) -> None:
        """Publish what the window and the limit allow."""
        publisher = self.publisher
        sent = publisher.sent
        done = self.low
        if publisher.qos and publisher.acked < done:
            done = publisher.acked
        free = self.window - sent + done
        if free > publisher.limit - sent:
            free = publisher.limit - sent
        if free <= 0:
            return
        if not self.paced:
            publisher.publish(free)
            return
        while free > 0 and self.backlog:
            stamp_ns, count = self.backlog.popleft()
            if count > free:
                self.backlog.appendleft((stamp_ns, count - free))
                count = free
            publisher.publish(count, stamp_ns)
            free -= count

    @property
    def outstanding(self) -> int:
        """How many messages are not acknowledged or not received everywhere."""
        publisher = self.publisher
        done = min(self.low, publisher.acked) if publisher.qos else self.low
        return publisher.sent - done
