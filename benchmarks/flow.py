"""A steady flow of messages beside whatever else is measured, and the filling of queues.

Owns one thread with all clients of the flow. Messages are due by the clock, whether or not those before were answered:
the time from then to PUBACK is what a device sees. It never judges a figure.
"""

from __future__ import annotations

import random
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.failover import Line, subscribe
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import PUBACK, V311, Ack, Publish

CLIENTS = 20
PAYLOAD_BYTES = 256
IDLE_S = 0.002
ANSWER_S = 10.0
BATCH = 64
_PUBACK_BYTES = 4
_PACKET_IDS = 60_000
_NOISE_BYTES = 1 << 20
_STRIDE = 7919


def session(port: int, client_id: str, topic: bytes) -> Line:
    """Connect with a persistent session that subscribes to a topic with QoS 1."""
    line = Line(port, client_id, clean=False)
    subscribe(line, topic, ANSWER_S)
    return line


@dataclass
class Sender:
    """One publisher of the flow: what it has sent and when that was due."""

    line: Line
    topic: bytes
    sent: int = 0
    flying: deque[float] = field(default_factory=deque)


class Flow(threading.Thread):
    """`rate` messages a second, QoS 1, between pairs of clients with persistent sessions at the nodes of `ports`."""

    def __init__(self, ports: Sequence[int], rate: float, clients: int = CLIENTS) -> None:
        super().__init__(daemon=True)
        self.gap_s = 1 / rate
        self.ended = threading.Event()
        self.acknowledged: list[tuple[float, float]] = []  # (when it was due, seconds until PUBACK)
        self.delivered = 0
        self.fault = ""
        self._selector = selectors.DefaultSelector()
        self._senders: list[Sender] = []
        self._lines: list[Line] = []
        for number in range(clients):
            topic = b"flow/%d" % number
            reader = session(ports[(number + 1) % len(ports)], f"flow-s{number}", topic)
            sender = Sender(Line(ports[number % len(ports)], f"flow-p{number}", clean=True), topic)
            self._senders.append(sender)
            self._lines += [reader, sender.line]
            self._selector.register(reader.socket, selectors.EVENT_READ, (self._read, reader))
            self._selector.register(sender.line.socket, selectors.EVENT_READ, (self._answered, sender))

    def run(self) -> None:
        due = time.monotonic()
        number = 0
        try:
            while not self.ended.is_set():
                now = time.monotonic()
                while due <= now:
                    self._send(self._senders[number % len(self._senders)], due)
                    number += 1
                    due += self.gap_s
                self._take(min(due - now, IDLE_S))
            until = time.monotonic() + ANSWER_S
            while any(sender.flying for sender in self._senders) and time.monotonic() < until:
                self._take(IDLE_S)
            if lost := sum(len(sender.flying) for sender in self._senders):
                self.fault = f"{lost} messages were not acknowledged"
        except (OSError, ConnectionError) as error:
            self.fault = f"a connection was lost: {error}"

    def stop(self) -> None:
        """End the flow, once what is on its way has been answered; idempotent."""
        self.ended.set()
        if self.is_alive():
            self.join(2 * ANSWER_S)
        for line in self._lines:
            line.socket.close()

    def _take(self, wait_s: float) -> None:
        for key, _events in self._selector.select(wait_s):
            call, subject = key.data
            call(subject)

    def _send(self, sender: Sender, due: float) -> None:
        sender.line.send(Publish(sender.topic, bytes(PAYLOAD_BYTES), 1, False, False, sender.sent % _PACKET_IDS + 1))
        sender.sent += 1
        sender.flying.append(due)

    def _answered(self, sender: Sender) -> None:
        packets = sender.line.take()
        now = time.monotonic()
        for packet in packets:
            if isinstance(packet, Ack) and packet.kind == PUBACK and sender.flying:
                due = sender.flying.popleft()
                self.acknowledged.append((due, now - due))

    def _read(self, line: Line) -> None:
        for packet in line.take():
            if isinstance(packet, Publish):
                self.delivered += 1
                line.send(Ack(PUBACK, packet.packet_id))

    def between(self, began: float, ended: float) -> list[float]:
        """Return the seconds until PUBACK of the messages that were due in a span of time, sorted."""
        return sorted(took for due, took in self.acknowledged if began <= due < ended)


def fill(ports: Sequence[int], topics: Sequence[bytes], count: int, size: int, note: Callable[[int], None]) -> None:
    """Publish `count` messages with QoS 1 to topics in turn, over a connection per node; all are acknowledged.

    Payloads have `size` bytes, which no compression makes smaller: those of neighbours are different.
    """
    noise = random.Random(1).randbytes(_NOISE_BYTES + size)
    lines = [Line(port, f"filler-{port}", clean=True) for port in ports]
    bodies = [encode(Publish(topic, bytes(size), 1, False, False, 1), V311) for topic in topics]
    sent = 0
    owed = [0] * len(lines)
    while sent < count:
        for number, line in enumerate(lines):
            parts = []
            for index in range(sent, min(sent + BATCH, count)):
                body = bodies[index % len(bodies)]
                at = len(body) - size - 2
                start = index * _STRIDE % _NOISE_BYTES
                parts += [body[:at], (index % _PACKET_IDS + 1).to_bytes(2, "big"), noise[start : start + size]]
            sent += len(parts) // 3
            line.socket.sendall(b"".join(parts))
            owed[number] += len(parts) // 3 * _PUBACK_BYTES
            owed[number] = drain(line, owed[number], 4 * BATCH * _PUBACK_BYTES)
        note(sent)
    for number, line in enumerate(lines):
        drain(line, owed[number], 0)
        line.socket.close()


def drain(line: Line, owed: int, most: int) -> int:
    """Read acknowledgements until at most `most` bytes of them are owed; return how many are."""
    while owed > most:
        line.socket.settimeout(ANSWER_S)
        data = line.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("closed while queues were filled")
        owed -= len(data)
    return owed
