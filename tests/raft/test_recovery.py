"""A member starts again from what it can have written, and from nothing else."""

from __future__ import annotations

import pytest

from folkmoot.raft.configuration import ADD_LEARNER, PROMOTE, Change, Configuration, encode_change
from folkmoot.raft.entry import CHANGE, DATA, Entry, HardState, Snapshot, founding
from folkmoot.raft.error import DamagedState
from folkmoot.raft.recovery import Persisted, recover

FOUNDING = founding([1, 2, 3])


def entries(*positions: tuple[int, int]) -> list[Entry]:
    """Entries at (index, term)."""
    return [Entry(index, term, DATA, b"") for index, term in positions]


def change(index: int, term: int, kind: int, peer: int, configuration: Configuration) -> Entry:
    """An entry that changes the configuration."""
    return Entry(index, term, CHANGE, encode_change(Change(kind, peer, configuration, b"")))


def test_a_log_comes_back() -> None:
    persisted = Persisted(HardState(3, 2, 3), FOUNDING, entries((2, 2), (3, 2), (4, 3)))
    log = recover(persisted, 2)
    assert (log.first, log.last_index(), log.last_term()) == (2, 4, 3)
    assert (log.commit, log.applied, log.durable) == (3, 2, 4)


def test_the_commit_index_is_at_least_what_was_applied() -> None:
    assert recover(Persisted(HardState(2, 0, 1), FOUNDING, entries((2, 2), (3, 2))), 3).commit == 3


def test_entries_before_the_snapshot_may_be_kept() -> None:
    snapshot = Snapshot(4, 2, FOUNDING.configuration, b"")
    log = recover(Persisted(HardState(2, 0, 4), snapshot, entries((3, 2), (4, 2), (5, 2))), 0)
    assert (log.first, log.applied, log.last_index()) == (3, 4, 5)


def test_nothing_comes_back_as_nothing() -> None:
    log = recover(Persisted.nothing(), 0)
    assert (log.last_index(), log.configuration().voters) == (0, [])


@pytest.mark.parametrize(
    ("hard", "snapshot", "found", "applied", "text"),
    [
        (HardState(2, 0, 1), FOUNDING, entries((3, 2)), 0, "entries from 2 to 2 are missing"),
        (HardState(2, 0, 1), FOUNDING, entries((2, 2), (4, 2)), 0, "entry 4 stands behind entry 2"),
        (HardState(3, 0, 1), FOUNDING, entries((2, 3), (3, 2)), 0, "of term 2, the one before it of term 3"),
        (HardState(2, 0, 1), FOUNDING, entries((2, 3)), 0, "the member of term 2: it is lost or old"),
        (HardState(0, 0, 0), FOUNDING, [], 0, "the member of term 0"),
        (HardState(2, 0, 4), FOUNDING, entries((2, 2), (3, 2)), 0, "4 was committed: its end is lost"),
        (HardState(2, 0, 2), FOUNDING, entries((2, 2), (3, 2)), 4, "4 was applied: its end is lost"),
        (
            HardState(2, 0, 1),
            Snapshot(5, 2, FOUNDING.configuration, b""),
            entries((3, 2), (4, 2)),
            0,
            "before its snap",
        ),
        (HardState(2, 0, 1), Snapshot(3, 2, FOUNDING.configuration, b""), entries((3, 1)), 0, "its snapshot of term 2"),
        (HardState(2, 0, 1), Snapshot(3, 2, FOUNDING.configuration, b""), entries((4, 1)), 0, "before it of 2"),
        (HardState(2, 0, 0), Snapshot(0, 0, FOUNDING.configuration, b""), [], 0, "no member writes"),
        (HardState(2, 0, 0), Snapshot(2, 2, Configuration([], []), b""), [], 0, "no member writes"),
        (HardState(0, 3, 0), Snapshot(0, 0, Configuration([], []), b""), [], 0, "a vote without a term"),
        (
            HardState(2, 0, 1),
            FOUNDING,
            [change(2, 2, PROMOTE, 4, Configuration([1, 2, 3, 4], []))],
            0,
            "entry 2 changes voters",
        ),
        (
            HardState(2, 0, 1),
            FOUNDING,
            [change(2, 2, ADD_LEARNER, 4, Configuration([1, 2, 4], [3]))],
            0,
            "entry 2 changes voters",
        ),
        (HardState(2, 0, 1), FOUNDING, [Entry(2, 2, CHANGE, b"\x02\x07")], 0, "entry 2 is damaged"),
    ],
)
def test_damage(hard: HardState, snapshot: Snapshot, found: list[Entry], applied: int, text: str) -> None:
    with pytest.raises(DamagedState, match=text):
        recover(Persisted(hard, snapshot, found), applied)
