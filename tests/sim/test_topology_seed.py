"""Whole runs of the family `--topologies`: no violation with any number of nodes, policy, splits or a witness."""

from __future__ import annotations

import pytest

from folkmoot.cli.version import is_compiled
from folkmoot.sim import Options
from tests.harness.soak import seeds

STEPS = 60
TOGETHER = 5
SEEDS = seeds(range(1, 41), range(1, 601)) if is_compiled() else range(1, 6)


def options(seed: int) -> Options:
    return Options(seed, STEPS, 1, topologies=True)


@pytest.mark.parametrize("first", SEEDS[::TOGETHER])
def test_no_promise_is_broken_in_any_topology(first: int) -> None:
    broken: list[tuple[int, object]] = []
    judged = 0
    for seed in range(first, first + TOGETHER):
        result = options(seed).simulation().run()
        judged += result.judged.get("A1", 0)
        broken += [(seed, violation) for violation in result.violations]
    assert broken == []
    assert judged > 20 * TOGETHER


def test_half_of_the_seeds_have_splits_and_half_of_those_the_policy_majority() -> None:
    swarms = [options(seed).simulation().swarm for seed in range(1, 401)]
    split = [swarm for swarm in swarms if swarm.splits]
    assert 160 < len(split) < 240
    assert 0.4 * len(split) < len([swarm for swarm in split if swarm.majority]) < 0.6 * len(split)
    assert {swarm.nodes for swarm in swarms} == {2, 3, 5, 7}
    assert any(swarm.witnesses for swarm in split)
