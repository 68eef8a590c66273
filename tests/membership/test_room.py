"""Disks without room: who leads then, who stays outside, and how a disk at the border is borne."""

from __future__ import annotations

import pytest

from folkmoot.membership.room import Room
from folkmoot.membership.view import View
from folkmoot.membership.view_format import decode_view, encode_view
from tests.membership.simulated_membership import MS, S, SimulatedMembership
from tests.membership.test_assign import Case, at
from tests.membership.test_membership import begun, epochs, view_of

WAIT = 3 * S
HOLD = 10 * S


def leads(simulation: SimulatedMembership, node_id: str, seen_by: str = "") -> int:
    """How many partitions a node leads, as it or another one sees it."""
    return [replicas[0] for replicas in view_of(simulation, seen_by or node_id).replicas].count(node_id)


def fill(simulation: SimulatedMembership, *ids: str, full: bool = True) -> None:
    for node_id in ids:
        simulation.nodes[node_id].live.set_full(full, simulation.now)


class Watch:
    """A `Room` that is looked at every tenth of a second."""

    def __init__(self, fresh: bool = False) -> None:
        self.room = Room(WAIT, HOLD)
        self.room.fresh = fresh
        self.now = 1_000 * S

    def after(self, full: bool, duration: int) -> bool:
        """What it says when the disk has been so for a while."""
        self.room.full = full
        until = self.now + duration
        while self.now < until:
            self.now += 100 * MS
            self.room.look(self.now)
        return self.room.lacks

    def hold(self) -> int:
        """How long it takes until room that is there again is believed."""
        began = self.now
        while self.after(False, 100 * MS):
            assert self.now - began < 3_600 * S
        return self.now - began


def test_a_disk_that_is_full_for_a_moment_is_not_told() -> None:
    watch = Watch()
    for _ in range(5):
        assert not watch.after(True, WAIT - 200 * MS)
        assert not watch.after(False, 200 * MS)
    assert watch.after(True, WAIT + 200 * MS)


def test_a_disk_that_is_full_at_the_start_is_told_at_once() -> None:
    watch = Watch(fresh=True)
    assert not watch.after(False, 200 * MS), "the first look may be too early"
    assert watch.after(True, 100 * MS)
    assert abs(watch.hold() - HOLD) <= 300 * MS
    watch.room.fresh = False
    assert not watch.after(True, WAIT - 200 * MS), "from then on it is like any other"


def test_room_for_a_moment_is_not_believed() -> None:
    watch = Watch()
    watch.after(True, 2 * WAIT)
    for _ in range(5):
        assert watch.after(False, HOLD - 200 * MS)
        assert watch.after(True, 200 * MS)
    assert abs(watch.hold() - HOLD) <= 300 * MS


def test_who_is_full_again_soon_has_to_hold_out_for_longer_each_time() -> None:
    watch = Watch()
    holds = []
    for _ in range(9):
        watch.after(True, 2 * WAIT)
        holds.append(round(watch.hold() / S))
    assert holds == [10, 20, 40, 80, 160, 320, 600, 600, 600]
    watch.after(False, 2 * 3_600 * S)
    watch.after(True, 2 * WAIT)
    assert round(watch.hold() / S) == 10  # that was long ago


def test_a_view_keeps_who_has_no_room() -> None:
    view = View(7, Case("abc").members, [["a", "b"]], [[]])
    view.crowded = ["b", "c"]
    view.doubtful = ["d"]
    view.minority_bootstrap = True
    view.uncommitted_tails = {0: [("b", 5, 19), ("c", 5, 20)], 3: [("b", 1 << 40, 7)]}
    again = decode_view(encode_view(view))
    assert (again.crowded, again.doubtful, again.minority_bootstrap) == (["b", "c"], ["d"], True)
    assert again.uncommitted_tails == view.uncommitted_tails


def full_case(ids: str, crowded: str, replicas: int = 3) -> Case:
    case = Case(ids, replicas)
    case.crowded = list(crowded)
    return case


def test_who_has_no_room_keeps_its_copy_and_leads_nothing() -> None:
    case = Case("abc")
    case.view(1, "abc", "".join(case.ideal))
    case.hold(at(9, (1, 0)), "abc")
    case.crowded = [case.ideal[0]]
    replicas, learners = case.place()
    assert replicas[0] == case.ideal[1]
    assert sorted(replicas) == sorted(case.ideal)
    assert learners == []


def test_where_nobody_has_room_the_ideal_one_leads() -> None:
    case = full_case("abc", "abc")
    case.view(1, "abc", "".join(case.ideal))
    case.hold(at(9, (1, 0)), "abc")
    assert case.place() == (case.ideal, [])


def test_the_only_copy_is_led_by_who_has_it() -> None:
    case = full_case("ab", "a", 1)
    case.view(1, "ab", "a")
    case.hold(at(9, (1, 0)), "a")
    replicas, _ = case.place()
    assert replicas == ["a"]


