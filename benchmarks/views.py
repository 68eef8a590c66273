"""View changes in clusters of 5, 50 and 200 nodes, in virtual time; and how long the ring takes to compute.

Owns this section's runs and tables. The nodes are the real membership cores, joined by the deterministic harness of
`tests/membership/simulated_membership.py`: links that delay, processes that die, a model of copies that are filled.
What is counted is exact and the same in every run; only the times of the ring are those of this machine.
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
from folkmoot.membership.ring import Ring
from folkmoot.membership.view import View
from folkmoot.peer.member import ACTIVE, Member

SIZES = (5, 50, 200)
SIZES_QUICK = (5, 50)
PARTITIONS = 256
SEED = 1
LIMIT_US = 60_000_000
REST_US = 700_000  # longer than planned changes wait for company
STEP_US = 1000
RINGS = ((3, 256), (50, 1024), (200, 4096))
REPLICAS = 3
HARNESS = Path(__file__).resolve().parent.parent / "tests" / "membership" / "simulated_membership.py"


def harness() -> ModuleType:
    """Return the module of the membership harness: `tests` is no package that could be imported."""
    spec = importlib.util.spec_from_file_location("simulated_membership", HARNESS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["simulated_membership"] = module
    spec.loader.exec_module(module)
    return module


def run(bench: Bench) -> Figures:
    """Let one node die and come back in clusters of several sizes; time the ring."""
    simulation = harness()
    views: Figures = {}
    for size in SIZES_QUICK if bench.quick else SIZES:
        bench.note(f"{size} nodes")
        views[str(size)] = changes(simulation.SimulatedMembership(size, SEED, PARTITIONS), size)
    rings: Figures = {}
    for nodes, partitions in RINGS:
        bench.note(f"ring of {nodes} nodes and {partitions} partitions")
        rings[f"{nodes} x {partitions}"] = spread([ring_ms(nodes, partitions) for _ in range(bench.rounds)])
    return {"views": views, "rings": rings}


def changes(world: Any, size: int) -> Figures:
    """Return what it takes to agree that a node is dead, and that it is back, with nothing else going on."""
    ids = sorted(world.nodes)
    world.start_all()
    world.run_until(world.settled, LIMIT_US)
    heartbeats = beats(world)
    world.run(REST_US)
    a_second = (beats(world) - heartbeats) * 1_000_000 / REST_US
    victim = ids[size // 2]
    rest = [one for one in ids if one != victim]
    killed = measured(world, lambda: world.kill(victim), lambda: world.agreed(rest))
    world.run_until(world.settled, LIMIT_US)
    world.run(REST_US)
    seeds = [one for one in ids[:3] if one != victim]
    joined = measured(world, lambda: world.start(victim, seeds), lambda: world.agreed(ids))
    whole = measured(world, lambda: None, world.settled)
    return {"kill": killed, "join": joined, "whole": whole, "heartbeats_a_second": a_second / size}


def beats(world: Any) -> int:
    """Return how many messages were sent that are no control messages."""
    return int(sum(world.sent.values()) - world.control_messages())


def measured(world: Any, act: Callable[[], object], agreed: Callable[[], bool]) -> Figures:
    """Return control messages, their number per member, and virtual milliseconds until the condition holds."""
    before, began = world.control_messages(), world.now
    act()
    while not agreed():
        if world.now - began > LIMIT_US:
            raise RuntimeError(f"no agreement within {LIMIT_US // 1_000_000} s\n{world.picture()}")
        world.run(STEP_US)
    return {"messages": world.control_messages() - before, "ms": (world.now - began) / 1000}


def ring_ms(nodes: int, partitions: int) -> float:
    """Return how long a ring takes to compute, in milliseconds; members in ten zones."""
    members = [
        Member(f"n{number:03}", 1, f"192.0.2.{number}:7000", f"zone{number % 10}", ACTIVE, 1, 1, "1")
        for number in range(nodes)
    ]
    began = time.perf_counter()
    Ring(View(1, members, [], [], []), partitions, REPLICAS)
    return (time.perf_counter() - began) * 1000


def table(figures: Figures) -> str:
    """Return two tables: messages and virtual time of view changes, and the time of the ring."""
    head = [
        "nodes",
        "dead node: control messages",
        "agreed after ms",
        "node that comes: control messages",
        "agreed after ms",
        "all copies whole after ms more",
        "heartbeats a second, per node",
    ]
    rows: list[Sequence[str]] = []
    for size, found in figures["views"].items():
        cells = [f"{found[what][key]:,.0f}" for what in ("kill", "join") for key in ("messages", "ms")]
        rows.append([size, *cells, f"{found['whole']['ms']:,.0f}", number(found["heartbeats_a_second"])])
    rings = [[name, with_spread(figures["rings"], name)] for name in figures["rings"]]
    return f"{markdown(head, rows)}\n\n{markdown(['ring of nodes x partitions', 'ms'], rings)}"
