"""Copies that a view goes on without: who has them, when they are back, when they are lost, and who is told."""

from __future__ import annotations

from folkmoot.membership.absence import losses_of, news_of
from folkmoot.membership.holding import COMPLETE, DAMAGED, NONE, PARTIAL, Holding
from folkmoot.membership.loss import LOSSES_MAX, Loss, Losses, decode_losses, encode_losses
from folkmoot.membership.view import View
from folkmoot.membership.view_format import decode_view, encode_view
from folkmoot.peer.cursor import put_bytes
from folkmoot.peer.member import ACTIVE, Member

EMPTIED = 1 << 39  # a number that a disk without any began with
NOW = 1_700_000_000_000_000


def view_of(epoch: int, members: str, replicas: list[str], known: str = "abc", start: int = 1) -> View:
    """A view whose replicas are written as letters: "ab" are a, who leads, and b."""
    everybody = [Member(name, start, f"{name}:1", name, ACTIVE) for name in members]
    return View(epoch, everybody, [list(ids) for ids in replicas], known=list(known))


def held(*states: int) -> list[Holding]:
    return [Holding(state, 1 if state else 0, 0, []) for state in states]


def test_nothing_is_missing_while_one_copy_is_here() -> None:
    top = view_of(1, "abc", ["ab", "bc"])
    after = view_of(2, "bc", ["bc", "bc"])
    found = losses_of(after, [top], {"b": held(COMPLETE, COMPLETE), "c": held(NONE, COMPLETE)}, NOW)
    assert (found.missing, found.past) == ({}, [])


def test_a_copy_that_was_just_filled_counts() -> None:
    top = view_of(1, "ab", ["a", "b"], "ab")
    top.learners[0] = ["b"]
    after = view_of(2, "b", ["b", "b"], "ab")
    assert losses_of(after, [top], {"b": held(COMPLETE, COMPLETE)}, NOW).missing == {}
    assert losses_of(after, [top], {"b": held(PARTIAL, COMPLETE)}, NOW).missing == {0: ["a"]}


def test_an_old_copy_of_a_node_without_a_role_is_none() -> None:
    top = view_of(1, "abc", ["a"])
    after = view_of(2, "bc", ["b"])
    assert losses_of(after, [top], {"b": held(COMPLETE), "c": held(NONE)}, NOW).missing == {0: ["a"]}


def test_what_is_missing_stays_so_until_its_node_is_back_with_it() -> None:
    first = view_of(1, "ab", ["a", "b"], "ab")
    second = view_of(2, "b", ["b", "b"], "ab")
    second.losses = losses_of(second, [first], {"b": held(NONE, COMPLETE)}, NOW)
    assert second.losses.missing == {0: ["a"]}
    third = view_of(3, "bc", ["bc", "b"])
    third.losses = losses_of(third, [second], {"b": held(COMPLETE, COMPLETE), "c": held(NONE, NONE)}, NOW)
    assert third.losses.missing == {0: ["a"]}, "others that come have not what it had"
    fourth = view_of(4, "abc", ["a", "b"])
    fourth.losses = losses_of(fourth, [third], {"a": held(COMPLETE), "b": held(COMPLETE, COMPLETE)}, NOW)
    assert (fourth.losses.missing, fourth.losses.past) == ({}, [])
    assert [event.kind for event in news_of(third, fourth)] == ["copies_back"]


def test_who_comes_back_with_an_empty_disk_has_lost_it() -> None:
    first = view_of(1, "ab", ["a", "b"], "ab")
    second = view_of(2, "b", ["b", "b"], "ab")
    second.losses = losses_of(second, [first], {"b": held(NONE, COMPLETE)}, NOW)
    third = view_of(3, "ab", ["b", "b"], "ab", start=EMPTIED)
    third.losses = losses_of(third, [second], {"a": held(NONE, NONE), "b": held(COMPLETE, COMPLETE)}, NOW + 5)
    assert third.losses.missing == {}
    assert [loss.fields() for loss in third.losses.past] == [{"time_us": NOW + 5, "partitions": 1, "nodes": ["a"]}]


