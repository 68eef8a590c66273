"""A load run whose clients are spread over the nodes of a cluster, or put where they are wanted.

Owns which client connects to which node, which client ids are taken, and the meters of all nodes. What flows and what
is checked is `folkmoot.client.load`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns

from folkmoot.client.loadloop import Faults, LoadLoop
from folkmoot.client.loadpeer import Peer
from folkmoot.client.loadpublisher import Publisher
from folkmoot.client.loadresult import LoadResult
from folkmoot.client.loadrun import SECOND_NS, TURN_S, Clients
from folkmoot.client.loadtraffic import TrafficRun
from folkmoot.client.processmeter import ProcessMeter
from folkmoot.client.workload import Span, Target, Workload
from folkmoot.kernel.hash import hash64

CONNECT_S = 60.0
OPENING_MAX = 64
SALTS = 100_000


@dataclass(frozen=True)
class Placement:
    """Ports of the nodes that publishers and subscribers connect to, in turn; partitions of which a session must be.

    `partitions` is the number of all; with an empty `wanted` a session may be anywhere.
    """

    publishers: Sequence[int]
    subscribers: Sequence[int]
    pids: dict[str, int]
    partitions: int = 256
    wanted: frozenset[int] = field(default_factory=frozenset)


class PlacedClients(Clients):
    """Connections that go where the placement says."""

    def __init__(self, loop: LoadLoop, target: Target, faults: Faults, placement: Placement) -> None:
        super().__init__(loop, target, faults)
        self.placement = placement

    def connect_packet(self, name: str, version: int, seconds: float, *, persistent: bool = False) -> bytes:
        """Return the CONNECT of a client whose id is in a partition that is wanted."""
        return super().connect_packet(self.name_of(name), version, seconds, persistent=persistent)

    def name_of(self, name: str) -> str:
        """Return the name with what makes its client id fall into a partition that is wanted."""
        placement = self.placement
        if not placement.wanted or not name.startswith("s"):
            return name
        for salt in range(SALTS):
            found = f"{name}-{salt}"
            if hash64(f"bench-{self.token}-{found}".encode()) % placement.partitions in placement.wanted:
                return found
        raise RuntimeError(f"no client id of {SALTS} is in the partitions {sorted(placement.wanted)}")

    def open_all(self, peers: Sequence[Peer], notice: Callable[[int], None]) -> None:
        """Open connections as `Clients` does, each to its node."""
        deadline = perf_counter_ns() + int(CONNECT_S * SECOND_NS)
        opening: list[Peer] = []
        self.peers += peers
        started = 0
        while (started < len(peers) or opening) and not self.faults.fatal:
            while started < len(peers) and len(opening) < OPENING_MAX:
                peer = peers[started]
                ports = self.placement.publishers if isinstance(peer, Publisher) else self.placement.subscribers
                peer.open(self.family, (self.address[0], ports[started % len(ports)]), self.source(started))
                opening.append(peer)
                started += 1
            self.loop.turn(TURN_S)
            opening = [peer for peer in opening if not peer.settled]
            notice(started - len(opening))
            if perf_counter_ns() > deadline:
                self.faults.add("timeout", f"{len(opening)} connections not accepted in {CONNECT_S:.0f} s", fatal=True)


class PlacedRun(TrafficRun):
    """Messages between clients at several nodes; the CPU of each node per message is in `extra` as `cpu_us NODE`."""

    def __init__(self, workload: Workload, placement: Placement, span: Span) -> None:
        target = Target("127.0.0.1", placement.publishers[0])
        super().__init__(workload, target, span)
        self.clients = PlacedClients(self.loop, target, self.faults, placement)
        self.meters = {name: ProcessMeter(pid) for name, pid in placement.pids.items()}
        self.used_ns: dict[str, int] = {}

    def start_clock(self) -> None:
        self.used_ns = {name: meter.read().cpu_ns for name, meter in self.meters.items()}
        super().start_clock()

    def stop_clock(self, result: LoadResult, operations: int) -> None:
        super().stop_clock(result, operations)
        total = 0.0
        for name, meter in self.meters.items():
            used_us = (meter.read().cpu_ns - self.used_ns[name]) / 1000
            result.extra[f"cpu_us {name}"] = used_us / max(operations, 1)
            total += used_us
        result.broker_cpu_us = total / max(operations, 1)
        result.broker_share = total / 1e6 / max(result.seconds, 1e-9)
