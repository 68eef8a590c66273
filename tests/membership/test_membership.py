"""Membership, case by case: starts, deaths, cuts, operators; with the times that the documentation promises."""

from __future__ import annotations

import pytest

from folkmoot.membership.heartbeat import Heartbeat, decode_heartbeat, encode_heartbeat
from folkmoot.membership.proposal import Prepare, Promise, encode_prepare, encode_promise, encode_refuse
from folkmoot.membership.view import View
from folkmoot.peer.kind import COMMIT, HEARTBEAT, PREPARE, PROMISE, REFUSE
from folkmoot.peer.member import ACTIVE, JOINING
from folkmoot.store.epoch import COUNTER_MAX, counter_of, is_sane
from tests.membership.simulated_membership import MS, S, SimulatedMembership, recover


def begun(nodes: int, seed: int = 1, policy: str = "available", partitions: int = 16) -> SimulatedMembership:
    """Nodes in one view, with all copies, a while ago."""
    simulation = SimulatedMembership(nodes, seed, partitions=partitions, policy=policy)
    simulation.start_all()
    simulation.run_until(simulation.settled, 10 * S)
    for partition in range(partitions):
        simulation.write(partition)
    simulation.run(2 * S)
    return simulation


def view_of(simulation: SimulatedMembership, node_id: str) -> View:
    view = simulation.nodes[node_id].live.view
    assert view is not None
    return view


def epochs(simulation: SimulatedMembership) -> list[int]:
    return sorted(simulation.views)


# Beginning


def test_a_node_alone_begins_at_once() -> None:
    simulation = SimulatedMembership(1, 1)
    simulation.start("n000", [])
    assert simulation.run_until(simulation.settled, S) < 200 * MS
    assert simulation.nodes["n000"].live.may_write


def test_a_node_whose_seeds_do_not_answer_waits_then_begins_alone() -> None:
    simulation = SimulatedMembership(2, 1)
    simulation.start("n000", ["n001"])
    simulation.run(1900 * MS)
    assert simulation.nodes["n000"].live.state == "waiting"
    simulation.run_until(simulation.settled, S)


def test_who_begins_without_most_of_its_seeds_knows_that_there_may_be_a_cluster() -> None:
    simulation = SimulatedMembership(3, 1)
    simulation.start("n000", ["n001", "n002"])
    simulation.run_until(simulation.settled, 3 * S)
    assert view_of(simulation, "n000").minority_bootstrap
    assert not view_of(simulation, "n000").is_whole()
    assert "began_apart" in " ".join(simulation.nodes["n000"].events)
    simulation.start("n001", ["n000", "n002"])
    simulation.run_until(lambda: simulation.agreed(["n000", "n001"]), 5 * S)
    assert not view_of(simulation, "n001").minority_bootstrap
    assert view_of(simulation, "n001").is_whole(), "two of three is most of them"
    assert "joined_others" in " ".join(simulation.nodes["n000"].events)


def test_who_begins_with_an_empty_disk_and_cut_off_is_apart_and_goes_on_with_what_the_others_have() -> None:
    simulation = begun(3)
    cluster = view_of(simulation, "n000").epoch
    simulation.kill("n002")
    simulation.split(["n000", "n001"], ["n002"])
    simulation.start("n002", ["n000", "n001"], empty=True)
    simulation.run(5 * S)
    assert view_of(simulation, "n002").minority_bootstrap
    assert not view_of(simulation, "n001").minority_bootstrap
    for partition in range(16):
        simulation.write(partition)
    simulation.heal()
    simulation.run_until(simulation.settled, 10 * S)
    merged = view_of(simulation, "n002")
    assert not merged.minority_bootstrap
    assert {replicas[0] for replicas in merged.replicas} & {"n000", "n001"}
    assert all(one.history[0][0] <= cluster for node_id in ("n000", "n001") for one in simulation.nodes[node_id].has)
    assert not simulation.lost()


