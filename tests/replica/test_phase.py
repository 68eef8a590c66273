"""The phases of a leader: what may follow what."""

from __future__ import annotations

import pytest

from folkmoot.peer.config import ClusterConfig
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.phase import ADOPTED, BEGINS, CANNOT_READ, IDLE, LOSES, MERGING, OPEN, SHARED, TAKING, TRANSITIONS
from folkmoot.replica.replica import LEADER, REPLICA, Replica
from folkmoot.store.memory import MemoryStore
from folkmoot.store.writer import Writer

ALL = [IDLE, TAKING, ADOPTED, MERGING, SHARED, OPEN]


def replica_in(phase: int, role: int = LEADER) -> Replica:
    replica = Replica(0, ReplicaContext("n1", 1, ClusterConfig(), MemoryStore(), Writer(1, 1)))
    replica.phase, replica.role = phase, role
    return replica


def reached(start: int, *without: int, anew: bool = True) -> set[int]:
    """The phases that can follow a phase, however late, if these are left out; anew: also in a later view."""
    steps = [(phase, after) for (phase, event), after in TRANSITIONS.items() if anew or event != BEGINS]
    found = {start}
    while True:
        more = {after for phase, after in steps if phase in found and after not in without} - found
        if not more:
            return found
        found |= more


@pytest.mark.parametrize("phase", ALL)
def test_a_phase_follows_as_the_table_says_and_nothing_else(phase: int) -> None:
    for event in range(LOSES + 1, CANNOT_READ + 1):
        replica = replica_in(phase)
        if (phase, event) in TRANSITIONS:
            replica.go(event)
            assert replica.phase == TRANSITIONS[phase, event]
        else:
            with pytest.raises(AssertionError, match=r"a leader that is .* never"):
                replica.go(event)
            assert replica.phase == phase
    replica = replica_in(phase, REPLICA)
    replica.go(LOSES)
    assert replica.phase == IDLE


def test_nobody_serves_without_a_takeover() -> None:
    assert OPEN in reached(IDLE)
    assert OPEN not in reached(IDLE, TAKING)
    assert OPEN in reached(MERGING, anew=False)
    assert OPEN not in reached(MERGING, SHARED, anew=False), "what was merged is committed first"


def test_only_a_leader_takes_over() -> None:
    with pytest.raises(AssertionError, match="is led by"):
        replica_in(IDLE, REPLICA).go(BEGINS)
