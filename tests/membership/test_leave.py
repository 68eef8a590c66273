"""Nodes that go in good order: for good, with what they have handed over first, or for a restart."""

from __future__ import annotations

import pytest

from folkmoot.membership.view import View
from folkmoot.peer.member import ACTIVE, LEAVING
from tests.membership.simulated_membership import Moot, S


def begun(nodes: int, seed: int = 1, replicas: int = 3) -> Moot:
    moot = Moot(nodes, seed, replicas=replicas)
    moot.start_all()
    moot.run_until(lambda: moot.settled(sorted(moot.nodes)), 15 * S)
    return moot


def view_of(moot: Moot, node_id: str) -> View:
    view = moot.nodes[node_id].live.view
    assert view is not None
    return view


def state_of(moot: Moot, node_id: str, at: str) -> int:
    member = view_of(moot, at).member(node_id)
    return -1 if member is None else member.state


def finish(moot: Moot, node_id: str, limit: int = 15 * S) -> None:
    """What the node does around the core: it says goodbye when it has nothing left, and ends when it has left."""
    live = moot.nodes[node_id].live
    moot.run_until(lambda: live.drained, limit)
    assert not live.left
    live.depart(moot.now)
    moot.run_until(lambda: live.left, 2 * S)
    moot.kill(node_id)


@pytest.mark.parametrize("by_order", [False, True])
@pytest.mark.parametrize("gone", ["n000", "n003"])
def test_one_that_leaves_gives_away_what_it_has_first(gone: str, by_order: bool) -> None:
    moot = begun(4)
    moot.fill_us = S
    if by_order:
        moot.nodes["n001"].live.dismiss(gone, moot.now)
    else:
        moot.nodes[gone].live.leave(moot.now)
    moot.run_until(lambda: state_of(moot, gone, "n001") == LEAVING, 2 * S)
    assert moot.nodes[gone].live._seat.leaving
    assert not moot.nodes[gone].live.drained
    finish(moot, gone)
    rest = sorted(set(moot.nodes) - {gone})
    moot.run_until(lambda: moot.settled(rest), 15 * S)
    assert view_of(moot, "n001").known == rest
    assert not view_of(moot, "n001").absent
    assert not moot.lost()


def test_it_stays_a_member_until_it_has_said_goodbye() -> None:
    moot = begun(4)
    moot.nodes["n003"].live.leave(moot.now)
    moot.run_until(lambda: moot.nodes["n003"].live.drained, 15 * S)
    moot.run(5 * S)
    assert moot.nodes["n003"].live.state == "member"
    assert state_of(moot, "n003", "n000") == LEAVING


def test_two_leave_at_once() -> None:
    moot = begun(5)
    for node_id in ("n000", "n004"):
        moot.nodes[node_id].live.leave(moot.now)
    for node_id in ("n000", "n004"):
        finish(moot, node_id)
    moot.run_until(lambda: moot.settled(["n001", "n002", "n003"]), 15 * S)
    assert view_of(moot, "n001").known == ["n001", "n002", "n003"]
    assert not moot.lost()


def test_of_all_that_leave_one_stays() -> None:
    moot = begun(3)
    for node in moot.nodes.values():
        node.live.leave(moot.now)
    for node_id in ("n002", "n001"):
        finish(moot, node_id)
    moot.run(5 * S)
    assert state_of(moot, "n000", "n000") == ACTIVE
    assert not moot.nodes["n000"].live._seat.leaving
    assert [event for event in moot.nodes["n000"].events if "leave_refused" in event]
    assert moot.settled(["n000"])
    assert not moot.lost()


def test_of_all_that_leave_while_another_is_away_one_stays() -> None:
    moot = begun(4)
    moot.kill("n003")
    moot.run_until(lambda: len(view_of(moot, "n000").members) == 3, 15 * S)
    for node_id in ("n000", "n001", "n002"):
        moot.nodes[node_id].live.leave(moot.now)
    moot.run_until(lambda: [state_of(moot, name, "n001") for name in ("n000", "n001")] == [ACTIVE, LEAVING], 15 * S)
    assert [event for event in moot.nodes["n000"].events if "leave_refused" in event]
    assert not moot.lost()


