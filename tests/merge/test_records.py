"""Records of a stream go through several merges: each comes once, and keeps the offset at which it was read."""

from __future__ import annotations

import pytest

from folkmoot.kernel.errors import CorruptStore
from folkmoot.store.key import chunk_key, leftover_key
from tests.merge.copies import TRUNK, begin


@pytest.mark.parametrize("opened", [False, True])
def test_records_of_the_trunk_keep_their_offsets_through_two_forks(opened: bool) -> None:
    """A fork puts them back to their offsets, in chunks of its own, and is merged into one with an older copy.

    opened: they are not left over there any more.
    """
    trunk = begin("old")
    first = trunk.part("first", 9)
    first.append("first's")
    second = trunk.part("second", 8)
    second.append("second's")
    trunk.append("given 1", "given 2")
    first.take(trunk)
    if opened:
        first.open()
        assert first.texts() == ["old", "given 1", "given 2", "first's"]
        for text in ("later", "latest"):
            first.open()  # its next records are in another chunk
            first.append(text)
    second.take(first)
    second.open()
    assert second.texts() == ["old", "given 1", "given 2", "second's", *first.texts()[3 if opened else 1 :]]


@pytest.mark.parametrize("opened", [False, True])
def test_records_that_the_trunk_has_from_a_branch_keep_the_offsets_that_they_got_there(opened: bool) -> None:
    trunk = begin("old")
    branch, first, second = trunk.part("branch", 7), trunk.part("first", 9), trunk.part("second", 8)
    for fork, text in ((branch, "branch's"), (first, "first's"), (second, "second's")):
        fork.append(text)
    trunk = trunk.part(TRUNK, 10)
    trunk.append("given")
    trunk.take(branch)
    trunk.open()
    assert trunk.texts() == ["old", "given", "branch's"]
    first.take(trunk)
    if opened:
        first.open()
        assert first.texts() == ["old", "given", "branch's", "first's"]
    second.take(first)
    second.open()
    assert second.texts() == ["old", "given", "branch's", "second's", "first's"]
    second.take(branch)
    second.open()
    assert second.texts() == ["old", "given", "branch's", "second's", "first's"]


def test_records_from_a_branch_that_are_rewritten_keep_the_offsets_that_the_trunk_gave_them() -> None:
    """They are in two chunks, and behind them is a record that was not committed."""
    trunk = begin("old")
    branch, second = trunk.part("branch", 7), trunk.part("second", 8)
    large = "." * 262_060
    branch.append(large, "small")
    second.append("second's")
    trunk = trunk.part(TRUNK, 10)
    trunk.take(branch)
    trunk.open()
    assert trunk.spans() == [(1, 3, 1)]
    successor = trunk.part(TRUNK, 11)
    trunk.append("not committed")
    first = trunk.part("first", 12)
    successor.append("given")
    first.take(successor)
    first.open()
    assert first.texts() == ["old", large, "small", "given", "not committed"]
    assert first.spans() == [(1, 2, 1), (2, 3, 2), (3, 4, 3), (4, 5, 3)]
    second.take(first)
    second.open()
    assert second.texts() == ["old", large, "small", "given", "second's", "not committed"]
    second.take(branch)
    second.open()
    assert second.texts() == ["old", large, "small", "given", "second's", "not committed"]


def test_a_copy_of_the_trunk_in_a_fork_shows_which_records_from_a_branch_have_offsets() -> None:
    """The fork has gone on from there: it has not rewritten them."""
    trunk = begin("old")
    branch, second = trunk.part("branch", 7), trunk.part("second", 8)
    branch.append("branch's")
    second.append("second's")
    trunk = trunk.part(TRUNK, 10)
    trunk.append("given")
    trunk.take(branch)
    trunk.open()
    first = trunk.part("first", 11)
    first.append("first's")
    second.take(first)
    second.open()
    assert second.texts() == ["old", "given", "branch's", "second's", "first's"]