def test_who_comes_back_to_a_node_that_began_apart_brings_the_cluster_with_it() -> None:
    simulation = SimulatedMembership(5, 1)
    old = ["n001", "n002", "n003", "n004"]
    simulation.start_all(old)
    simulation.run_until(simulation.settled, 10 * S)
    for partition in range(simulation.partitions):
        simulation.write(partition)
    simulation.run(2 * S)
    for node_id in old:
        simulation.kill(node_id)
    simulation.start("n000", ["n001", "n002", "n003"])
    simulation.run(4 * S)
    assert view_of(simulation, "n000").minority_bootstrap
    simulation.start("n002")
    simulation.run_until(lambda: simulation.agreed(["n000", "n002"]), 5 * S)
    both = view_of(simulation, "n002")
    assert not both.minority_bootstrap, "it goes on from a view that was not"
    assert both.known == old, "the other one is a newcomer, and makes nobody a majority"
    assert not both.has_majority_or_tie()
    for node_id in ("n001", "n003", "n004"):
        simulation.start(node_id)
    simulation.run_until(simulation.settled, 10 * S)
    assert view_of(simulation, "n000").known == sorted(simulation.nodes)
    assert not simulation.lost()


def test_who_finds_its_seeds_is_apart_no_more() -> None:
    simulation = SimulatedMembership(2, 1)
    simulation.start("n000", ["n001"])
    simulation.run_until(simulation.settled, 3 * S)
    assert view_of(simulation, "n000").minority_bootstrap
    simulation.nodes["n000"].live._member_state.config.seeds = []
    simulation.run(S)
    assert not view_of(simulation, "n000").minority_bootstrap
    assert "its seeds are found" in " ".join(simulation.nodes["n000"].events)


def test_while_a_node_stands_still_or_its_clock_is_set_it_has_waited_for_nobody() -> None:
    simulation = SimulatedMembership(2, 1)
    simulation.start("n000", ["n001"])
    simulation.run(500 * MS)
    simulation.hang("n000")
    simulation.run(5 * S)
    simulation.go_on("n000")
    simulation.run(1300 * MS)
    assert simulation.nodes["n000"].live.state == "waiting"
    simulation.run_until(simulation.settled, S)


@pytest.mark.parametrize("nodes", [2, 3, 5, 7])
def test_nodes_that_start_together_make_few_views(nodes: int) -> None:
    simulation = SimulatedMembership(nodes, 3)
    simulation.start_all()
    assert simulation.run_until(simulation.settled, 10 * S) < 3 * S
    assert len(simulation.views) <= 5


def test_a_node_that_comes_later_is_taken_in_and_given_its_share() -> None:
    simulation = SimulatedMembership(4, 1)
    simulation.start_all(["n000", "n001", "n002"])
    simulation.run_until(simulation.settled, 10 * S)
    simulation.fill_us = 800 * MS
    simulation.start("n003", ["n001"])
    simulation.run_until(lambda: simulation.agreed(sorted(simulation.nodes)), 3 * S)
    newcomer = view_of(simulation, "n000").member("n003")
    assert newcomer is not None
    assert newcomer.state == JOINING
    assert "n003" not in view_of(simulation, "n000").known
    simulation.run_until(simulation.settled, 10 * S)
    newcomer = view_of(simulation, "n000").member("n003")
    assert newcomer is not None
    assert newcomer.state == ACTIVE
    assert "n003" in view_of(simulation, "n000").known


def test_all_are_started_again_and_go_on_where_they_were() -> None:
    simulation = begun(5)
    before = epochs(simulation)[-1]
    for node_id in sorted(simulation.nodes):
        simulation.kill(node_id)
    simulation.run(S)
    for node_id in sorted(simulation.nodes):
        simulation.start(node_id)
    simulation.run_until(simulation.settled, 10 * S)
    assert min(epoch for epoch in simulation.views if epoch > before)
    assert not simulation.lost()


# Deaths