@pytest.mark.parametrize("later", [0, S // 10, S // 2])
@pytest.mark.parametrize("comes", [True, False])
def test_one_that_leaves_while_another_joins_goes_when_that_one_has_all(later: int, comes: bool) -> None:
    moot = Moot(2, 1, replicas=2)
    moot.fill_us = 3 * S
    moot.start("n000")
    moot.run_until(lambda: moot.settled(["n000"]), 15 * S)
    moot.start("n001", ["n000"])
    moot.run(later)
    moot.nodes["n000"].live.leave(moot.now)
    moot.run_until(lambda: len(view_of(moot, "n000").members) == 2 and state_of(moot, "n000", "n000") == LEAVING, S)
    if comes:
        finish(moot, "n000")
    else:
        moot.kill("n001")
    rest = ["n001"] if comes else ["n000"]
    moot.run_until(lambda: moot.settled(rest) and state_of(moot, rest[0], rest[0]) == ACTIVE, 15 * S)
    assert any("leave_refused" in event for event in moot.nodes["n000"].events) is not comes
    assert not moot.lost()


def test_while_another_is_away_it_keeps_what_it_has() -> None:
    moot = begun(3)
    moot.nodes["n002"].live.leave(moot.now)
    moot.kill("n000")
    moot.run(10 * S)
    assert state_of(moot, "n002", "n001") == LEAVING
    assert all("n002" in replicas for replicas in view_of(moot, "n001").replicas), "else one copy would be left"
    moot.start("n000")
    finish(moot, "n002")
    moot.run_until(lambda: moot.settled(["n000", "n001"]), 15 * S)
    assert not moot.lost()


def test_when_the_one_that_is_away_is_forgotten_it_goes_on() -> None:
    moot = begun(3)
    moot.nodes["n002"].live.leave(moot.now)
    moot.kill("n000")
    moot.run(5 * S)
    moot.nodes["n001"].live.forget("n000", moot.now)
    finish(moot, "n002")
    assert view_of(moot, "n001").known == ["n001"]


def test_one_that_is_started_again_while_it_leaves_goes_on_with_it() -> None:
    moot = begun(4)
    moot.fill_us = 3 * S
    moot.nodes["n003"].live.leave(moot.now)
    moot.run_until(lambda: state_of(moot, "n003", "n000") == LEAVING, 2 * S)
    moot.kill("n003")
    moot.start("n003")
    moot.run_until(lambda: moot.nodes["n003"].live._seat.leaving, 5 * S)
    finish(moot, "n003")
    moot.run_until(lambda: moot.settled(["n000", "n001", "n002"]), 15 * S)
    assert not moot.lost()


def test_one_that_is_cut_off_while_it_leaves_comes_back_and_goes_on() -> None:
    moot = begun(4)
    moot.fill_us = 4 * S
    moot.nodes["n003"].live.leave(moot.now)
    moot.run(S)
    moot.split(["n003"], ["n000", "n001", "n002"])
    moot.run_until(lambda: state_of(moot, "n003", "n000") == -1, 5 * S)
    assert not moot.nodes["n003"].live.left, "it has not given away what it had"
    moot.heal()
    finish(moot, "n003", 30 * S)
    assert view_of(moot, "n001").known == ["n000", "n001", "n002"]


def test_one_that_stops_is_out_at_once_and_expected_back() -> None:
    moot = begun(3)
    live = moot.nodes["n000"].live
    live.depart(moot.now)
    assert not live.departed
    assert moot.run_until(lambda: live.departed, S) < S // 4
    assert not live.left
    assert view_of(moot, "n001").known == ["n000", "n001", "n002"]
    moot.run(5 * S)
    assert state_of(moot, "n000", "n001") == -1, "it is not taken in again before it has ended"
    moot.kill("n000")
    moot.start("n000")
    moot.run_until(lambda: moot.settled(["n000", "n001", "n002"]), 15 * S)
    assert not moot.lost()


def test_when_all_stop_nobody_waits_for_another() -> None:
    moot = begun(3)
    for node in moot.nodes.values():
        node.live.depart(moot.now)
    moot.run_until(lambda: all(node.live.departed for node in moot.nodes.values()), S)
