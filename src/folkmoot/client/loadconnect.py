"""Load by connections: clients that connect and disconnect, and clients that stay.

Owns the two runs and the caller, which opens a connection, sends CONNECT, waits for CONNACK, sends DISCONNECT and
closes. Never publishes.
"""

from __future__ import annotations

import errno
import os
import socket
from time import perf_counter_ns
from typing import Final

from folkmoot.client.histogram import LatencyHistogram
from folkmoot.client.loadloop import READ, WRITE, Ready
from folkmoot.client.loadpeer import open_socket
from folkmoot.client.loadresult import LatencyFigures, LoadResult
from folkmoot.client.loadrun import SECOND_NS, TURN_S, Clients, LoadRun, Visitor
from folkmoot.client.packetrun import find_packet_end
from folkmoot.client.template import disconnect_packet

__all__ = ["Caller", "ConnectRun", "IdleRun"]

CONNACK: Final = 0x20
CALL_S: Final = 10.0


class ConnectRun(LoadRun):
    """`connections` callers connect repeatedly, each time with a new client id; with `rate`, so many times a second."""

    def perform(self, result: LoadResult) -> None:
        """Connect until the time is over, then wait for the last calls."""
        self.latency = LatencyHistogram()
        self.idle = [Caller(self) for _ in range(self.workload.connections)]
        self.busy: dict[Caller, None] = {}
        self.packet = self.clients.connect_packet("00000000", self.workload.version, self.span.seconds)
        self.calls = self.answers = 0
        if not self.span.messages:
            self._call_for("warming up", self.span.warmup_s, 0)
        self.latency = LatencyHistogram()
        self.start_clock()
        answers = self.answers
        self._call_for("measuring", self.span.seconds, self.span.messages)
        self.stop_clock(result, self.answers - answers)
        result.latency = LatencyFigures.of(self.latency)

    def _call_for(self, phase: str, seconds: float, count: int) -> None:
        began = perf_counter_ns()
        length_ns = int(seconds * SECOND_NS)
        first, rate = self.calls, self.workload.rate
        while not self.faults.fatal:
            elapsed = perf_counter_ns() - began
            calls = self.calls - first
            over = calls >= count if count else elapsed >= length_ns
            if over and not self.busy:
                return
            allowed = count or calls + len(self.idle)
            if rate:
                allowed = min(allowed, int(elapsed * rate / SECOND_NS))
            while self.idle and calls < allowed and not over:
                caller = self.idle.pop()
                self.busy[caller] = None
                caller.call(self.clients, self.next_packet())
                calls += 1
            self.loop.turn(0.001 if rate else TURN_S)
            self.show(phase, calls / count if count else elapsed / max(length_ns, 1), self.answers)
            if elapsed > length_ns + CALL_S * SECOND_NS and (over or not count):
                self.faults.add("timeout", f"{len(self.busy)} connections without CONNACK", fatal=True)
        for caller in self.busy:
            caller.drop()

    def next_packet(self) -> bytes:
        """Return a CONNECT with a new client id."""
        self.calls += 1
        return self.packet.replace(b"-00000000", b"-%08d" % self.calls, 1)

    def answered(self, caller: Caller, latency_ns: int) -> None:
        """Record a call: the caller has received its CONNACK and disconnected."""
        self.answers += 1
        self.latency.record(latency_ns)
        self.ended(caller)

    def ended(self, caller: Caller) -> None:
        """Mark a caller as idle again."""
        del self.busy[caller]
        self.idle.append(caller)


class Caller(Ready):
    """Makes one connection at a time."""

    def __init__(self, run: ConnectRun) -> None:
        self.run = run
        self._socket: socket.socket | None = None
        self._packet = b""
        self._rest = b""
        self._began_ns = 0

    def call(self, clients: Clients, packet: bytes) -> None:
        """Connect and send the CONNECT; at once if the system connects at once (loopback)."""
        self._began_ns = perf_counter_ns()
        self._packet, self._rest = packet, b""
        self._socket = sock = open_socket(clients.family, clients.source(self.run.calls))
        code = sock.connect_ex(clients.address)
        if code not in {0, errno.EINPROGRESS}:
            self._fail("not connected", os.strerror(code))
            return
        try:
            sock.send(packet)
            mask = READ
        except BlockingIOError:
            mask = READ | WRITE
        except OSError as error:
            self._fail("not connected", str(error.strerror))
            return
        self.run.loop.register(sock, mask, self)

    def ready(self, mask: int) -> None:
        """Send the CONNECT, or read the CONNACK and disconnect."""
        sock = self._socket
        assert sock is not None, "a caller without a connection is not registered"
        try:
            if mask & WRITE:
                sock.send(self._packet)
                self.run.loop.change(sock, READ, self)
                return
            data = sock.recv(512)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail("not connected", str(error.strerror))
            return
        if not data:
            self._fail("refused", "closed before a CONNACK")
            return
        self._rest += data
        if find_packet_end(self._rest, 0) == 0:
            return
        if self._rest[0] != CONNACK or self._rest[3] != 0:
            self._fail("refused", f"expected a CONNACK with code 0, got {self._rest[:16].hex()}")
            return
        latency_ns = perf_counter_ns() - self._began_ns
        sock.send(disconnect_packet())
        self.drop()
        self.run.answered(self, latency_ns)

    def _fail(self, kind: str, text: str) -> None:
        self.run.faults.add(kind, text)
        if self.run.faults.counts[kind] > self.run.workload.connections:
            self.run.faults.add("given up", f"more than {self.run.workload.connections} failures", fatal=True)
        self.drop()
        self.run.ended(self)

    def drop(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self.run.loop.forget(self._socket)
            self._socket.close()
            self._socket = None


class IdleRun(LoadRun):
    """`connections` clients connect and stay connected during the run: what does an idle connection cost?

    Extra figures: bytes of the broker's resident memory per connection, connections per second while they were made,
    and the share of a core that the broker used while they were idle.
    """

    def perform(self, result: LoadResult) -> None:
        """Connect all, then wait."""
        load, clients = self.workload, self.clients
        peers = [
            Visitor(
                self.loop,
                clients.target,
                load.version,
                clients.connect_packet(f"i{number:05d}", load.version, self.span.seconds),
                self.faults,
            )
            for number in range(load.connections)
        ]
        self.start_clock()
        clients.open_all(peers, lambda done: self.show("connecting", done / len(peers), done))
        self.stop_clock(result, sum(peer.accepted for peer in peers))
        result.extra["connects_per_second"] = round(result.per_second, 1)
        if not self.faults.fatal:
            self._hold(result)

    def _hold(self, result: LoadResult) -> None:
        began = perf_counter_ns()
        length_ns = int(self.span.seconds * SECOND_NS)
        cpu_ns = self.meter.read().cpu_ns if self.meter else 0
        while not self.faults.fatal and (elapsed := perf_counter_ns() - began) < length_ns:
            self.loop.turn(TURN_S)
            self.show("holding", elapsed / length_ns, result.operations)
        if self.meter and self._first_use:
            use = self.meter.read()
            growth = use.resident_bytes - self._first_use.resident_bytes
            result.broker_rss_bytes, result.broker_rss_growth_bytes = use.resident_bytes, growth
            result.extra["bytes_per_connection"] = round(growth / max(result.operations, 1), 1)
            result.extra["idle_share_of_core"] = round((use.cpu_ns - cpu_ns) / length_ns, 5)