@pytest.mark.parametrize("nodes", [2, 3, 5, 7])
@pytest.mark.parametrize("victim", ["n000", "n001"])
def test_a_killed_process_is_out_within_500_ms(nodes: int, victim: str) -> None:
    simulation = begun(nodes)
    rest = [one for one in sorted(simulation.nodes) if one != victim]
    simulation.kill(victim)
    assert simulation.run_until(lambda: simulation.agreed(rest), 2 * S) <= 500 * MS


@pytest.mark.parametrize("victim", ["n000", "n002", "n004"])
def test_a_hung_process_is_out_within_3_s_and_comes_back(victim: str) -> None:
    simulation = begun(5)
    rest = [one for one in sorted(simulation.nodes) if one != victim]
    simulation.hang(victim)
    assert simulation.run_until(lambda: simulation.agreed(rest), 5 * S) <= 3 * S
    simulation.go_on(victim)
    simulation.run(50 * MS)
    assert simulation.nodes[victim].live.state == "excluded"
    assert not simulation.nodes[victim].live.may_write
    simulation.run_until(simulation.settled, 5 * S)


@pytest.mark.parametrize("victim", ["n000", "n001", "n004"])
@pytest.mark.parametrize("hung", ["n000", "n002", "n003"])
@pytest.mark.parametrize("before_us", [0, 50 * MS, 150 * MS, S])
def test_a_killed_process_is_out_within_500_ms_also_while_another_hangs(victim: str, hung: str, before_us: int) -> None:
    if victim == hung:
        return
    simulation = begun(5)
    simulation.hang(hung)
    simulation.run(before_us)
    rest = [one for one in sorted(simulation.nodes) if one not in (victim, hung)]
    simulation.kill(victim)
    assert simulation.run_until(lambda: simulation.agreed(rest), 2 * S) <= 500 * MS
    simulation.go_on(hung)
    simulation.start(victim, rest)
    simulation.run_until(simulation.settled, 10 * S)


def test_who_is_silent_when_another_dies_stays_while_nobody_else_has_all_the_data() -> None:
    simulation = begun(5)
    hung, victim, third = view_of(simulation, "n000").replicas[0]
    before = epochs(simulation)
    for node_id in (victim, third):
        simulation.kill(node_id)
    simulation.hang(hung)
    simulation.run(1500 * MS)
    after = [simulation.decoded[epoch] for epoch in epochs(simulation) if epoch not in before]
    assert all(view.member(hung) is not None for view in after)
    simulation.go_on(hung)
    simulation.run_until(
        lambda: simulation.agreed([one for one in sorted(simulation.nodes) if one not in (victim, third)]), 2 * S
    )
    assert simulation.nodes[hung].live.state == "member"


def test_who_is_silent_for_a_moment_while_nobody_dies_stays() -> None:
    simulation = begun(5)
    before = epochs(simulation)
    simulation.hang("n002")
    simulation.run(1500 * MS)
    simulation.go_on("n002")
    simulation.run(S)
    assert epochs(simulation) == before


@pytest.mark.parametrize("direction", ["in", "out", "both"])
def test_a_node_that_is_cut_off_is_out_within_3_s(direction: str) -> None:
    simulation = begun(5)
    rest = ["n000", "n001", "n003", "n004"]
    for other in rest:
        if direction in ("out", "both"):
            simulation.cut.add(("n002", other))
        if direction in ("in", "both"):
            simulation.cut.add((other, "n002"))
    assert simulation.run_until(lambda: simulation.agreed(rest), 5 * S) <= 3 * S
    simulation.run(S)
    alone = simulation.nodes["n002"].live
    assert alone.state == ("excluded" if direction == "out" else "member")
    simulation.heal()
    simulation.run_until(simulation.settled, 10 * S)


def test_a_node_that_is_started_again_at_once_is_a_new_one() -> None:
    simulation = begun(5)
    simulation.kill("n001")
    simulation.start("n001")
    simulation.run_until(simulation.settled, 5 * S)
    back = view_of(simulation, "n000").member("n001")
    assert back is not None
    assert back.incarnation == 2