@pytest.mark.parametrize("direct", [False, True])
def test_what_is_rewritten_with_records_of_the_trunk_is_still_known(direct: bool) -> None:
    """A fork has the end of a copy that was not committed, in one chunk with records that were.

    direct: the other fork has taken in a copy of the trunk before.
    """
    trunk = begin("old")
    second = trunk.part("second", 8)
    second.append("second's")
    trunk.append("given 1")
    successor = trunk.part(TRUNK, 3)
    trunk.append("not committed")
    first = trunk.part("first", 9)
    first.append("first's")
    successor.append("given 2")
    first.take(successor)
    first.open()
    assert first.texts() == ["old", "given 1", "given 2", "not committed", "first's"]
    if direct:
        second.take(successor)
    second.take(first)
    second.open()
    assert second.texts() == ["old", "given 1", "given 2", "second's", "not committed", "first's"]
    for copy in (successor, trunk, first):
        second.take(copy)
        second.open()
    assert second.texts() == ["old", "given 1", "given 2", "second's", "not committed", "first's"]


@pytest.mark.parametrize("opened", [False, True])
def test_records_of_a_fork_that_were_moved_come_once(opened: bool) -> None:
    """Another fork has taken in a copy in which they were at other offsets, and not all of them yet."""
    trunk = begin("old")
    first, second = trunk.part("first", 9), trunk.part("second", 8)
    first.append("first's 1")
    second.append("second's")
    second.take(first)
    if opened:
        second.open()
    first.append("first's 2")
    trunk.append("given 1", "given 2")
    first.take(trunk)
    first.open()
    assert first.texts() == ["old", "given 1", "given 2", "first's 1", "first's 2"]
    second.take(first)
    second.open()
    assert second.texts() == ["old", "given 1", "given 2", "second's", "first's 1", "first's 2"]


@pytest.mark.parametrize("first_opened", [False, True])
def test_of_two_copies_that_parted_the_records_that_both_have_come_once(first_opened: bool) -> None:
    """The leader that goes on rewrites them in a chunk with later ones; the other copy got other records."""
    trunk = begin("old")
    branch = trunk.part("branch", 5)
    branch.append("both")
    other = branch.part("other", 6)
    other.append("other's")
    branch.append("branch's")
    trunk.take(other)
    if first_opened:
        trunk.open()
    trunk.take(branch)
    trunk.open()
    assert trunk.texts() == ["old", "both", "other's", "branch's"]


@pytest.mark.parametrize("opened", [False, True])
def test_of_a_longer_copy_in_another_branch_the_rest_comes(opened: bool) -> None:
    trunk = begin("old")
    branch = trunk.part("branch", 5)
    first = trunk.part("first", 6)
    branch.append("both")
    trunk.take(branch)
    branch.append("branch's")
    first.take(branch)
    if opened:
        first.open()
    trunk.take(first)
    trunk.open()
    assert trunk.texts() == ["old", "both", "branch's"]
    assert trunk.spans() == [(1, 2, 1), (2, 3, 2)]


def test_records_that_this_side_had_before_it_parted_from_a_branch_do_not_come_in_another_one() -> None:
    trunk = begin("old")
    branch = trunk.part("branch", 5)
    branch.append("both")
    mine = branch.part("mine", 6)
    mine.append("mine")
    branch.append("branch's")
    other = trunk.part("other", 7)
    other.append("other's")
    other.take(branch)
    other.open()
    assert other.texts() == ["old", "other's", "both", "branch's"]
    mine.take(other)
    mine.open()
    assert mine.texts() == ["old", "both", "mine", "other's", "branch's"]


def test_a_row_that_is_cut_short_is_no_origin() -> None:
    trunk = begin("old")
    first = trunk.part("first", 6)
    first.writer.put(0, leftover_key(chunk_key(0, b"s", 0, 3), 5, False), b"?")
    first.end()
    with pytest.raises(CorruptStore):
        trunk.take(first)
    with pytest.raises(CorruptStore):
        first.open()


def big(text: str) -> str:
    """Return a record in a chunk of its own: nothing is joined with it."""
    return text + "." * 40_000