def test_what_nobody_has_begins_where_there_is_room() -> None:
    case = Case("abc")
    case.crowded = [case.ideal[0]]
    assert case.place()[0][0] == case.ideal[1]


def test_who_has_no_room_is_given_no_new_copy_but_may_catch_up() -> None:
    case = Case("abc")
    newest, behind = case.ideal[0], case.ideal[1]
    case.view(2, newest, newest)
    case.hold(at(9, (1, 0), (2, 5)), newest)
    case.hold(at(5, (1, 0)), behind)
    case.crowded = [behind, case.ideal[2]]
    assert case.place() == ([newest], [behind])


def test_others_lead_what_a_full_disk_leads_and_give_it_back() -> None:
    simulation = begun(3)
    assert leads(simulation, "n001") > 0
    fill(simulation, "n001")
    simulation.run_until(lambda: leads(simulation, "n001", "n000") == 0, WAIT + 2 * S)
    simulation.run_until(simulation.settled, S)
    assert all("n001" in replicas for replicas in view_of(simulation, "n000").replicas)  # it follows
    fill(simulation, "n001", full=False)
    simulation.run(HOLD - S)
    assert leads(simulation, "n001", "n000") == 0
    simulation.run_until(lambda: leads(simulation, "n001", "n000") > 0, 3 * S)


@pytest.mark.parametrize("node_id", ["n000", "n001"])
def test_who_is_started_again_on_a_full_disk_follows_and_leads_nothing(node_id: str) -> None:
    simulation = begun(3)
    seen = "n002"
    simulation.run(WAIT)
    simulation.kill(node_id)
    simulation.run(S)
    simulation.start(node_id)
    fill(simulation, node_id)
    simulation.run_until(simulation.settled, 5 * S)
    assert all(node_id in replicas for replicas in view_of(simulation, seen).replicas)
    made = [view for epoch, view in simulation.decoded.items() if view.member(node_id) is not None]
    last = [view for view in made if view.member(node_id).incarnation == 2]  # type: ignore[union-attr]
    assert last
    assert not [view for view in last if view.crowded != [node_id]]
    assert leads(simulation, node_id, seen) == 0


def test_a_proposer_with_a_full_disk_gives_up_leading_too() -> None:
    simulation = begun(2)
    fill(simulation, "n000")
    simulation.run_until(lambda: leads(simulation, "n000") == 0, WAIT + 2 * S)
    assert leads(simulation, "n001") == simulation.partitions


def test_with_all_disks_full_all_lead_what_they_would_and_no_view_follows_the_other() -> None:
    simulation = begun(3)
    before = [leads(simulation, node_id) for node_id in sorted(simulation.nodes)]
    fill(simulation, *simulation.nodes)
    simulation.run(2 * WAIT)
    made = len(epochs(simulation))
    simulation.run(20 * S)
    assert [leads(simulation, node_id) for node_id in sorted(simulation.nodes)] == before
    assert len(epochs(simulation)) == made


def test_full_disks_cost_no_majority() -> None:
    simulation = begun(2, policy="majority")
    fill(simulation, "n001")
    simulation.run(2 * WAIT)
    assert leads(simulation, "n000") == simulation.partitions
    assert all(node.live.may_write for node in simulation.nodes.values())


def put_out(simulation: SimulatedMembership, node_id: str) -> None:
    """Let a full disk be so full that nothing is written any more, and then have so much room that something is."""
    fill(simulation, node_id)
    simulation.nodes[node_id].live.stalled("disk", simulation.now)
    simulation.run(2 * WAIT)
    assert simulation.nodes[node_id].live.state == "excluded"
    simulation.nodes[node_id].live.stalled("disk", 0)


def test_who_is_out_for_its_full_disk_comes_back_when_there_is_room() -> None:
    simulation = begun(3)
    put_out(simulation, "n002")
    simulation.run(10 * S)
    assert simulation.agreed(["n000", "n001"])
    fill(simulation, "n002", full=False)
    simulation.run_until(simulation.settled, HOLD + 3 * S)
    simulation.run(2 * S)
    assert leads(simulation, "n002") > 0


def test_who_is_needed_for_a_majority_comes_back_without_room() -> None:
    simulation = begun(2, policy="majority")
    put_out(simulation, "n001")
    simulation.run_until(simulation.settled, 5 * S)
    assert leads(simulation, "n001") == 0


def test_who_is_out_goes_on_alone_when_the_others_are_lost() -> None:
    simulation = begun(3)
    put_out(simulation, "n002")
    simulation.kill("n000")
    simulation.kill("n001")
    simulation.run_until(lambda: simulation.agreed(["n002"]), 10 * S)
    assert simulation.nodes["n002"].live.may_write
    assert leads(simulation, "n002") == simulation.partitions  # nobody else could


def test_a_node_that_leaves_goes_though_its_disk_is_full() -> None:
    simulation = begun(3)
    fill(simulation, "n001")
    simulation.run(2 * WAIT)
    simulation.nodes["n001"].live.leave(simulation.now)
    simulation.run_until(lambda: simulation.nodes["n001"].live.drained, 5 * S)