def test_a_disk_that_stands_still_costs_the_place_until_it_goes_on() -> None:
    simulation = begun(5)
    rest = ["n001", "n002", "n003", "n004"]
    simulation.nodes["n000"].live.stalled("disk", simulation.now)
    assert simulation.run_until(lambda: simulation.agreed(rest), 5 * S) <= 3 * S
    assert simulation.nodes["n000"].live.state == "excluded"
    simulation.run(3 * S)
    assert simulation.agreed(rest)
    simulation.nodes["n000"].live.stalled("disk", 0)
    simulation.run_until(simulation.settled, 5 * S)


def test_a_short_stall_costs_nothing() -> None:
    simulation = begun(3)
    before = epochs(simulation)
    simulation.nodes["n001"].live.stalled("loop", simulation.now)
    simulation.run(1500 * MS)
    simulation.nodes["n001"].live.stalled("loop", 0)
    simulation.run(3 * S)
    assert epochs(simulation) == before


@pytest.mark.parametrize("kind", [PREPARE, PROMISE, COMMIT])
@pytest.mark.parametrize("seed", range(6))
def test_whoever_dies_at_whatever_step_the_others_agree(kind: int, seed: int) -> None:
    """The proposer in the middle of asking or telling, or a member that was asked."""
    simulation = begun(5, seed)
    simulation.lose_kind = ("n001" if kind == PROMISE else "n000", kind)
    simulation.kill("n004")
    simulation.run_until(
        lambda: simulation.agreed([one for one in sorted(simulation.nodes) if simulation.nodes[one].alive]), 5 * S
    )
    assert recover(simulation, 20 * S)
    assert not simulation.lost()


# What must evict nobody


def test_slow_links_evict_nobody() -> None:
    simulation = begun(5)
    before = epochs(simulation)
    for other in ("n000", "n001", "n003", "n004"):
        simulation.slow[("n002", other)] = simulation.slow[(other, "n002")] = (300 * MS, 1500 * MS)
    simulation.run(20 * S)
    assert epochs(simulation) == before


def test_one_bad_link_evicts_nobody_at_once_and_costs_the_higher_id_its_place_when_it_lasts() -> None:
    simulation = begun(5)
    before = epochs(simulation)
    simulation.cut_link("n001", "n003")
    simulation.run(3 * S)
    assert epochs(simulation) == before
    simulation.run_until(lambda: simulation.agreed(["n000", "n001", "n002", "n004"]), 3 * S)
    simulation.run(5 * S)
    assert simulation.nodes["n003"].live.state == "excluded"
    simulation.heal()
    simulation.run_until(simulation.settled, 10 * S)


def test_the_node_with_most_bad_links_goes() -> None:
    simulation = begun(5)
    simulation.cut_link("n001", "n003")
    simulation.cut_link("n001", "n004")
    simulation.run_until(lambda: simulation.agreed(["n000", "n002", "n003", "n004"]), 6 * S)


def test_a_node_that_was_stopped_for_long_accuses_nobody() -> None:
    """It has not read what they sent in the meantime."""
    simulation = begun(2)
    simulation.hang("n000")
    simulation.run(1900 * MS)
    before = epochs(simulation)
    simulation.go_on("n000")
    simulation.run(3 * S)
    assert epochs(simulation) == before


def test_a_flapping_node_comes_back_more_slowly_each_time() -> None:
    simulation = begun(3)
    for _ in range(6):
        simulation.split(["n000", "n001"], ["n002"])
        simulation.run(2500 * MS)
        simulation.heal()
        simulation.run(1500 * MS)
    simulation.split(["n000", "n001"], ["n002"])
    simulation.run(2500 * MS)
    simulation.heal()
    assert simulation.run_until(simulation.settled, 30 * S) > 4 * S


