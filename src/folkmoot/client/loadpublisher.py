"""The publishing side of load traffic: sends slices of a ring and tracks their acknowledgements, in whole chunks.

Owns the sender's flows of QoS 0, 1 and 2 (MQTT 5.0 section 4.3). Does not decide when to publish. Acknowledgements that
arrive in order are compared with the expected bytes in one step; all others take the slow path.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Final

from folkmoot.client.histogram import LatencyHistogram
from folkmoot.client.loadloop import Faults, LoadLoop
from folkmoot.client.loadpeer import Peer
from folkmoot.client.packetrun import MALFORMED, find_packet_end, measure_run
from folkmoot.client.template import ACK_BYTES, PUBACK, PUBCOMP, PUBREC, PUBREL, MessageRing, ack_ring
from folkmoot.client.workload import Target

__all__ = ["ENDLESS", "Publisher"]

REFUSED: Final = 0x80
ENDLESS: Final = 1 << 62


def nothing() -> None:
    """Do nothing: the default of a callback."""


class Publisher(Peer):
    """Publishes messages of a ring and tracks their acknowledgements.

    `sent` messages were sent, `acked` of them are complete (0 with QoS 0), `released` have their PUBREC. `limit` is the
    maximum of `sent`. `on_acked` is called when `acked` may have grown. Samples from before `since_ns` are not counted.
    """

    def __init__(
        self, loop: LoadLoop, target: Target, connect: bytes, faults: Faults, ring: MessageRing, sample_every: int
    ) -> None:
        super().__init__(loop, target, ring.layout.version, connect, faults)
        self.ring = ring
        self.qos = ring.layout.qos
        self.on_acked: Callable[[], None] = nothing
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
        """Get ready: no subscription is needed."""
        self.receive = self._read_acks if self.qos else self._read_nothing

    def publish(self, count: int, stamp_ns: int = 0) -> None:
        """Send the next `count` messages in one write; sampled ones carry `stamp_ns`, or the current time."""
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
                if end == MALFORMED:
                    self.unexpected(data[at:])
                    break
                self._read_odd(data[at:end])
                at = end
            at += count * ACK_BYTES
        if self._timed and self._timed[0][0] < self.acked:
            self._time_acks()
        self.on_acked()

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
        # Two kinds in one chunk, or something unexpected: find the run of the expected kind, then of the expected ids.
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
        """Handle an acknowledgement that is out of order or has a reason code: it is counted by its id."""
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
