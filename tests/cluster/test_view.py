"""Views: members sorted by id, found by id."""

from __future__ import annotations

from folkmoot.cluster.view import ACTIVE, JOINING, Member, View


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
