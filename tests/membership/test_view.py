"""Views: members sorted by id, found by id."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.channel.forward_sender import first_number
from folkmoot.kernel.pack import u64
from folkmoot.membership.view import View
from folkmoot.membership.view_format import decode_view, encode_view
from folkmoot.peer.member import ACTIVE, JOINING, LEAVING, Member
from folkmoot.store.epoch import COUNTER_MAX, counter_of, make_epoch, tag_of
from folkmoot.store.origin import NUMBER_BITS


def member(node_id: str, state: int = ACTIVE) -> Member:
    return Member(node_id, 3, "192.0.2.1:1", "zone", state)


def test_members_are_sorted_by_id_whatever_their_order() -> None:
    view = View(7, [member("b"), member("c", JOINING), member("a")])
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


def full_view() -> View:
    members = [member("a"), member("b", LEAVING), member("c", JOINING)]
    absent = [Member("z", 1 << 40, "[2001:db8::1]:7", "zäne", ACTIVE, 1, 3, "0.2.0")]
    return View(
        make_epoch(7, "a"),
        members,
        [["a", "b"], ["b"], []],
        [["c"], [], ["a"]],
        ["a", "b", "z"],
        absent,
        [("q", 4)],
        {2: ["a"]},
        {"a": 7, "b": 0, "c": 1 << 50},
    )


def text_of(view: View) -> str:
    people = [
        (
            one.node_id,
            one.incarnation,
            one.address,
            one.zone,
            one.state,
            one.wire_min,
            one.wire_max,
            one.software,
        )
        for one in [*view.members, *view.absent]
    ]
    return repr((view.epoch, people, view.replicas, view.learners, view.known, view.refused, view.branches, view.bases))


def test_a_view_comes_back_from_its_bytes_also_with_more_behind() -> None:
    view = full_view()
    assert text_of(decode_view(encode_view(view))) == text_of(view)
    assert text_of(decode_view(encode_view(view) + b"\x03new")) == text_of(view)


def test_a_branch_of_a_node_that_does_not_learn_the_partition_is_nonsense() -> None:
    view = full_view()
    view.branches = {1: ["a"]}
    with pytest.raises(ValueError, match="branch"):
        decode_view(encode_view(view))


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_view_is_a_value_error_or_a_view(position: int, byte: int) -> None:
    data = bytearray(encode_view(full_view()))
    data[position % len(data)] = byte
    with contextlib.suppress(ValueError):
        decode_view(bytes(data))
    with contextlib.suppress(ValueError):
        decode_view(bytes(data[: position % len(data)]))


def test_numbers_of_requests_fit_in_64_bits_in_the_last_view_too() -> None:
    assert len(u64(first_number(make_epoch(COUNTER_MAX, "n")) + (1 << NUMBER_BITS) - 1)) == 8
    with pytest.raises(AssertionError):
        make_epoch(COUNTER_MAX + 1, "n")


def test_epochs_are_ordered_by_counter_and_differ_by_proposer() -> None:
    assert make_epoch(2, "a") > make_epoch(1, "b")
    assert make_epoch(1, "a") != make_epoch(1, "b")
    assert counter_of(make_epoch(5, "x")) == 5
    assert tag_of(make_epoch(5, "x")) == tag_of(make_epoch(6, "x"))


@pytest.mark.parametrize(
    ("here", "known", "majority", "or_tie"),
    [
        ("ab", "ab", True, True),
        ("a", "ab", False, True),
        ("b", "ab", False, False),
        ("abc", "abcde", True, True),
        ("ab", "abcde", False, False),
        ("cd", "abcd", False, False),
        ("ad", "abcd", False, True),
        ("bcd", "abcd", True, True),
    ],
)
def test_a_majority_is_of_the_last_full_membership(here: str, known: str, majority: bool, or_tie: bool) -> None:
    view = View(1, [member(one) for one in here], known=list(known))
    assert view.has_majority() is majority
    assert view.has_majority_or_tie() is or_tie


def test_a_view_says_when_those_who_are_away_were_last_seen() -> None:
    view = View(9, [member("a")], [["a"]], [[]], ["a", "b", "c"])
    view.lasts = {"b": [4, 7]}
    back = decode_view(encode_view(view))
    assert back.lasts == {"b": [4, 7]}
    assert back.anchors() == [0, 4, 7], "nobody knows of c"
    assert View(9, [member("a")], [["a"]], [[]], ["a"]).anchors() == []


def test_a_view_says_who_was_forgotten_and_begins_anew_in_it() -> None:
    view = View(9 << 24, [member("a"), member("b")], [["a"]], [[]], ["a"])
    view.forgotten = [("b", 7), ("z", 3)]
    back = decode_view(encode_view(view))
    assert back.forgotten == [("b", 7), ("z", 3)]
    before = View(8 << 24, [member("b")])
    assert back.begins_anew("b", before) is back.begins_anew("b", None) is True
    assert back.begins_anew("a", before) is False
    before.forgotten = [("b", 7)]
    assert back.begins_anew("b", before) is False, "it has done so"
    before.forgotten = [("b", 6)]
    assert back.begins_anew("b", before) is True, "it was forgotten twice"
