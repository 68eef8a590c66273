"""Each planted bug is found; the same seed is clean without it.

The seeds are the first, counted from 0, that find the bug. Compiled, `explore` runs some 1,800 of them in a second of
processor time, `timed` 110 (`python -m scripts.raftmodel --plant NAME`). A change of the package or of the models moves
them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from folkmoot.raft.planted import PLANTED
from tests.raft.explore import Explorer
from tests.raft.scenario import play
from tests.raft.timed import Timed
from tests.raft.world import Violation

PHASES = 12
SCENARIOS = Path(__file__).parent / "scenarios"

EXPLORED = {
    "append_unsaved": 0,
    "changes_overlap": 158,
    "commit_old_term": 1590,  # in one run of scenarios/figure-8-planted.txt
    "count_unsaved": 2214,
    "learner_counts": 2708,
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
    "answers_late": 41,
    "campaigns_unsaved": 5,
    "check_quorum_off": 21,
    "drops_late_votes": 15,
    "forgets_promise": 0,
    "keeps_stalled": 2,
    "leader_moves": 3,
    "lease_after_transfer": 31,
    "no_fetch": 22,
    "no_pre_vote": 4,
    "own_promise": 1,
    "quiet_while_sending": 4,
    "trusts_voters": 85,
    "void_term": 2349,
}
"""Bugs that need clocks and topologies."""

PLAYED = {"change_early": ("erratum-of-2015-planted", "erratum-of-2015")}
"""Bugs that no seed below 14,000 shows: a scenario that does, and the same one without the bug."""


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
    assert sorted([*EXPLORED, *TIMED, *PLAYED]) == sorted(PLANTED)


@pytest.mark.parametrize("name", PLAYED)
def test_a_scenario_shows_a_planted_bug(name: str) -> None:
    planted, clean = [play(SCENARIOS / f"{file}.txt") for file in PLAYED[name]]
    assert f"plant {name}" in planted
    assert "Violation" in planted
    assert "Violation" not in clean


@pytest.mark.parametrize("name", [*EXPLORED, *TIMED])
def test_a_planted_bug_is_found(name: str) -> None:
    seed = {**EXPLORED, **TIMED}[name]
    assert is_found(name, seed, [name])
    assert not is_found(name, seed, [])


def test_the_first_seed_is_the_first() -> None:
    assert first_seed("vote_unsaved", 100) == EXPLORED["vote_unsaved"]