@pytest.mark.parametrize(("sender", "receiver", "kind"), [("n000", "n002", PREPARE), ("n002", "n000", PROMISE)])
def test_who_did_not_get_the_question_or_whose_answer_was_lost_with_a_link_stays(
    sender: str, receiver: str, kind: int
) -> None:
    simulation = begun(3)
    before = view_of(simulation, "n000").epoch
    node = simulation.nodes["n000"]
    node.live.changed(simulation.now)
    while not simulation.lose(sender, receiver, kind):
        simulation.run(10)
    simulation.run_until(lambda: view_of(simulation, "n002").epoch > before, S)
    simulation.run_until(simulation.settled, S)
    assert not any("view_unanswered" in event for event in node.events)


# Splits


def test_both_sides_of_a_split_go_on_and_merge() -> None:
    simulation = begun(5)
    simulation.split(["n000", "n001", "n002"], ["n003", "n004"])
    assert simulation.run_until(
        lambda: simulation.agreed(["n000", "n001", "n002"]) and simulation.agreed(["n003", "n004"]), 3 * S
    )
    assert simulation.nodes["n004"].live.may_write
    for partition in range(16):
        simulation.write(partition)
    assert view_of(simulation, "n003").known == view_of(simulation, "n000").known == sorted(simulation.nodes)
    assert view_of(simulation, "n000").has_majority_or_tie()
    assert not view_of(simulation, "n003").has_majority_or_tie()
    simulation.heal()
    simulation.run_until(simulation.settled, 5 * S)
    assert not simulation.lost()


def test_under_majority_the_smaller_side_takes_no_writes() -> None:
    simulation = begun(5, policy="majority")
    simulation.split(["n000", "n001"], ["n002", "n003", "n004"])
    simulation.run(5 * S)
    writable = [one for one in sorted(simulation.nodes) if simulation.nodes[one].live.may_write]
    assert writable == ["n002", "n003", "n004"]
    simulation.heal()
    simulation.run_until(simulation.settled, 5 * S)
    assert all(node.live.may_write for node in simulation.nodes.values())


def test_under_majority_the_smaller_side_leaves_its_copies_in_the_view_before() -> None:
    """What its leaders had not committed must not become so by a view of their own: a merge would count it."""
    simulation = begun(5, policy="majority")
    before = view_of(simulation, "n000").epoch
    simulation.split(["n000", "n001"], ["n002", "n003", "n004"])
    simulation.run(5 * S)
    member_state = simulation.nodes["n001"].live._member_state
    assert member_state.base is not None
    assert member_state.epoch() > member_state.base.epoch == before
    simulation.heal()
    simulation.run_until(simulation.settled, 5 * S)
    assert member_state.base is member_state.view
    assert not view_of(simulation, "n001").branches


def test_under_majority_lost_nodes_are_forgotten_one_by_one() -> None:
    simulation = begun(5, policy="majority")
    for node_id in ("n001", "n002", "n003", "n004"):
        simulation.kill(node_id)
    simulation.run(3 * S)
    live = simulation.nodes["n000"].live
    for node_id in ("n001", "n002", "n003", "n004"):
        assert not live.may_write
        live.forget(node_id, simulation.now)
        simulation.run(2 * S)
    assert live.may_write
    assert view_of(simulation, "n000").known == ["n000"]


def test_what_is_forgotten_on_one_side_of_a_split_is_known_again_when_the_other_side_still_expects_it() -> None:
    simulation = begun(4)
    simulation.kill("n003")
    simulation.run(S)
    simulation.split(["n000", "n001"], ["n002"])
    simulation.run(4 * S)
    simulation.nodes["n000"].live.forget("n003", simulation.now)
    simulation.run(S)
    assert "n003" not in view_of(simulation, "n000").known
    simulation.heal()
    simulation.run(5 * S)
    assert view_of(simulation, "n000").known == sorted(simulation.nodes)
    simulation.nodes["n000"].live.forget("n003", simulation.now)
    simulation.run(S)
    assert view_of(simulation, "n002").known == ["n000", "n001", "n002"]


