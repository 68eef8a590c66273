"""The receiving side of load traffic: takes runs of messages, acknowledges them, checks their order, measures samples.

Owns the receiver's flows of QoS 0, 1 and 2 (MQTT 5.0 section 4.3). Chunks are checked by comparing columns of bytes,
and acknowledgements are assembled from columns; only unexpected messages are examined one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

from folkmoot.client.histogram import LatencyHistogram
from folkmoot.client.loadloop import Faults, LoadLoop
from folkmoot.client.loadpeer import Peer
from folkmoot.client.packetrun import MALFORMED, column, find_packet_end, measure_run, reply_to_ids
from folkmoot.client.template import (
    ACK_BYTES,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    MessageLayout,
    sequence_ring,
    subscribe_packet,
)
from folkmoot.client.workload import Target

__all__ = ["Subscriber"]

SUBACK: Final = 0x90
PUBLISH: Final = 0x30
ENDLESS: Final = 1 << 62


class Subscriber(Peer):
    """Receives the messages of one layout and acknowledges them; `received` counts them.

    `takers` are called with (slot, count): one per publisher; with several (fan-in), the source bytes of a message tell
    its publisher. `slot` is the index of the subscriber among those of a publisher. Samples with stamps from `since_ns`
    to `until_ns` go to `latency`.
    """

    def __init__(
        self, loop: LoadLoop, target: Target, connect: bytes, faults: Faults, layout: MessageLayout, topic_filter: bytes
    ) -> None:
        super().__init__(loop, target, layout.version, connect, faults)
        self.layout = layout
        self.topic_filter = topic_filter
        self.takers: list[Callable[[int, int], None]] = []
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
        """Whether the subscription is established."""
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
        # Messages may arrive before the SUBACK; here there are none yet, because publishers wait for all subscribers.
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
        """Take a run of messages: acknowledge, check the order, measure the samples, and open the window again."""
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
        if len(self.takers) > 1:
            self._share(data, at, count)
            return
        if self._expected:
            start = self._next & (self._size - 1)
            seen = column(data, at, layout.sequence_at, count, stride)
            if seen == self._expected[start : start + count]:
                self._next += count
            else:
                count = self._check_order(seen)
        if self.takers:
            self.takers[0](self.slot, count)

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
            self.takers[first << 8 | second](self.slot, number)

    def _check_order(self, seen: bytes) -> int:
        """Count gaps and repetitions in a column of sequence bytes; return by how many messages to open the window."""
        settled = 0
        for sequence in seen:
            ahead = (sequence - self._next) % self._cycle
            if ahead <= self._cycle // 2:
                if ahead:
                    self.faults.add("lost", "messages are missing in the order of a publisher", ahead)
                self._next += ahead + 1
                settled += ahead + 1
            else:
                self.faults.add("repeated", "a message was received twice or after a later one")
        return settled

    def _read_odd(self, packet: bytes) -> None:
        """Handle a packet outside a run: a message with DUP or of another length, or an unexpected packet."""
        layout = self.layout
        if packet[0] & 0xF0 != PUBLISH or len(packet) != layout.stride:
            self.unexpected(packet)
            return
        # DUP means that the broker has sent it before, which is wrong on a connection that was never interrupted.
        self.faults.add("marked as duplicate")
        self._take(packet, 0, 1)
