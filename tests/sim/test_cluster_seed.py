"""Whole runs of clusters: no violation while machines crash, hang, lose their disks, join, leave and are cut off.

The compiled run takes many seeds, the interpreted one some of the same: it is several times slower.
"""

from __future__ import annotations

import pytest

from folkmoot.cli.version import is_compiled
from folkmoot.sim import Simulation
from folkmoot.sim.swarm import SPLITTING, Swarm
from tests.harness.soak import seeds

STEPS = 150
SEEDS = seeds(range(1, 6), range(1, 301)) if is_compiled() else range(1, 21)
RARE_SEEDS = (2, 4, 8, 16, 18, 24, 36, 47, 52, 57, 65, 67, 89, 92)
"""Seeds that have reached all that is rare: the search begins there, and goes on when they reach it no more."""
SPLIT_SEEDS = range(111, 121)
LOST_LINK_SEEDS = seeds(range(137, 140), range(131, 151)) if is_compiled() else range(137, 139)

RARE = (
    "bad checksum",
    "bad checksum repaired",
    "bit flip",
    "disk full",
    "disk lost with the power",
    "empty restart",
    "evict",
    "failed node left the view in time",
    "flipped bit repaired",
    "forget",
    "full disk leads nothing that another can lead",
    "hang",
    "join",
    "leave",
    "left",
    "loss",
    "mass crash",
    "peer reset",
    "peer transport full",
    "power loss",
    "slow link",
    "stalled disk reported",
    "sync failure",
    "thinned out",
    "told the others before it stopped",
    "crash kept unreported batches",
    "crash lost unsynced batches",
    "event branch_overwritten",
    "event replica_damaged",
    "event replica_dropped",
    "event replica_filled",
    "event view_excluded",
    "QoS 2 duplicate recognised",
    "resent PUBLISH",
    "resent PUBREL",
    "session resumed",
    "takeover",
    "will yes",
)
"""What no run proves anything about that never gets there."""


def united(swarm: Swarm) -> None:
    """Whatever happens, the network has no two sides."""
    for name in (*SPLITTING, "blackouts", "bad links"):
        swarm.on[name] = False


@pytest.mark.parametrize("first", SEEDS[::10])
def test_five_nodes_break_no_promise(first: int) -> None:
    broken: list[tuple[int, object]] = []
    for seed in range(first, min(first + 10, SEEDS.stop)):
        if is_compiled() and seed in RARE_SEEDS:
            continue  # judged below
        result = Simulation(seed, STEPS, shape=united, nodes=5).run()
        broken += [(seed, violation) for violation in result.violations]
    assert broken == []


@pytest.mark.skipif(not is_compiled(), reason="it takes many seeds, and all runs are the same interpreted")
def test_five_nodes_reach_what_is_rare() -> None:
    left = set(RARE)
    for seed in [*RARE_SEEDS, *range(1, 301)]:
        result = Simulation(seed, STEPS, shape=united, nodes=5).run()
        assert result.violations == []
        left -= result.marks.keys()
        if not left:
            break
    assert left == set()


@pytest.mark.parametrize("seed", SPLIT_SEEDS)
def test_three_nodes_break_no_promise_in_splits_either(seed: int) -> None:
    assert Simulation(seed, STEPS, nodes=3).run().violations == []


def losing_links(swarm: Swarm) -> None:
    """Nodes that live lose what they had for each other, again and again."""
    united(swarm)
    swarm.on["lost links"] = True
    swarm.fault_every = 8


def test_four_nodes_break_no_promise_when_links_are_given_up() -> None:
    broken: list[tuple[int, object]] = []
    lost = 0
    for seed in LOST_LINK_SEEDS:
        result = Simulation(seed, STEPS, shape=losing_links, nodes=4).run()
        broken += [(seed, violation) for violation in result.violations]
        lost += result.marks.get("lost link", 0)
    assert broken == []
    assert lost > len(LOST_LINK_SEEDS)
