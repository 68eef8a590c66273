"""No order of events breaks what Raft promises; `test_planted` shows that the checkers would see it."""

from __future__ import annotations

import pytest

from tests.raft.explore import Explorer, explore

PHASES = 12


def test_any_order_of_events() -> None:
    elections, committed = explore(0, 300, PHASES, [])
    # Were the runs to stand still, they would find nothing.
    assert elections > 2 * 300
    assert committed > 6 * 300


def test_a_seed_is_one_run() -> None:
    runs = [Explorer(4711, []) for _ in range(2)]
    for run in runs:
        run.run(PHASES)
    first, second = [[repr(node.raft) for node in run.nodes] for run in runs]
    assert first == second


@pytest.mark.soak("the first 300 seeds draw all kinds of events; these go further")
def test_any_order_of_events_further() -> None:
    explore(1000, 20_000, PHASES, [])