def test_an_emptied_disk_of_the_only_owner_is_a_loss_at_once() -> None:
    top = view_of(1, "ab", ["a", "a", "b"], "ab")
    after = view_of(2, "ab", ["ab", "ab", "ba"], "ab", start=EMPTIED)
    found = losses_of(after, [top], {"a": held(NONE, NONE, NONE), "b": held(NONE, NONE, COMPLETE)}, NOW)
    assert [(loss.partitions, loss.nodes) for loss in found.past] == [(2, ["a"])]


def test_what_was_never_begun_is_not_lost() -> None:
    top = view_of(1, "ab", ["a"], "ab")
    after = view_of(2, "ab", ["a"], "ab")
    assert losses_of(after, [top], {"a": held(NONE), "b": held(NONE)}, NOW).past == []
    assert losses_of(after, [], {"a": held(NONE)}, NOW).past == []


def short_lived() -> View:
    """The view of two who went on without the three that had everything, and were gone before they began it."""
    top = view_of(2, "de", ["de"], known="abcde")
    top.losses.missing = {0: ["a", "b", "c"]}
    top.absent = [Member(name, 1, f"{name}:1", name, ACTIVE) for name in "abc"]
    return top


def members_of(view: View, **starts: int) -> View:
    """The same view, of these starts of its members."""
    members = [Member(one.node_id, starts.get(one.node_id, 2), one.address, one.zone, ACTIVE) for one in view.members]
    return View(view.epoch, members, view.replicas, known=view.known)


def test_what_a_view_never_began_is_not_lost_with_it() -> None:
    after = view_of(3, "abcde", ["abc"], known="abcde", start=2)
    have = {name: held(COMPLETE) for name in "abc"}
    found = losses_of(after, [short_lived()], {**have, "d": held(NONE), "e": held(NONE)}, NOW)
    assert (found.missing, found.past) == ({}, [])


def test_one_disk_that_is_the_same_tells_that_nothing_was_begun() -> None:
    after = members_of(view_of(3, "abcde", ["abc"], known="abcde"), d=EMPTIED)
    have = {name: held(COMPLETE) for name in "abc"}
    assert losses_of(after, [short_lived()], {**have, "d": held(NONE), "e": held(NONE)}, NOW).past == []
    away = view_of(3, "abce", ["abc"], known="abcde", start=2)
    assert losses_of(away, [short_lived()], {**have, "e": held(NONE)}, NOW).missing == {}, "d has nothing either"


def test_disks_that_were_emptied_are_told_though_others_are_as_they_were() -> None:
    after = members_of(view_of(3, "abcde", ["de"], known="abcde"), a=EMPTIED, b=EMPTIED, c=EMPTIED)
    found = losses_of(after, [short_lived()], {name: held(NONE) for name in "abcde"}, NOW)
    assert [(loss.partitions, loss.nodes) for loss in found.past] == [(1, ["a", "b", "c"])]
    after = members_of(view_of(3, "abcde", ["abc"], known="abcde"), d=EMPTIED, e=EMPTIED)
    have = {name: held(COMPLETE) for name in "abc"}
    found = losses_of(after, [short_lived()], {**have, "d": held(NONE), "e": held(NONE)}, NOW)
    assert [(loss.partitions, loss.nodes) for loss in found.past] == [(1, ["d", "e"])]


def test_an_old_backup_in_place_of_a_disk_is_another_one() -> None:
    after = view_of(2, "ab", ["a"], "ab", start=6)
    found = losses_of(after, [view_of(1, "ab", ["a"], "ab", start=7)], {"a": held(NONE), "b": held(NONE)}, NOW)
    assert [(loss.partitions, loss.nodes) for loss in found.past] == [(1, ["a"])]


def test_a_damaged_copy_is_not_lost_yet() -> None:
    top = view_of(1, "ab", ["a"], "ab")
    after = view_of(2, "ab", [""], "ab", start=2)
    found = losses_of(after, [top], {"a": held(DAMAGED), "b": held(NONE)}, NOW)
    assert (found.missing, found.past) == ({}, [])


