"""Nodes that go in good order: for good, with what they have handed over first, or for a restart."""

from __future__ import annotations

import pytest

from folkmoot.membership.view import View
from folkmoot.peer.member import ACTIVE, LEAVING
from tests.membership.simulated_membership import S, SimulatedMembership


def begun(nodes: int, seed: int = 1, replicas: int = 3) -> SimulatedMembership:
    simulation = SimulatedMembership(nodes, seed, replicas=replicas)
    simulation.start_all()
    simulation.run_until(lambda: simulation.settled(sorted(simulation.nodes)), 15 * S)
    return simulation


def view_of(simulation: SimulatedMembership, node_id: str) -> View:
    view = simulation.nodes[node_id].live.view
    assert view is not None
    return view


def state_of(simulation: SimulatedMembership, node_id: str, at: str) -> int:
    member = view_of(simulation, at).member(node_id)
    return -1 if member is None else member.state


def finish(simulation: SimulatedMembership, node_id: str, limit: int = 15 * S) -> None:
    """What the node does around the core: it says goodbye when it has nothing left, and ends when it has left."""
    live = simulation.nodes[node_id].live
    simulation.run_until(lambda: live.drained, limit)
    assert not live.left
    live.depart(simulation.now)
    simulation.run_until(lambda: live.left, 2 * S)
    simulation.kill(node_id)


@pytest.mark.parametrize("by_order", [False, True])
@pytest.mark.parametrize("gone", ["n000", "n003"])
def test_one_that_leaves_gives_away_what_it_has_first(gone: str, by_order: bool) -> None:
    simulation = begun(4)
    simulation.fill_us = S
    if by_order:
        simulation.nodes["n001"].live.dismiss(gone, simulation.now)
    else:
        simulation.nodes[gone].live.leave(simulation.now)
    simulation.run_until(lambda: state_of(simulation, gone, "n001") == LEAVING, 2 * S)
    assert simulation.nodes[gone].live._member_state.leaving
    assert not simulation.nodes[gone].live.drained
    finish(simulation, gone)
    rest = sorted(set(simulation.nodes) - {gone})
    simulation.run_until(lambda: simulation.settled(rest), 15 * S)
    assert view_of(simulation, "n001").known == rest
    assert not view_of(simulation, "n001").absent
    assert not simulation.lost()


def test_it_stays_a_member_until_it_has_said_goodbye() -> None:
    simulation = begun(4)
    simulation.nodes["n003"].live.leave(simulation.now)
    simulation.run_until(lambda: simulation.nodes["n003"].live.drained, 15 * S)
    simulation.run(5 * S)
    assert simulation.nodes["n003"].live.state == "member"
    assert state_of(simulation, "n003", "n000") == LEAVING


def test_two_leave_at_once() -> None:
    simulation = begun(5)
    for node_id in ("n000", "n004"):
        simulation.nodes[node_id].live.leave(simulation.now)
    for node_id in ("n000", "n004"):
        finish(simulation, node_id)
    simulation.run_until(lambda: simulation.settled(["n001", "n002", "n003"]), 15 * S)
    assert view_of(simulation, "n001").known == ["n001", "n002", "n003"]
    assert not simulation.lost()


def test_of_all_that_leave_one_stays() -> None:
    simulation = begun(3)
    for node in simulation.nodes.values():
        node.live.leave(simulation.now)
    for node_id in ("n002", "n001"):
        finish(simulation, node_id)
    simulation.run(5 * S)
    assert state_of(simulation, "n000", "n000") == ACTIVE
    assert not simulation.nodes["n000"].live._member_state.leaving
    assert [event for event in simulation.nodes["n000"].events if "leave_refused" in event]
    assert simulation.settled(["n000"])
    assert not simulation.lost()


def test_of_all_that_leave_while_another_is_away_one_stays() -> None:
    simulation = begun(4)
    simulation.kill("n003")
    simulation.run_until(lambda: len(view_of(simulation, "n000").members) == 3, 15 * S)
    for node_id in ("n000", "n001", "n002"):
        simulation.nodes[node_id].live.leave(simulation.now)
    simulation.run_until(
        lambda: [state_of(simulation, name, "n001") for name in ("n000", "n001")] == [ACTIVE, LEAVING], 15 * S
    )
    assert [event for event in simulation.nodes["n000"].events if "leave_refused" in event]
    assert not simulation.lost()