def test_views_name_those_that_all_members_come_from() -> None:
    simulation = begun(5)
    common = view_of(simulation, "n000").epoch
    simulation.split(["n000", "n001", "n002"], ["n003", "n004"])
    simulation.run(5 * S)
    more, less = view_of(simulation, "n000"), view_of(simulation, "n003")
    assert common in more.lineage
    assert common in less.lineage
    simulation.heal()
    simulation.run_until(simulation.settled, 5 * S)
    whole = view_of(simulation, "n000")
    assert common in whole.lineage
    assert not {more.epoch, less.epoch} & set(whole.lineage)
    simulation.run(S)
    simulation.kill("n004")
    simulation.run(2 * S)
    assert whole.epoch in view_of(simulation, "n000").lineage


def test_a_node_is_gone_when_it_is_proved_dead_and_not_when_it_is_silent() -> None:
    simulation = begun(3)
    simulation.kill("n001")
    simulation.nodes["n002"].hung = True
    simulation.run(4 * S)
    assert simulation.nodes["n000"].live.is_gone("n001")
    assert not simulation.nodes["n000"].live.is_gone("n002")


def test_a_view_says_who_of_those_that_are_missing_may_live() -> None:
    simulation = begun(5)
    simulation.kill("n003")
    simulation.run(S)
    assert view_of(simulation, "n000").doubtful == []
    simulation.split(["n000", "n001", "n002"], ["n004"])
    simulation.run(4 * S)
    assert view_of(simulation, "n001").doubtful == ["n004"]
    assert view_of(simulation, "n000").doubtful == ["n004"]


def test_who_was_started_again_is_not_taken_for_one_that_lived_on() -> None:
    simulation = begun(3)
    simulation.kill("n001")
    simulation.start("n001")
    simulation.run_until(lambda: view_of(simulation, "n000").member("n001") is None, 3 * S)
    assert view_of(simulation, "n000").doubtful == []


def test_under_majority_two_that_are_started_again_of_five_wait_for_a_third() -> None:
    simulation = begun(5, policy="majority")
    for node_id in sorted(simulation.nodes):
        simulation.kill(node_id)
    simulation.start("n001")
    simulation.start("n002")
    simulation.run(10 * S)
    assert simulation.nodes["n001"].live.state == "waiting"
    simulation.start("n003")
    simulation.run_until(lambda: simulation.agreed(["n001", "n002", "n003"]), 5 * S)
    assert simulation.nodes["n003"].live.may_write


def test_under_majority_a_network_that_heals_brings_a_majority_soon_however_often_it_broke() -> None:
    """Of a view of no majority nothing can be spoilt: there nobody waits until links have held."""
    simulation = begun(5, policy="majority")
    waits = []
    for number in range(7):
        ids = sorted(simulation.nodes, key=lambda one: (int(one[1:]) * 7 + number * 3) % 5)
        simulation.split(ids[:2], ids[2:4], ids[4:])
        simulation.run(5 * S)
        assert not any(node.live.may_write for node in simulation.nodes.values())
        simulation.heal()
        waits.append(
            simulation.run_until(lambda: sum(one.live.may_write for one in simulation.nodes.values()) >= 3, 30 * S)
        )
        simulation.run(1500 * MS)
    assert max(waits) < 4 * S


def test_under_majority_no_smaller_side_takes_members_out_of_a_view_that_works() -> None:
    simulation = begun(5, policy="majority")
    simulation.split(["n000", "n001"], ["n002", "n003", "n004"])
    simulation.run(5 * S)
    works = view_of(simulation, "n004").epoch
    simulation.heal()
    for one in ("n000", "n001"):
        simulation.cut_link(one, "n002")
        simulation.cut_link(one, "n003")
    simulation.run(10 * S)
    assert view_of(simulation, "n004").epoch == works
    assert [one for one in sorted(simulation.nodes) if simulation.nodes[one].live.may_write] == ["n002", "n003", "n004"]
    told = [event for event in simulation.nodes["n000"].events if "would be left behind" in event]
    assert 0 < len(told) < 40, "it asks again, and not all the time"
    simulation.kill("n002")  # now the others have no majority, and are needed
    simulation.run_until(
        lambda: simulation.nodes["n004"].live.may_write and simulation.agreed(["n000", "n001", "n004"]), 10 * S
    )
    simulation.heal()
    simulation.start("n002")
    simulation.run_until(simulation.settled, 10 * S)
    assert not simulation.lost()


