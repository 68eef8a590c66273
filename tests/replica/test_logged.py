"""Replication with roles from a configuration log: what was committed stays, through ends, cuts and lost disks."""

from __future__ import annotations

import pytest

from tests.harness.soak import SOAK
from tests.replica.logged import run_logged

SEEDS = range(2000 if SOAK else 48)
SEEDS_PER_TEST = 8


@pytest.mark.parametrize("first", range(0, len(SEEDS), SEEDS_PER_TEST))
def test_nothing_committed_is_lost(first: int) -> None:
    commits = 0
    for seed in range(first, first + SEEDS_PER_TEST):
        commits += run_logged(seed, lossy=seed % 4 == 0).commits
    assert commits > 100


def test_a_seed_gives_the_same_run_again() -> None:
    one, other = run_logged(5), run_logged(5)
    assert (one.log, one.commits, one.now) == (other.log, other.commits, other.now)


# Within how many seeds each is found.
PLANTED = [("early_ack", 3), ("gaps", 8), ("any_epoch", 12), ("leader_alone", 3), ("untouched", 80)]


@pytest.mark.parametrize(("planted", "seeds"), PLANTED)
def test_planted_bugs_are_found(planted: str, seeds: int) -> None:
    for seed in range(seeds):
        try:
            run_logged(seed, planted, lossy=seed % 4 == 0)
        except AssertionError:  # of the oracle, or of the code itself
            return
    pytest.fail(f"{planted} was not found in {seeds} seeds")