@pytest.mark.parametrize("later", [0, S // 10, S // 2])
@pytest.mark.parametrize("comes", [True, False])
def test_one_that_leaves_while_another_joins_goes_when_that_one_has_all(later: int, comes: bool) -> None:
    simulation = SimulatedMembership(2, 1, replicas=2)
    simulation.fill_us = 3 * S
    simulation.start("n000")
    simulation.run_until(lambda: simulation.settled(["n000"]), 15 * S)
    simulation.start("n001", ["n000"])
    simulation.run(later)
    simulation.nodes["n000"].live.leave(simulation.now)
    simulation.run_until(
        lambda: len(view_of(simulation, "n000").members) == 2 and state_of(simulation, "n000", "n000") == LEAVING, S
    )
    if comes:
        finish(simulation, "n000")
    else:
        simulation.kill("n001")
    rest = ["n001"] if comes else ["n000"]
    simulation.run_until(lambda: simulation.settled(rest) and state_of(simulation, rest[0], rest[0]) == ACTIVE, 15 * S)
    assert any("leave_refused" in event for event in simulation.nodes["n000"].events) is not comes
    assert not simulation.lost()


def test_while_another_is_away_it_keeps_what_it_has() -> None:
    simulation = begun(3)
    simulation.nodes["n002"].live.leave(simulation.now)
    simulation.kill("n000")
    simulation.run(10 * S)
    assert state_of(simulation, "n002", "n001") == LEAVING
    assert all("n002" in replicas for replicas in view_of(simulation, "n001").replicas), "else one copy would be left"
    simulation.start("n000")
    finish(simulation, "n002")
    simulation.run_until(lambda: simulation.settled(["n000", "n001"]), 15 * S)
    assert not simulation.lost()


def test_when_the_one_that_is_away_is_forgotten_it_goes_on() -> None:
    simulation = begun(3)
    simulation.nodes["n002"].live.leave(simulation.now)
    simulation.kill("n000")
    simulation.run(5 * S)
    simulation.nodes["n001"].live.forget("n000", simulation.now)
    finish(simulation, "n002")
    assert view_of(simulation, "n001").known == ["n001"]


def test_one_that_is_started_again_while_it_leaves_goes_on_with_it() -> None:
    simulation = begun(4)
    simulation.fill_us = 3 * S
    simulation.nodes["n003"].live.leave(simulation.now)
    simulation.run_until(lambda: state_of(simulation, "n003", "n000") == LEAVING, 2 * S)
    simulation.kill("n003")
    simulation.start("n003")
    simulation.run_until(lambda: simulation.nodes["n003"].live._member_state.leaving, 5 * S)
    finish(simulation, "n003")
    simulation.run_until(lambda: simulation.settled(["n000", "n001", "n002"]), 15 * S)
    assert not simulation.lost()


def test_one_that_is_cut_off_while_it_leaves_comes_back_and_goes_on() -> None:
    simulation = begun(4)
    simulation.fill_us = 4 * S
    simulation.nodes["n003"].live.leave(simulation.now)
    simulation.run(S)
    simulation.split(["n003"], ["n000", "n001", "n002"])
    simulation.run_until(lambda: state_of(simulation, "n003", "n000") == -1, 5 * S)
    assert not simulation.nodes["n003"].live.left, "it has not given away what it had"
    simulation.heal()
    finish(simulation, "n003", 30 * S)
    assert view_of(simulation, "n001").known == ["n000", "n001", "n002"]


def test_one_that_stops_is_out_at_once_and_expected_back() -> None:
    simulation = begun(3)
    live = simulation.nodes["n000"].live
    live.depart(simulation.now)
    assert not live.departed
    assert simulation.run_until(lambda: live.departed, S) < S // 4
    assert not live.left
    assert view_of(simulation, "n001").known == ["n000", "n001", "n002"]
    simulation.run(5 * S)
    assert state_of(simulation, "n000", "n001") == -1, "it is not taken in again before it has ended"
    simulation.kill("n000")
    simulation.start("n000")
    simulation.run_until(lambda: simulation.settled(["n000", "n001", "n002"]), 15 * S)
    assert not simulation.lost()


def test_when_all_stop_nobody_waits_for_another() -> None:
    simulation = begun(3)
    for node in simulation.nodes.values():
        node.live.depart(simulation.now)
    simulation.run_until(lambda: all(node.live.departed for node in simulation.nodes.values()), S)