@pytest.mark.parametrize("alone", ["n000", "n004"])
def test_under_majority_who_comes_and_goes_is_taken_in_more_slowly_by_those_who_serve(alone: str) -> None:
    simulation = begun(5, policy="majority")
    rest = [one for one in sorted(simulation.nodes) if one != alone]
    for _ in range(6):
        simulation.split(rest, [alone])
        simulation.run(2500 * MS)
        simulation.heal()
        simulation.run(1500 * MS)
    simulation.split(rest, [alone])
    simulation.run(2500 * MS)
    simulation.heal()
    assert simulation.run_until(simulation.settled, 30 * S) > 4 * S


def test_a_cluster_of_two_splits_and_heals() -> None:
    simulation = begun(2)
    simulation.cut_link("n000", "n001")
    simulation.run(4 * S)
    assert simulation.agreed(["n000"])
    assert simulation.agreed(["n001"])
    simulation.heal()
    simulation.run_until(simulation.settled, 5 * S)


# Operators


def test_an_evicted_node_stays_out_until_it_is_started_again() -> None:
    simulation = begun(4)
    simulation.nodes["n001"].live.evict("n000", simulation.now)
    assert simulation.run_until(lambda: simulation.agreed(["n001", "n002", "n003"]), 2 * S) <= S
    simulation.run(10 * S)
    assert simulation.nodes["n000"].live.state == "excluded"
    simulation.kill("n000")
    simulation.run(S)
    simulation.start("n000")
    simulation.run_until(simulation.settled, 5 * S)
    assert not view_of(simulation, "n001").refused


def test_a_forgotten_node_counts_no_more() -> None:
    simulation = begun(4)
    simulation.kill("n003")
    simulation.run(2 * S)
    assert [member.node_id for member in view_of(simulation, "n000").absent] == ["n003"]
    assert simulation.nodes["n003"].address in simulation.nodes["n001"].live.wants
    simulation.nodes["n001"].live.forget("n000", simulation.now)  # it is here: nothing to forget
    simulation.nodes["n001"].live.forget("n003", simulation.now)
    simulation.run(2 * S)
    assert view_of(simulation, "n002").known == ["n000", "n001", "n002"]
    assert not view_of(simulation, "n002").absent


# Others


def test_a_node_that_speaks_no_common_version_is_not_taken_in() -> None:
    simulation = SimulatedMembership(3, 1)
    simulation.nodes["n002"].wire = (2, 3)
    simulation.start_all()
    simulation.run(10 * S)
    assert simulation.agreed(["n000", "n001"])
    simulation.nodes["n001"].wire = (1, 2)


def test_a_node_with_another_number_of_partitions_is_refused_and_said_so() -> None:
    simulation = begun(3)
    beat = Heartbeat(1, 1, 5 << 24, 5, 8)
    simulation.nodes["n000"].live.receive("n001", HEARTBEAT, encode_heartbeat(beat), simulation.now)
    events = [event for event in simulation.nodes["n000"].live.events if event.kind == "node_refused"]
    assert "8 partitions" in str(events[0].fields["why"])


def test_nonsense_is_said_once_and_dropped() -> None:
    simulation = begun(2)
    core = simulation.nodes["n000"].live
    for kind in range(1, 16):
        core.receive("n001", kind, b"\xff\xff", simulation.now)
        core.receive("nobody", kind, b"", simulation.now)
    assert len([event for event in core.events if event.kind == "node_refused"]) == 1
    simulation.run(3 * S)
    assert simulation.settled()


