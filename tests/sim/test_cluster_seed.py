"""Whole runs of clusters: no violation while machines crash, hang, lose their disks, join and are cut off."""

from __future__ import annotations

import pytest

from folkmoot.sim import Simulation
from folkmoot.sim.swarm import SPLITTING, Swarm

STEPS = 150


def united(swarm: Swarm) -> None:
    """Whatever happens, the network has no two sides."""
    for name in (*SPLITTING, "blackouts", "bad links"):
        swarm.on[name] = False


@pytest.mark.parametrize("seed", range(1, 41))
def test_five_nodes_break_no_promise(seed: int) -> None:
    assert Simulation(seed, STEPS, shape=united, nodes=5).run().violations == []


@pytest.mark.parametrize("seed", range(111, 121))
def test_three_nodes_break_no_promise_in_splits_either(seed: int) -> None:
    assert Simulation(seed, STEPS, nodes=3).run().violations == []
