"""Each planted bug is found; the same seed is clean without it.

The seeds are the first, counted from 0, that find the bug. Compiled, `explore` runs some 1,800 of them in a second of
processor time, `timed` 110 (`python -m scripts.raftmodel --plant NAME`). A change of the package or of the models moves
them.
"""

from __future__ import annotations

import pytest

from folkmoot.raft.planted import PLANTED
from tests.raft.explore import Explorer
from tests.raft.timed import Timed
from tests.raft.world import Violation

PHASES = 12

EXPLORED = {
    "append_unsaved": 0,
    "change_early": 542,  # in one run of scenarios/erratum-of-2015-planted.txt
    "changes_overlap": 158,
    "commit_old_term": 12762,  # in one run of scenarios/figure-8-planted.txt
    "count_unsaved": 2214,
    "learner_counts": 310,
    "read_alone": 7,
    "read_before_noop": 12,
    "snapshot_back": 34,
    "stale_match": 1,
    "truncate_committed": 1,
    "vote_against_log": 7,
    "vote_twice": 0,
    "vote_unsaved": 45,
}
"""Bugs that any order of events shows."""

TIMED = {
    "check_quorum_off": 2,
    "leader_moves": 3,
    "lease_after_transfer": 8,
    "no_fetch": 22,
    "no_pre_vote": 8,
    "void_term": 428,
}
"""Bugs that need clocks and topologies."""


def is_found(name: str, seed: int, planted: list[str]) -> bool:
    """Tell whether a run ends with a broken promise, or with an invariant that does not hold."""
    try:
        if name in TIMED:
            Timed(seed, planted).run()
        else:
            Explorer(seed, planted).run(PHASES)
    except (Violation, AssertionError, KeyError):
        return True
    return False


def first_seed(name: str, limit: int) -> int:
    """Return the first seed that finds a bug, for the tables above; -1 if none below `limit` does."""
    for seed in range(limit):
        if is_found(name, seed, [name]):
            return seed
    return -1


def test_every_bug_is_sought() -> None:
    assert sorted([*EXPLORED, *TIMED]) == sorted(PLANTED)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    seed = {**EXPLORED, **TIMED}[name]
    assert is_found(name, seed, [name])
    assert not is_found(name, seed, [])


def test_the_first_seed_is_the_first() -> None:
    assert first_seed("vote_unsaved", 100) == EXPLORED["vote_unsaved"]
