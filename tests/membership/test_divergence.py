"""Where two copies parted: what one has of the other, with histories that forgot and that did not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.membership.divergence import NO, UNKNOWN, YES, has_change, includes, shared
from folkmoot.membership.history import extended, trimmed
from folkmoot.membership.holding import COMPLETE, FORGOTTEN, HISTORY_MAX, Holding

COPY = Holding(COMPLETE, 9, 30, [(3, 0), (5, 10), (9, 20)])
FORGOT = Holding(COMPLETE, 9, 30, [(3, 0), (FORGOTTEN, 10), (9, 20)])


@pytest.mark.parametrize(
    ("epoch", "seq", "has"),
    [
        (0, 0, YES),
        (3, 1, YES),
        (3, 10, YES),
        (3, 11, NO),  # epoch 3 ended with 10 here
        (5, 11, YES),
        (5, 10, NO),  # change 10 is of epoch 3
        (9, 30, YES),
        (9, 31, NO),
        (4, 5, NO),  # another branch
        (10, 5, NO),
    ],
)
def test_a_copy_has_the_changes_of_its_history(epoch: int, seq: int, has: int) -> None:
    assert has_change(COPY, epoch, seq) == has


@pytest.mark.parametrize(
    ("epoch", "seq", "has"),
    [
        (3, 10, YES),
        (5, 11, UNKNOWN),
        (3, 11, NO),  # it is told when epoch 3 ended
        (9, 21, YES),
        (5, 21, NO),
        (5, 5, NO),
    ],
)
def test_of_what_it_forgot_nobody_can_tell(epoch: int, seq: int, has: int) -> None:
    assert has_change(FORGOT, epoch, seq) == has


def test_a_history_that_does_not_lead_to_the_position_proves_nothing() -> None:
    odd = Holding(COMPLETE, 9, 30, [])
    assert includes(odd, COPY) == YES  # they are at the same place
    assert includes(odd, Holding(COMPLETE, 5, 12, [(3, 0), (5, 10)])) == UNKNOWN
    assert has_change(odd, 5, 12) == UNKNOWN


def line(*spans: tuple[int, int]) -> Holding:
    """A copy with so many changes in each of these epochs."""
    history: list[tuple[int, int]] = []
    seq = 0
    for epoch, count in spans:
        history.append((epoch, seq))
        seq += count
    return Holding(COMPLETE, spans[-1][0], seq, history)


@pytest.mark.parametrize(
    ("holder", "other", "answer"),
    [
        (line((1, 5), (2, 5)), line((1, 5)), YES),
        (line((1, 5)), line((1, 5), (2, 5)), NO),
        (line((1, 5), (2, 5)), line((1, 5), (3, 1)), NO),
        (line((1, 5), (2, 5)), line((1, 6)), NO),  # a tail that nobody had taken over
        (line((1, 5)), line((2, 1)), NO),  # begun from nothing, both
        (line((1, 5)), Holding(COMPLETE, 0, 0, []), YES),
    ],
)
def test_with_whole_histories_the_answer_is_certain(holder: Holding, other: Holding, answer: int) -> None:
    assert includes(holder, other) == answer


LONG = line(*[(epoch, 2) for epoch in range(1, 60)])


def cut(copy: Holding, newest: int, *anchors: int, since: list[int] | None = None) -> Holding:
    return Holding(copy.state, copy.epoch, copy.seq, trimmed(copy.history, newest, list(anchors), since or []))


def test_who_was_away_for_long_is_known_for_what_he_is() -> None:
    stale = line(*[(epoch, 2) for epoch in range(1, 21)])
    branch = line(*[(epoch, 2) for epoch in range(1, 21)], (99, 3))
    tail = line(*[(epoch, 2) for epoch in range(1, 20)], (20, 3))
    for copy in (LONG, cut(LONG, 2, 20), cut(LONG, 2, 20, 41)):
        assert includes(copy, stale) == YES
        assert includes(copy, branch) == includes(copy, tail) == NO
        assert shared(copy, branch) == (40, True)
    assert len(cut(LONG, 2, 20, 41).history) == 12, "root, three each with what came next, and gaps"


def test_who_is_away_stays_known_when_another_one_has_come_back() -> None:
    stale = line(*[(epoch, 2) for epoch in range(1, 21)])
    copy = cut(cut(LONG, 2, 20, 41), 2, 20)
    assert includes(copy, stale) == YES
    assert copy.history == cut(LONG, 2, 20).history


def test_a_copy_in_sync_that_is_behind_is_known_for_what_it_is_wherever_it_has_gone_on_to() -> None:
    copy = cut(LONG, 2, since=[20])
    for newest in range(20, 60):
        assert includes(copy, line(*[(epoch, 2) for epoch in range(1, newest + 1)])) == YES
        assert includes(copy, line(*[(epoch, 2) for epoch in range(1, newest)], (newest, 1))) == YES
        assert includes(copy, line(*[(epoch, 2) for epoch in range(1, newest)], (newest, 3))) == NO
    assert copy.history == [(1, 0), (0, 2), *LONG.history[19:]]
    assert cut(LONG, 2, since=[58]).history == cut(LONG, 2).history, "one that is not behind needs nothing"


def test_without_an_anchor_nobody_can_tell_and_nobody_merges() -> None:
    stale = line(*[(epoch, 2) for epoch in range(1, 21)])
    branch = line(*[(epoch, 2) for epoch in range(1, 21)], (99, 3))
    assert includes(cut(LONG, 2), stale) == includes(cut(LONG, 2), branch) == UNKNOWN
    assert shared(cut(LONG, 2), stale) == (2, False)


def test_what_is_older_than_both_remember_is_common_to_both() -> None:
    one = line(*[(epoch, 2) for epoch in range(1, 60)], (70, 5))
    other = line(*[(epoch, 2) for epoch in range(1, 60)], (80, 5))
    assert shared(cut(one, 2), cut(other, 3)) == (118, True)
    assert has_change(cut(one, 2), 30, 60) == UNKNOWN, "the epoch alone does not say so"


def test_the_epoch_in_which_a_partition_was_begun_is_never_forgotten() -> None:
    assert cut(LONG, 2).history[0] == cut(cut(LONG, 5), 2).history[0] == LONG.history[0]


def test_where_an_anchor_is_not_known_all_is_kept() -> None:
    assert cut(LONG, 2, 0, 20).history == LONG.history


def test_a_history_has_an_end_and_who_is_older_is_unknown() -> None:
    history: list[tuple[int, int]] = []
    for epoch in range(1, HISTORY_MAX + 10):
        history = extended(history, epoch, epoch * 2 - 2)
        assert len(history) <= HISTORY_MAX
    copy = Holding(COMPLETE, HISTORY_MAX + 9, HISTORY_MAX * 2 + 18, history)
    assert includes(copy, line(*[(epoch, 2) for epoch in range(1, 21)])) == UNKNOWN
    assert includes(copy, line(*[(epoch, 2) for epoch in range(1, HISTORY_MAX)])) == YES


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=12),
    st.integers(0, 30),
    st.lists(st.integers(1, 3), max_size=6),
    st.integers(1, 4),
    st.lists(st.integers(1, 12), max_size=3),
    st.lists(st.integers(1, 12), max_size=2),
    st.integers(1, 4),
)
def test_what_is_certain_is_true_whatever_was_forgotten(
    counts: list[int], fork: int, more: list[int], newest: int, anchors: list[int], since: list[int], theirs: int
) -> None:
    """`counts`: changes in each epoch of one line; another one has its first `fork` changes, and then its own."""
    one = line(*[(epoch + 1, count) for epoch, count in enumerate(counts)])
    common = min(fork, one.seq)
    spans: list[tuple[int, int]] = []
    left = common
    for epoch, count in enumerate(counts):
        if left > 0:
            spans.append((epoch + 1, min(count, left)))
            left -= count
    spans.extend([(100 + number, count) for number, count in enumerate(more)])
    if not spans:
        return
    other = line(*spans)
    truth = YES if common == other.seq else NO
    assert includes(one, other) == truth
    mine, yours = cut(one, newest, *anchors, since=since), cut(other, theirs)
    assert includes(mine, yours) in (truth, UNKNOWN)
    seq, certain = shared(mine, yours)
    assert seq == common if certain else seq <= common
    for epoch, base in other.history:
        found = has_change(mine, epoch, base + 1)
        assert found in (UNKNOWN, YES if base + 1 <= common else NO)