def test_whoever_of_several_comes_back_brings_it_and_the_last_who_is_forgotten_takes_it_away() -> None:
    second = view_of(2, "c", ["c"])
    second.losses = losses_of(second, [view_of(1, "abc", ["ab"])], {"c": held(NONE)}, NOW)
    assert second.losses.missing == {0: ["a", "b"]}
    third = view_of(3, "bc", ["b"])
    assert losses_of(third, [second], {"b": held(COMPLETE), "c": held(COMPLETE)}, NOW).missing == {}
    without_a = view_of(3, "c", ["c"], "bc")
    without_a.losses = losses_of(without_a, [second], {"c": held(COMPLETE)}, NOW)
    assert (without_a.losses.missing, without_a.losses.past) == ({0: ["b"]}, [])
    without_both = view_of(4, "c", ["c"], "c")
    without_both.losses = losses_of(without_both, [without_a], {"c": held(COMPLETE)}, NOW)
    assert without_both.losses.missing == {}
    assert [(loss.partitions, loss.nodes) for loss in without_both.losses.past] == [(1, ["b"])]
    assert [(event.kind, event.fields) for event in news_of(without_a, without_both)] == [
        ("copies_lost", {"partitions": 1, "nodes": ["b"]})
    ]


def test_when_sides_of_a_split_meet_one_copy_is_enough_and_both_histories_stay() -> None:
    left, right = view_of(5, "a", ["a"]), view_of(6, "bc", ["b"])
    left.losses.past = [Loss(3, 1, ["x"])]
    right.losses.missing = {0: ["a"]}
    right.losses.past = [Loss(2, 1, ["y"]), Loss(3, 1, ["x"])]
    after = view_of(7, "abc", ["b"])
    found = losses_of(after, [right, left], {"a": held(COMPLETE), "b": held(COMPLETE), "c": held(NONE)}, NOW)
    assert found.missing == {}
    assert [loss.time_us for loss in found.past] == [2, 3]


def test_only_the_newest_losses_are_kept() -> None:
    top = view_of(1, "a", ["a"], "a")
    top.losses.past = [Loss(number, 1, ["x"]) for number in range(LOSSES_MAX)]
    after = view_of(2, "a", ["a"], "a", start=EMPTIED)
    found = losses_of(after, [top], {"a": held(NONE)}, NOW)
    assert len(found.past) == LOSSES_MAX
    assert (found.past[0].time_us, found.past[-1].time_us) == (1, NOW)


def test_they_are_read_as_they_were_written_and_older_views_have_none() -> None:
    view = view_of(1, "a", ["a", "a", "a"], "abc")
    bare = encode_view(view)
    view.losses.missing = {0: ["b"], 1: ["b", "c"], 2: ["b"]}
    view.losses.past = [Loss(NOW, 7, ["d", "e"])]
    found = decode_view(encode_view(view)).losses
    assert (found.missing, repr(found.past)) == (view.losses.missing, repr(view.losses.past))
    assert found.groups() == [(["b"], [0, 2]), (["b", "c"], [1])]
    later = 3 * len(put_bytes(bytes(1)))  # the sections behind it: no ids, a flag, and no copies
    older = bare[: -len(put_bytes(encode_losses(Losses()))) - later]
    assert decode_view(older).losses.missing == {}
    assert repr(decode_losses(encode_losses(Losses()))) == repr(Losses())


def test_what_is_new_is_told_once() -> None:
    before = view_of(1, "ab", ["a", "b"], "abc")
    after = view_of(2, "b", ["b", "b"], "abc")
    after.losses.missing = {0: ["a"], 1: ["a", "c"]}
    told = [(event.level, event.kind, event.fields) for event in news_of(before, after)]
    assert told == [
        ("warning", "copies_missing", {"partitions": 1, "nodes": ["a"]}),
        ("warning", "copies_missing", {"partitions": 1, "nodes": ["a", "c"]}),
    ]
    assert news_of(after, after) == []
    after.losses.past = [Loss(NOW, 1, ["x"])]
    assert [event.kind for event in news_of(None, after)] == ["copies_missing"] * 2, "a newcomer lost nothing"
