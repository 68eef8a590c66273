"""The log: what is durable when writes overtake each other, where logs may match, what compaction keeps."""

from __future__ import annotations

import pytest

from folkmoot.raft.configuration import ADD_LEARNER, Change, Configuration, encode_change
from folkmoot.raft.entry import CHANGE, DATA, Entry, Snapshot, founding
from folkmoot.raft.log import Log

VOTERS = Configuration([1, 2, 3], [])


def entries(first: int, *terms: int) -> list[Entry]:
    """Entries from an index on, of these terms."""
    return [Entry(first + at, term, DATA, b"") for at, term in enumerate(terms)]


def log_of(*terms: int) -> Log:
    """A durable log behind the founding snapshot: its first entry has index 2."""
    return Log(founding([1, 2, 3]), entries(2, *terms), 1, 1)


def test_a_write_that_was_replaced_makes_nothing_durable() -> None:
    # Index 4 is written in term 1, replaced in term 2, and the first write ends last: it is another entry (ABA).
    log = log_of(1, 1)
    log.append(entries(4, 1, 1))
    log.hand_over(1)
    log.truncate(4)
    log.append(entries(4, 2))
    log.hand_over(2)
    log.saved(1)
    assert log.durable == 3
    log.saved(2)
    assert log.durable == 4


def test_what_is_cut_off_is_no_longer_durable() -> None:
    log = log_of(1, 1, 1)
    assert log.durable == 4
    log.truncate(3)
    assert log.durable == 2
    assert log.hand_over(1).truncate == 3


def test_what_is_committed_stays() -> None:
    log = log_of(1, 1, 1)
    log.commit_to(3)
    with pytest.raises(AssertionError, match="what is committed stays"):
        log.truncate(3)
    with pytest.raises(AssertionError, match="only what is in the log"):
        log.commit_to(9)
    with pytest.raises(AssertionError, match="never goes back"):
        log.restore(Snapshot(3, 1, VOTERS, b""))


def test_what_is_applied_is_durable() -> None:
    log = log_of(1)
    log.append(entries(3, 1, 1))
    log.hand_over(1)
    log.commit_to(4)
    assert [entry.index for entry in log.take_applicable(1000)] == [2]
    log.saved(1)
    assert [entry.index for entry in log.take_applicable(1000)] == [3, 4]


def test_entries_that_are_there_are_skipped() -> None:
    log = log_of(1, 1, 2)
    log.merge(entries(2, 1, 1))
    assert log.last_index() == 4
    assert log.is_saved()
    log.merge(entries(2, 1, 1, 3))
    assert (log.last_index(), log.last_term()) == (4, 3)
    assert log.hand_over(1).truncate == 4


@pytest.mark.parametrize(
    ("index", "term", "expected"),
    [(9, 9, 9), (9, 5, 9), (9, 4, 7), (9, 3, 5), (9, 1, 2), (20, 9, 9), (4, 3, 4), (9, 0, 1)],
)
def test_where_logs_may_match(index: int, term: int, expected: int) -> None:
    # index: 2 3 4 5 6 7 8 9
    log = log_of(1, 3, 3, 3, 4, 4, 5, 5)
    assert log.hint(index, term) == expected


def test_a_configuration_ends_with_its_entry() -> None:
    log = log_of(1)
    after = Configuration([1, 2, 3], [4])
    log.append([Entry(3, 1, CHANGE, encode_change(Change(ADD_LEARNER, 4, after, b"")))])
    assert log.configuration().learners == [4]
    assert log.has_pending_change()
    log.truncate(3)
    assert log.configuration().learners == []


def test_since_which_term_its_voters_vote() -> None:
    def change(index: int, term: int, voters: list[int], learners: list[int]) -> Entry:
        change = Change(ADD_LEARNER, 9, Configuration(voters, learners), b"")
        return Entry(index, term, CHANGE, encode_change(change))

    log = log_of(1)
    assert log.voters_term() == 1, "since the snapshot"
    log.append([change(3, 3, [1], []), *entries(4, 4), change(5, 4, [1], [2]), *entries(6, 5)])
    assert log.voters_term() == 3, "learners do not vote"
    log.hand_over(1)
    log.saved(1)
    log.commit_to(6)
    log.take_applicable(1000)
    log.compact(Snapshot(4, 4, Configuration([1], []), b"state"), 4)
    assert log.voters_term() == 4, "what is compacted may be as late as the snapshot"
    log.append([change(7, 6, [1, 2], [])])
    assert log.voters_term() == 6


def test_compaction_keeps_what_is_asked_for() -> None:
    log = log_of(1, 1, 1, 1)
    log.commit_to(5)
    log.take_applicable(1000)
    log.compact(Snapshot(4, 1, VOTERS, b"state"), 3)
    assert (log.first, log.term_at(2), log.term_at(3), log.last_index()) == (3, -1, 1, 5)
    log.compact(Snapshot(5, 1, VOTERS, b"state"), 99)
    assert (log.first, log.term_at(5), log.last_index(), log.entries) == (6, 1, 5, [])
    unsaved = log.hand_over(1)
    assert (unsaved.snapshot, unsaved.drop, unsaved.first) == (True, True, 0)


def test_a_snapshot_of_another_member_replaces_the_log() -> None:
    log = log_of(1, 1)
    log.restore(Snapshot(9, 4, VOTERS, b"state"))
    assert (log.first, log.last_index(), log.last_term(), log.commit, log.applied) == (10, 9, 4, 9, 9)
    assert log.durable == 0
    assert log.hand_over(1).truncate == 1
    log.saved(1)
    assert log.durable == 9