def test_records_keep_their_offsets_where_retention_has_removed_all_that_a_fork_had_in_common() -> None:
    trunk = begin("old")
    fork = trunk.part("fork", 9)
    fork.append("fork's 1")
    fork.append("fork's 2")
    trunk.append(big("gone 1"), big("gone 2"))
    trunk.expire()
    trunk.append("given 1")
    trunk.append("given 2")
    fork.take(trunk)
    fork.open()
    assert fork.offsets() == {3: "given 1", 4: "given 2", 5: "fork's 1", 6: "fork's 2"}
    fork.append("next")
    again = fork.part("fork", 10)
    assert again.offsets() == {3: "given 1", 4: "given 2", 5: "fork's 1", 6: "fork's 2", 7: "next"}


@pytest.mark.parametrize("own", [0, 1, 3])
def test_no_offset_is_given_again_where_retention_has_emptied_the_log(own: int) -> None:
    trunk = begin("old")
    fork = trunk.part("fork", 9)
    for number in range(own):
        fork.append(f"fork's {number}")
    trunk.append("gone 1", "gone 2")
    trunk.expire()
    assert trunk.offsets() == {}
    fork.take(trunk)
    fork.open()
    fork.append("next")
    expected = [*[f"fork's {number}" for number in range(own)], "next"]
    assert fork.offsets() == dict(enumerate(expected, 3))


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("emptied", [False, True])
def test_no_offset_is_given_again_by_a_fork_that_knows_the_trunk_from_another_one(opened: bool, emptied: bool) -> None:
    trunk = begin("old")
    first, second = trunk.part("first", 9), trunk.part("second", 8)
    first.append("first's")
    second.append("second's")
    trunk.append(big("gone"))
    trunk.expire()
    if not emptied:
        trunk.append("given")
    first.take(trunk)
    if opened:
        first.open()
    second.take(first)
    second.open()
    given = [] if emptied else ["given"]
    assert second.offsets() == dict(enumerate([*given, "second's", "first's"], 2))


def test_the_rest_of_the_trunk_keeps_its_offsets_although_retention_has_gone_on_there() -> None:
    """A shorter copy was taken in before; retention has removed part of what it had, and later all of it."""
    trunk = begin("old")
    fork = trunk.part("fork", 9)
    fork.append("fork's")
    trunk.append(big("given 1"))
    trunk.append(big("given 2"))
    fork.take(trunk)
    fork.open()
    assert fork.offsets() == {0: "old", 1: big("given 1"), 2: big("given 2"), 3: "fork's"}
    trunk.expire(2)
    trunk.append("given 3")
    fork.take(trunk)
    fork.open()
    assert fork.offsets() == {0: "old", 1: big("given 1"), 2: big("given 2"), 3: "given 3", 4: "fork's"}
    trunk.expire()
    trunk.append(big("given 4"))
    trunk.expire()
    fork.take(trunk)
    fork.open()
    assert fork.offsets() == {5: "fork's"}


def test_what_retention_has_removed_at_the_trunk_does_not_come_again() -> None:
    """The other side has it in a chunk with later records."""
    trunk = begin("old")
    branch = trunk.part("branch", 5)
    branch.append("both")
    mine = branch.part(TRUNK, 6)
    mine.expire()
    branch.append("branch's")
    mine.take(branch)
    mine.open()
    assert mine.offsets() == {2: "branch's"}


@pytest.mark.parametrize("own", [False, True])
def test_what_retention_has_removed_at_a_fork_does_not_come_again(own: bool) -> None:
    """The trunk has it in a chunk with later records, which keep their offsets."""
    trunk = begin("old")
    fork = trunk.part("fork", 9)
    fork.held = False
    fork.open()  # what it has was readable there, too
    fork.expire()
    fork.held = True
    fork.open()
    if own:
        fork.append("fork's")
    trunk.append("given")
    fork.take(trunk)
    fork.open()
    assert fork.offsets() == ({1: "given", 2: "fork's"} if own else {1: "given"})


def test_records_of_a_fork_come_although_retention_has_removed_later_ones_at_the_trunk() -> None:
    trunk = begin("old")
    fork = trunk.part("fork", 9)
    fork.append("fork's")
    trunk.append(big("gone"))
    trunk.expire()
    trunk.append("given")
    trunk.take(fork)
    trunk.open()
    assert trunk.offsets() == {2: "given", 3: "fork's"}
