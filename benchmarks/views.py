"""Members that die and come in clusters of 5, 50 and 200 nodes, in virtual time; and how long a placement takes.

Owns this section's runs and tables. The nodes are the real control of the membership, joined by the deterministic
harness of `tests/membership/simulated_control.py`: links that delay, processes that die, disks, a model of copies that
are filled. What is counted is exact and the same in every run; only the times of the placement are those of this
machine.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.rounds import Bench, Figures, spread
from benchmarks.table import markdown, number, with_spread
from folkmoot.kernel.pack import varint
from folkmoot.membership.cluster_member import DATA, ClusterMember, Process
from folkmoot.membership.configuration_log import lineage_of
from folkmoot.membership.control_message import BEAT, BEAT_ANSWER, kind_of
from folkmoot.membership.lifecycle import is_up
from folkmoot.membership.placement import ideal_placement
from folkmoot.peer.kind import CONFIGURATION_LOG, CONTROL
from folkmoot.raft.message import HEARTBEAT, HEARTBEAT_RESPONSE, decode_message

SIZES = (5, 50, 200)
SIZES_QUICK = (5, 50)
PARTITIONS = 256
SEED = 1
LIMIT_NS = 60_000_000_000
REST_NS = 2_000_000_000
STEP_NS = 1_000_000
PLACEMENTS = ((3, 256), (50, 1024), (200, 4096))
REPLICAS = 3
HARNESS = Path(__file__).resolve().parent.parent / "tests" / "membership" / "simulated_control.py"


class World:
    """A cluster in virtual time that counts what its members send each other."""

    def __init__(self, size: int, partitions: int) -> None:
        self.control = 0
        """Messages that are no heartbeats."""
        self.heartbeats = 0
        """Heartbeats, and answers to them, of members and of the configuration log."""

        def tune(options: Any) -> None:
            options.partitions = partitions

        self.cluster: Any = harness().Cluster(SEED, size, tune)
        self.cluster.check = lambda _machine: None  # the tests check; here it would take most of the time
        self._carry = self.cluster.carry
        self.cluster.carry = self.carry

    def carry(self, sender: Any, to: Any, kind: int, body: bytes) -> None:
        """Count a message, and carry it."""
        if is_heartbeat(kind, body):
            self.heartbeats += 1
        else:
            self.control += 1
        self._carry(sender, to, kind, body)

    def is_known(self, names: list[str], victim: str, up: bool) -> bool:
        """Tell whether these members have installed that another one is up, or is not."""
        for name in names:
            control = self.cluster.named(name).control
            member = None if control is None or control.configuration is None else control.configuration.named(victim)
            if member is None or (is_up(member.state) and member.incarnation == self.incarnation(victim)) != up:
                return False
        return True

    def incarnation(self, name: str) -> int:
        """Return the newest start of a node."""
        return int(self.cluster.named(name).incarnation)


def harness() -> ModuleType:
    """Return the module of the harness: `tests` is no package that could be imported."""
    name = "simulated_control"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HARNESS)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def is_heartbeat(kind: int, body: bytes) -> bool:
    """Tell whether a message is sent again and again while nothing happens."""
    if kind == CONTROL:
        return kind_of(body) in (BEAT, BEAT_ANSWER)
    assert kind == CONFIGURATION_LOG, "nodes send nothing else here"
    message = decode_message(body[len(varint(lineage_of(body))) :])
    return message.kind in (HEARTBEAT, HEARTBEAT_RESPONSE)


def run(bench: Bench) -> Figures:
    """Let one node die and come back in clusters of several sizes; time the placement."""
    views: Figures = {}
    for size in SIZES_QUICK if bench.quick else SIZES:
        bench.note(f"{size} nodes")
        views[str(size)] = changes(World(size, PARTITIONS))
    rings: Figures = {}
    for nodes, partitions in PLACEMENTS:
        bench.note(f"placement of {partitions} partitions on {nodes} nodes")
        rings[f"{nodes} x {partitions}"] = spread([placement_ms(nodes, partitions) for _ in range(bench.rounds)])
    return {"views": views, "rings": rings}


def changes(world: World) -> Figures:
    """Return what it takes until all know that a node is dead, and that it is back, with nothing else going on."""
    cluster = world.cluster
    ids = [machine.name for machine in cluster.machines]
    for machine in cluster.machines:
        cluster.start(machine)
    until(world, cluster.is_whole)
    cluster.run(REST_NS)
    before = world.heartbeats
    cluster.run(REST_NS)
    a_second = (world.heartbeats - before) * 1_000_000_000 / REST_NS
    victim = next(one.name for one in reversed(cluster.machines) if one.control.controller is None)
    rest = [one for one in ids if one != victim]
    killed = measured(world, lambda: cluster.kill(cluster.named(victim)), lambda: world.is_known(rest, victim, False))
    cluster.run(REST_NS)
    joined = measured(world, lambda: cluster.start(cluster.named(victim)), lambda: world.is_known(ids, victim, True))
    whole = measured(world, lambda: None, cluster.is_whole)
    return {"kill": killed, "join": joined, "whole": whole, "heartbeats_a_second": a_second / len(ids)}


def until(world: World, holds: Callable[[], bool]) -> None:
    """Let time pass until a condition holds."""
    began = world.cluster.now
    while not holds():
        if world.cluster.now - began > LIMIT_NS:
            raise RuntimeError(f"not within {LIMIT_NS // 1_000_000_000} s: {world.cluster.log[-20:]}")
        world.cluster.run(STEP_NS)


def measured(world: World, act: Callable[[], object], holds: Callable[[], bool]) -> Figures:
    """Return control messages, and virtual milliseconds, until the condition holds."""
    before, began = world.control, world.cluster.now
    act()
    until(world, holds)
    return {"messages": world.control - before, "ms": (world.cluster.now - began) / 1_000_000}


def placement_ms(nodes: int, partitions: int) -> float:
    """Return how long a placement takes to compute, in milliseconds; members in ten zones."""
    members = []
    for at in range(nodes):
        process = Process(1, f"192.0.2.{at}:7000", f"zone{at % 10}", f"host{at}")
        members.append(ClusterMember(1 + at, f"n{at:03}", DATA, process))
    began = time.perf_counter()
    ideal_placement(members, partitions, REPLICAS, {})
    return (time.perf_counter() - began) * 1000


def table(figures: Figures) -> str:
    """Return two tables: messages and virtual time of changes, and the time of a placement."""
    head = [
        "nodes",
        "dead node: control messages",
        "known to all after ms",
        "node that comes: control messages",
        "known to all after ms",
        "all copies whole after ms more",
        "heartbeats a second, per node",
    ]
    rows: list[Sequence[str]] = []
    for size, found in figures["views"].items():
        cells = [f"{found[what][key]:,.0f}" for what in ("kill", "join") for key in ("messages", "ms")]
        rows.append([size, *cells, f"{found['whole']['ms']:,.0f}", number(found["heartbeats_a_second"])])
    rings = [[name, with_spread(figures["rings"], name)] for name in figures["rings"]]
    return f"{markdown(head, rows)}\n\n{markdown(['placement: nodes x partitions', 'ms'], rings)}"