def test_figures_of_load_arrive() -> None:
    simulation = begun(3)
    simulation.nodes["n002"].live.set_load({"clients": 7, "overload": 2})
    simulation.run(S)
    assert simulation.nodes["n000"].live.load_of("n002") == {"clients": 7, "overload": 2, "replicas": 3, "no_room": 0}
    assert simulation.nodes["n002"].live.load_of("n002") == {"clients": 7, "overload": 2, "replicas": 3, "no_room": 0}


@pytest.mark.parametrize("counter", [COUNTER_MAX, COUNTER_MAX + 1, 1 << 39])
def test_a_wild_number_of_a_view_is_taken_over_by_nobody(counter: int) -> None:
    simulation = begun(3)
    live = simulation.nodes["n000"].live
    other = view_of(simulation, "n001").member("n001")
    assert other is not None
    beat = Heartbeat(1, other.incarnation, view_of(simulation, "n001").epoch, counter, 16)
    beat.in_view = True
    live.receive("n001", HEARTBEAT, encode_heartbeat(beat), simulation.now)
    live.receive("n001", REFUSE, encode_refuse(1, counter, "odd"), simulation.now)
    members = [(member.node_id, member.incarnation) for member in view_of(simulation, "n000").members]
    live.receive("n001", PREPARE, encode_prepare(Prepare(counter << 24, 0, members)), simulation.now)
    simulation.kill("n002")
    simulation.run_until(simulation.settled, 10 * S)
    assert counter_of(view_of(simulation, "n000").epoch) < 20


def test_a_promise_that_comes_late_is_no_fault_of_who_gave_it() -> None:
    simulation = begun(3)
    live = simulation.nodes["n000"].live
    late = encode_promise(Promise(1 << 24, True, View(7 << 24, []), [], []), 7 << 24)
    live.receive("n001", PROMISE, late, simulation.now)
    assert [event for event in live.events if event.kind == "node_refused"] == []
    live.receive("n001", PROMISE, b"", simulation.now)
    assert [event.kind for event in live.events] == ["node_refused"]


def test_a_node_that_is_new_takes_any_number_over_and_others_some_that_are_far_ahead() -> None:
    assert is_sane(COUNTER_MAX, 0)
    assert is_sane(1_000_000, 3)
    assert not is_sane(10_000_000, 3)
    assert not is_sane(COUNTER_MAX + 1, 0)


def test_when_no_number_is_left_it_is_said_and_nobody_falls_over() -> None:
    simulation = begun(3)
    for node in simulation.nodes.values():
        node.live._member_state.counter = COUNTER_MAX
    simulation.kill("n002")
    simulation.run(5 * S)
    said = [event for name in ("n000", "n001") for event in simulation.nodes[name].events]
    assert len([event for event in said if "views_exhausted" in event]) == 1


def test_reach_and_suspects_can_be_seen() -> None:
    simulation = begun(3)
    assert simulation.nodes["n000"].live.reach() == {one: sorted(simulation.nodes) for one in simulation.nodes}
    simulation.cut_link("n000", "n002")
    simulation.run(2200 * MS)
    assert simulation.nodes["n000"].live.suspects() == ["n002"]
    assert simulation.nodes["n000"].live.reach()["n001"] == sorted(simulation.nodes)


def test_heartbeats_come_back_from_their_bytes() -> None:
    beat = Heartbeat(1, 3, 77 << 24, 78, 256)
    beat.in_view = beat.news = True
    beat.hears = 0b1011
    beat.others = ["x"]
    beat.peers = [("x", "192.0.2.1:1")]
    beat.load = {"clients": 3}
    back = decode_heartbeat(encode_heartbeat(beat) + b"later fields")
    for name in (
        "state",
        "incarnation",
        "epoch",
        "counter",
        "partitions",
        "in_view",
        "hears",
        "others",
        "peers",
        "load",
    ):
        assert getattr(back, name) == getattr(beat, name)
    assert not back.stalled
