"""Views: members sorted by id, found by id."""

from __future__ import annotations

import pytest

from folkmoot.channel.forward_sender import first_number
from folkmoot.kernel.pack import u64
from folkmoot.membership.view import View
from folkmoot.peer.member import ACTIVE, LEAVING, Member
from folkmoot.store.epoch import COUNTER_MAX, counter_of, make_epoch, tag_of
from folkmoot.store.origin import NUMBER_BITS


def member(node_id: str, state: int = ACTIVE) -> Member:
    return Member(node_id, 3, "192.0.2.1:1", "zone", state)


def test_members_are_sorted_by_id_whatever_their_order() -> None:
    view = View(7, [member("b"), member("c", LEAVING), member("a")])
    assert [one.node_id for one in view.members] == ["a", "b", "c"]
    assert view.epoch == 7


def test_a_member_is_found_by_its_id() -> None:
    view = View(1, [member("b"), member("a")])
    found = view.member("b")
    assert found is not None
    assert found.node_id == "b"
    assert view.member("x") is None


def test_a_view_can_be_read() -> None:
    text = repr(View(2, [member("a")]))
    assert "epoch=2" in text
    assert "'a'" in text


def test_what_a_lineage_shares_are_its_own_changes_and_those_of_ancestors_before_it_parted() -> None:
    view = View(make_epoch(30, "fork"), [member("a")])
    view.lineage = [make_epoch(20, "trunk"), make_epoch(10, "root")]
    shared = [(1, "fork"), (40, "fork"), (20, "trunk"), (10, "root")]
    assert [view.shares(make_epoch(counter, lineage)) for counter, lineage in shared] == [True] * 4
    apart = [(21, "trunk"), (11, "root"), (1, "other")]
    assert [view.shares(make_epoch(counter, lineage)) for counter, lineage in apart] == [False] * 3


def test_numbers_of_requests_fit_in_64_bits_in_the_last_view_too() -> None:
    assert len(u64(first_number(make_epoch(COUNTER_MAX, "n")) + (1 << NUMBER_BITS) - 1)) == 8
    with pytest.raises(AssertionError):
        make_epoch(COUNTER_MAX + 1, "n")


def test_epochs_are_ordered_by_counter_and_differ_by_lineage() -> None:
    assert make_epoch(2, "a") > make_epoch(1, "b")
    assert make_epoch(1, "a") != make_epoch(1, "b")
    assert counter_of(make_epoch(5, "x")) == 5
    assert tag_of(make_epoch(5, "x")) == tag_of(make_epoch(6, "x"))


def test_a_view_says_when_those_who_are_away_were_last_seen() -> None:
    view = View(9, [member("a")], [["a"]], [[]], ["a", "b", "c"])
    view.lasts = {"b": [4, 7]}
    assert view.anchors() == [0, 4, 7], "nobody knows of c"
    assert View(9, [member("a")], [["a"]], [[]], ["a"]).anchors() == []
