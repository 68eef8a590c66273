"""Nodes that die, hang, come back or come back empty, while a fleet of clients behind HAProxy goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster_fleet import Fleet
from tests.integration.cluster_rig import Rig
from tests.integration.serving import await_true

# Killed: some milliseconds; the machine of a test may be busy with other things.
OUT_S = 1.0
HUNG_S = 2.5  # its lease, and an election if it was the controller


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path, 3) as found:
        yield found


@pytest.fixture
def fleet(rig: Rig, tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(rig.door, tmp_path) as found:
        found.flow()
        yield found


def test_kill_9_of_the_leaders_of_a_subscriber_and_of_a_publisher(rig: Rig, fleet: Fleet) -> None:
    for client in ("s2", "p3"):
        leader = rig.leader(client)
        rig.kill(leader)
        assert rig.await_out(leader) < OUT_S
        assert rig.leader(client) != leader
        fleet.flow()
        rig.start(leader)
        fleet.flow()
        rig.await_whole()
    fleet.expect_no_fault()


@pytest.mark.soak("five real nodes: the leaders of three are always killed, and simulated nodes two at once")
def test_kill_9_of_two_of_five_at_once(tmp_path: Path) -> None:
    with Rig(tmp_path, 5) as rig, Fleet(rig.door, tmp_path) as fleet:
        fleet.flow()
        leader, second, _third = rig.where("s2")
        rig.kill(leader, second)
        fleet.flow()
        fleet.run(1.0)
        rig.start(leader, second)
        fleet.flow()
        rig.await_whole()
        fleet.expect_no_fault()


def test_two_die_one_after_the_other_and_one_is_left(rig: Rig, fleet: Fleet) -> None:
    first, second, third = rig.where("s2")
    rig.kill(first)
    fleet.flow()
    rig.kill(second)
    fleet.flow()
    assert rig.leader("s2") == third
    rig.start(first)
    fleet.flow()
    rig.start(second)
    fleet.flow()
    rig.await_whole()
    fleet.expect_no_fault()


def test_the_only_one_that_comes_back_forks_and_is_merged(rig: Rig, fleet: Fleet) -> None:
    """All had everything, so that one of them can serve it; where a majority is asked for, it waits instead."""
    rig.kill(*rig.names)
    first, *others = rig.names
    rig.start(first)
    fleet.flow()
    assert rig.nodes[first].answer("/api/v1/status")["apart"] is True
    rig.start(*others)
    fleet.flow()
    rig.await_whole()
    fleet.expect_nothing_lost()


def test_more_than_half_of_the_voters_are_enough(tmp_path: Path) -> None:
    with Rig(tmp_path, 3, policy="majority") as rig, Fleet(rig.door, tmp_path, may_refuse=True) as fleet:
        fleet.flow()
        rig.kill(*rig.names)
        first, second, third = rig.names
        rig.start(first)
        why = f"no controller: 1 of 3 voters are connected; waits for {second}, {third}"
        await_true(lambda: why in rig.nodes[first].ready()[1])
        assert rig.nodes[first].ready()[0] == 503
        rig.start(second)
        fleet.flow()
        rig.start(third)
        fleet.flow()
        rig.await_whole()
        fleet.expect_no_fault()


def test_all_die_at_once(rig: Rig, fleet: Fleet) -> None:
    rig.kill(*rig.names)
    fleet.run(0.5)
    rig.start(*rig.names)
    fleet.flow()
    rig.await_whole()
    fleet.expect_no_fault()


@pytest.mark.soak("random kills and rolling restarts: the history checker judges a run of both always")
def test_a_node_is_killed_again_and_again(rig: Rig, fleet: Fleet) -> None:
    leader = rig.leader("s2")
    for pause_s in (0.0, 0.3, 0.8):
        rig.kill(leader)
        fleet.run(pause_s)
        rig.start(leader)
        fleet.run(pause_s)
    fleet.flow()
    rig.await_whole()
    fleet.expect_no_fault()


def test_a_leader_hangs_and_goes_on(rig: Rig, fleet: Fleet) -> None:
    leader = rig.leader("s2")
    rig.freeze(leader)
    assert rig.await_out(leader) < HUNG_S
    fleet.flow()
    rig.thaw(leader)
    fleet.flow()
    rig.await_whole()
    fleet.expect_no_fault()


@pytest.mark.soak("several nodes that hang for moments: one that hangs until the others go on is tested always")
def test_nodes_that_hang_for_moments(rig: Rig, fleet: Fleet) -> None:
    for at, pause_s in enumerate((0.1, 0.5, 1.0, 1.9, 0.3)):
        name = rig.names[at % 3]
        rig.freeze(name)
        fleet.run(pause_s)
        rig.thaw(name)
        fleet.run(0.3)
    fleet.flow()
    rig.await_whole()
    fleet.expect_no_fault()


@pytest.mark.soak("random kills and rolling restarts: the history checker judges a run of both always")
def test_nodes_are_stopped_and_started_in_turn(rig: Rig, fleet: Fleet) -> None:
    for name in rig.names:
        rig.stop(name)
        fleet.flow(5)
        rig.start(name)
        rig.await_whole()
        fleet.flow(5)
    fleet.expect_no_fault()


@pytest.mark.soak("an emptied disk: simulated nodes lose theirs, and a new node always takes the place of a lost one")
def test_a_node_comes_back_with_nothing(rig: Rig, fleet: Fleet) -> None:
    leader = rig.leader("s2")
    rig.kill(leader)
    rig.empty(leader)
    fleet.flow()
    rig.start(leader)
    fleet.flow()
    rig.await_whole()
    # What it was given is worth something: the others may die now.
    others = [name for name in rig.names if name != leader]
    rig.kill(*others)
    fleet.flow()
    rig.start(*others)
    rig.await_whole()
    fleet.expect_no_fault()


def test_a_new_node_takes_the_place_of_a_lost_one(rig: Rig, fleet: Fleet) -> None:
    lost = rig.leader("s2")
    rig.kill(lost)
    rig.empty(lost)
    fleet.flow()
    rig.rename(lost, "new")
    rig.start("new")
    fleet.flow()
    assert next(node for node in rig.running() if node.name != "new").order(f"/api/v1/nodes/{lost}/forget") == 202
    rig.await_whole()
    assert "new" in rig.where("s2")
    fleet.expect_no_fault()
