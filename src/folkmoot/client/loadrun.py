"""The common part of all load runs: opening connections, the clock, the meter of the broker, progress.

Owns the time limit for connecting, and the resource usage. Never publishes or prints.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Sequence
from time import perf_counter_ns, process_time_ns
from typing import Final

from folkmoot.client.loadloop import Faults, LoadLoop, raise_file_limit
from folkmoot.client.loadpeer import Peer
from folkmoot.client.loadresult import LoadResult
from folkmoot.client.processmeter import ProcessMeter, ProcessUse
from folkmoot.client.template import connect_packet
from folkmoot.client.workload import Span, Target, Workload

__all__ = ["PROGRESS_NS", "SECOND_NS", "TURN_S", "Clients", "LoadRun", "Progress", "Visitor", "ignore_progress"]

SECOND_NS: Final = 1_000_000_000
TURN_S: Final = 0.02
PROGRESS_NS: Final = 100_000_000
CONNECT_S: Final = 60.0
# Concurrent connection attempts: below the backlog of a listening socket (100 in Mosquitto).
OPENING_MAX: Final = 64
SESSION_EXPIRY_S: Final = 3600
# A client address has 28,000 ports per server, and closed ones stay in TIME_WAIT; loopback has more addresses on Linux.
LOOPBACK_SOURCES: Final = 200

Progress = Callable[[str, float, int], None]
"""Called every 0.1 s with the phase, its progress (0 to 1) and the operations so far."""


def ignore_progress(_phase: str, _share: float, _operations: int) -> None:
    """Show nothing."""


class Visitor(Peer):
    """Connects, and expects no further packets."""

    def on_accepted(self) -> None:
        """Stay."""
        self.receive = self.unexpected


class Clients:
    """The address of the broker, and the connections to it."""

    def __init__(self, loop: LoadLoop, target: Target, faults: Faults) -> None:
        self.loop = loop
        self.target = target
        self.faults = faults
        self.family, self.address = target.resolve()
        self.token = secrets.token_hex(2)
        self.peers: list[Peer] = []

    def topic(self, number: int) -> bytes:
        """Return the topic of publisher `number`; all have the same length and are unique to this run."""
        return b"bench/%s/%05d" % (self.token.encode(), number)

    def source(self, number: int) -> str | None:
        """Return the source address of connection `number`; None to let the system choose."""
        many = sys.platform == "linux" and self.address[0].startswith("127.")
        return f"127.0.0.{1 + number % LOOPBACK_SOURCES}" if many else None

    def connect_packet(self, name: str, version: int, seconds: float, *, persistent: bool = False) -> bytes:
        """Return the CONNECT of a client of this run; its keep alive is long enough to need no PINGREQ."""
        return connect_packet(
            version,
            f"bench-{self.token}-{name}",
            clean=not persistent,
            keep_alive_s=min(65_535, int(4 * seconds) + 300),
            session_expiry_s=SESSION_EXPIRY_S if persistent else 0,
            username=self.target.username,
            password=self.target.password,
        )

    def open_all(self, peers: Sequence[Peer], notice: Callable[[int], None]) -> None:
        """Open connections, a limited number at a time, until all are ready; an error or the time limit ends it."""
        deadline = perf_counter_ns() + int(CONNECT_S * SECOND_NS)
        opening: list[Peer] = []
        self.peers += peers
        started = 0
        while (started < len(peers) or opening) and not self.faults.fatal:
            while started < len(peers) and len(opening) < OPENING_MAX:
                opening.append(peers[started])
                peers[started].open(self.family, self.address, self.source(started))
                started += 1
            self.loop.turn(TURN_S)
            opening = [peer for peer in opening if not peer.settled]
            notice(started - len(opening))
            if perf_counter_ns() > deadline:
                self.faults.add("timeout", f"{len(opening)} connections not accepted in {CONNECT_S:.0f} s", fatal=True)

    def close(self) -> None:
        """Disconnect all clients."""
        for peer in self.peers:
            peer.disconnect()
        self.peers.clear()


class LoadRun:
    """Base class of the runs: the loop, the clients, the meter of the broker's process, the clock of the measurement.

    `pid` is the broker's process on this machine, to measure its CPU time and memory. With `spin` the generator never
    sleeps, which needs a core of its own.
    """

    def __init__(
        self,
        workload: Workload,
        target: Target,
        span: Span,
        *,
        pid: int | None = None,
        progress: Progress = ignore_progress,
        spin: bool = False,
    ) -> None:
        self.workload = workload
        self.span = span
        self.progress = progress
        self.faults = Faults()
        self.loop = LoadLoop(spin=spin)
        self.clients = Clients(self.loop, target, self.faults)
        self.meter = ProcessMeter(pid) if pid else None
        self.began_ns = 0
        self.shown_ns = 0
        self._use: ProcessUse | None = None
        self._first_use: ProcessUse | None = None
        self._busy_ns = 0
        self._own_cpu_ns = 0

    def run(self) -> LoadResult:
        """Do the run and return its figures, including errors; raises only for a wrong pid or host."""
        raise_file_limit(self.workload.publishers + self.workload.subscribers + self.workload.connections + 64)
        result = LoadResult(self.workload)
        self._first_use = self.meter.read() if self.meter else None
        try:
            self.perform(result)
        finally:
            self.clients.close()
            self.loop.close()
        result.faults = dict(self.faults.counts)
        result.texts = self.faults.texts
        return result

    def perform(self, result: LoadResult) -> None:
        """Do the phases and set the figures."""
        raise NotImplementedError

    def show(self, phase: str, share: float, operations: int) -> None:
        """Report progress, at most every 0.1 s."""
        now = perf_counter_ns()
        if now - self.shown_ns >= PROGRESS_NS or share >= 1.0:
            self.shown_ns = now
            self.progress(phase, min(share, 1.0), operations)

    def start_clock(self) -> None:
        """Begin the measurement."""
        self._use = self.meter.read() if self.meter else None
        self._busy_ns = self.loop.busy_ns
        self._own_cpu_ns = process_time_ns()
        self.began_ns = perf_counter_ns()

    def stop_clock(self, result: LoadResult, operations: int) -> None:
        """End the measurement: set the resource usage, per operation and as shares of a core."""
        elapsed_ns = perf_counter_ns() - self.began_ns
        # Spinning uses a whole core; only the time with work counts then.
        used_ns = self.loop.busy_ns - self._busy_ns if self.loop.spin else process_time_ns() - self._own_cpu_ns
        result.seconds = elapsed_ns / SECOND_NS
        result.operations = operations
        result.generator_us = used_ns / 1000 / max(operations, 1)
        result.generator_share = used_ns / elapsed_ns
        if self.meter and self._use and self._first_use:
            use = self.meter.read()
            cpu_ns = use.cpu_ns - self._use.cpu_ns
            result.broker_cpu_us = cpu_ns / 1000 / max(operations, 1)
            result.broker_share = cpu_ns / elapsed_ns
            result.broker_rss_bytes = use.resident_bytes
            result.broker_rss_growth_bytes = use.resident_bytes - self._first_use.resident_bytes
