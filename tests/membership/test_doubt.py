"""A disk that may lack what it has confirmed, after a loss of power without syncs or a salvage: `membership/doubt`."""

from __future__ import annotations

from copy import deepcopy

import pytest

from folkmoot.membership.control import Control
from folkmoot.membership.control_message import Greeting
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.log_rows import is_in_doubt
from folkmoot.peer.kind import CONTROL
from tests.membership.simulated_control import Cluster, Machine, S


def waiting(options: ControlOptions) -> None:
    """A side without a quorum waits."""
    options.forks = False


def begun(seed: int, count: int, forks: bool = False) -> Cluster:
    """Return a cluster that serves."""
    cluster = Cluster(seed, count, None if forks else waiting)
    for machine in cluster.machines:
        cluster.start(machine)
    cluster.until(lambda: cluster.is_whole() and votes(cluster) == (count if count > 2 else 1), 20 * S)
    cluster.run(S)
    return cluster


def votes(cluster: Cluster) -> int:
    """Return how many voters all know."""
    logs = [machine.control.log for machine in cluster.machines if machine.control is not None]
    return min(len(log.voters) if log is not None else 0 for log in logs)


def control(machine: Machine) -> Control:
    """Return the control of a machine that runs."""
    assert machine.control is not None
    return machine.control


def leader(cluster: Cluster) -> Machine:
    """Return the machine of the controller."""
    return next(one for one in cluster.machines if one.control is not None and one.control.controller is not None)


def setting(machine: Machine) -> bytes | None:
    """Return what a machine knows of the setting "k"."""
    configuration = control(machine).configuration
    assert configuration is not None
    found = configuration.settings.values.get("k")
    return None if found is None else found.value


def lose_power(cluster: Cluster, machine: Machine, old: object) -> None:
    """End a process; of its disk `old` is left."""
    cluster.kill(machine)
    machine.store = deepcopy(old)  # type: ignore[assignment]
    machine.is_incomplete = True


def is_live(cluster: Cluster) -> bool:
    """Tell whether anybody serves."""
    return any(machine.is_live(cluster.now) for machine in cluster.machines)


def confirmed(seed: int, planted: list[str]) -> tuple[Cluster, Machine, Machine]:
    """Let a voter come back without what it has confirmed; one that never had it and the one that has it are down."""
    cluster = begun(seed, 3)
    cluster.planted = planted
    first = leader(cluster)
    second, third = [one for one in cluster.machines if one is not first]
    old = deepcopy(second.store)
    cluster.kill(third)
    cluster.run(5 * S)
    control(first).requests.put("k", b"v", -1, "test")
    cluster.until(lambda: setting(second) == b"v", 5 * S)
    cluster.kill(first)
    lose_power(cluster, second, old)
    cluster.start(second)
    return cluster, second, third


def forgotten(seed: int, planted: list[str]) -> Cluster:
    """Let that voter meet the one that never had it."""
    cluster, _, third = confirmed(seed, planted)
    cluster.start(third)
    cluster.run(10 * S)
    return cluster


@pytest.mark.parametrize("seed", range(10))
def test_a_voter_without_what_it_has_confirmed_makes_no_quorum(seed: int) -> None:
    cluster = forgotten(seed, [])
    assert not is_live(cluster), "who has lost what it confirmed cannot make a quorum with one that never had it"
    for machine in cluster.machines:
        if machine.control is None:
            cluster.start(machine)
    cluster.until(cluster.is_whole, 20 * S)
    assert [setting(machine) for machine in cluster.machines] == [b"v"] * 3


def test_a_voter_that_does_not_doubt_makes_one() -> None:
    assert is_live(forgotten(0, ["votes_in_doubt"]))


@pytest.mark.parametrize("seed", range(10))
def test_the_doubt_outlives_the_process(seed: int) -> None:
    cluster, second, third = confirmed(seed, [])
    cluster.run(S)
    cluster.kill(second)
    cluster.start(second)
    cluster.start(third)
    cluster.run(10 * S)
    assert not is_live(cluster)


@pytest.mark.parametrize("seed", range(10))
def test_a_member_that_the_others_have_gone_on_without_is_another_disk(seed: int) -> None:
    cluster = begun(seed, 3)
    machine = cluster.machines[seed % 3]
    before = machine.disk
    lose_power(cluster, machine, machine.store)
    cluster.start(machine)
    cluster.until(cluster.is_whole, 20 * S)
    assert machine.disk != before
    assert "disk_renewed" in machine.events


@pytest.mark.parametrize("seed", range(10))
def test_when_all_have_lost_power_they_go_on_together_with_the_newest(seed: int) -> None:
    cluster = begun(seed, 3)
    old = [deepcopy(machine.store) for machine in cluster.machines]
    control(leader(cluster)).requests.put("k", b"v", -1, "test")
    cluster.until(lambda: all(setting(machine) == b"v" for machine in cluster.machines), 5 * S)
    newest = cluster.machines[seed % 3]
    disks = [machine.disk for machine in cluster.machines]
    for number, machine in enumerate(cluster.machines):
        lose_power(cluster, machine, machine.store if machine is newest else old[number])
    for number, machine in enumerate(cluster.machines):
        cluster.at(number * S, lambda machine=machine: cluster.start(machine))  # type: ignore[misc]
    cluster.run(3 * S)
    cluster.until(cluster.is_whole, 20 * S)
    assert [machine.disk for machine in cluster.machines] == disks
    assert [setting(machine) for machine in cluster.machines] == [b"v"] * 3
    cluster.run(S)
    assert not [one for one in cluster.machines if is_in_doubt(one.store, control(one).lineage)]


@pytest.mark.parametrize("seed", range(10))
def test_two_complete_voters_go_on_without_the_third(seed: int) -> None:
    cluster = begun(seed, 3)
    machine = leader(cluster)
    before = machine.disk
    for one in cluster.machines:
        if one is machine:
            lose_power(cluster, one, one.store)
        else:
            cluster.kill(one)
    for one in cluster.machines:
        cluster.start(one)
    cluster.until(cluster.is_whole, 20 * S)
    assert machine.disk != before


@pytest.mark.parametrize("count", [1, 2])
def test_the_last_one_serves_alone(count: int) -> None:
    cluster = begun(1, count)
    machine = leader(cluster)
    before = machine.disk
    for one in cluster.machines[1:]:
        cluster.kill(one)
    cluster.run(5 * S)
    lose_power(cluster, machine, machine.store)
    cluster.start(machine)
    cluster.until(lambda: machine.is_live(cluster.now), 5 * S)
    assert machine.disk == before


def test_a_late_word_of_an_earlier_leader_does_not_make_the_only_voter_another_disk() -> None:
    cluster = begun(3, 2)
    first = leader(cluster)
    last = next(one for one in cluster.machines if one is not first)
    late = Greeting(control(first).cluster, control(first).lineage)
    log = control(first).log
    assert log is not None
    late.live, late.leader, late.term = True, first.disk, log.term
    control(first).leaving = True
    cluster.turn(first)
    cluster.until(lambda: control(first).has_left, 30 * S)
    before = last.disk
    lose_power(cluster, last, last.store)
    cluster.run(3 * S)
    cluster.start(last)
    cluster.until(lambda: control(last).neighbours.of(first.disk) is not None, 5 * S)
    assert control(last).log is not None
    assert not control(last).is_up
    control(last).receive(first.name, CONTROL, late.encoded(), last.clock(cluster.now))
    cluster.turn(last)
    cluster.until(lambda: last.is_live(cluster.now), 10 * S)
    assert last.disk == before


@pytest.mark.parametrize("seed", range(4))
def test_a_side_in_doubt_forks_if_it_may(seed: int) -> None:
    cluster = begun(seed, 3, forks=True)
    first, second, _third = cluster.machines
    for one in cluster.machines:
        lose_power(cluster, one, one.store)
    cluster.start(first)
    cluster.start(second)
    cluster.until(lambda: is_live(cluster), 10 * S)
    cluster.run(5 * S)
    cluster.until(cluster.all_up, 20 * S)


@pytest.mark.parametrize("seed", range(4))
def test_a_term_that_all_voters_have_forgotten_does_not_come_again(seed: int) -> None:
    """A member that is not here may have entries of it: it would take others of one term and index for its own."""
    cluster = begun(seed, 3)
    old = [deepcopy(machine.store) for machine in cluster.machines]
    for _ in range(5):
        before = leader(cluster)
        log = control(before).log
        assert log is not None
        log.transfer(next(disk for disk in log.voters if disk != before.disk), before.clock(cluster.now))
        cluster.turn(before)
        cluster.run(2 * S)
    forgotten = max(terms(cluster))
    for number, machine in enumerate(cluster.machines):
        lose_power(cluster, machine, old[number])
    for machine in cluster.machines:
        cluster.start(machine)
    cluster.until(cluster.is_whole, 20 * S)
    assert min(terms(cluster)) > forgotten


def terms(cluster: Cluster) -> list[int]:
    """Return the terms in which the members are."""
    logs = [control(machine).log for machine in cluster.machines]
    return [0 if log is None else log.term for log in logs]


@pytest.mark.parametrize("seed", range(20))
def test_who_leads_with_the_vote_of_the_newest_goes_on_with_all(seed: int) -> None:
    """A complete voter, which does not know of any doubt, may be elected in place of the one with the newest log."""
    cluster = begun(seed, 3)
    third = next(one for one in cluster.machines if one is not leader(cluster))
    cluster.kill(third)
    cluster.run(5 * S)
    control(leader(cluster)).requests.put("k", b"v", -1, "test")
    cluster.run(S)
    for machine in cluster.machines:
        if machine is not third:
            lose_power(cluster, machine, machine.store)
    disks = [machine.disk for machine in cluster.machines]
    for machine in cluster.machines:
        cluster.at(cluster.rng.below(S), lambda machine=machine: cluster.start(machine))  # type: ignore[misc]
    cluster.run(2 * S)
    cluster.until(cluster.is_whole, 20 * S)
    assert [setting(machine) for machine in cluster.machines] == [b"v"] * 3
    assert [machine.disk for machine in cluster.machines] == disks
    cluster.run(S)
    assert not [one for one in cluster.machines if is_in_doubt(one.store, control(one).lineage)]


@pytest.mark.parametrize("seed", range(10))
def test_a_disk_in_doubt_that_was_forgotten_meanwhile_is_another_disk(seed: int) -> None:
    """It listens to the newest of those that were voters when it was up, which do not tell it anything any more."""
    cluster = begun(seed, 3)
    machine = next(one for one in cluster.machines if one is not leader(cluster))
    disk = machine.disk
    cluster.kill(machine)
    cluster.run(S)
    first = leader(cluster)
    control(first).forget(machine.name, first.clock(cluster.now))
    cluster.run(S)
    for one in cluster.machines:
        lose_power(cluster, one, one.store)
    for one in cluster.machines:
        cluster.start(one)
    cluster.until(cluster.is_whole, 30 * S)
    assert machine.disk != disk


def without_the_third(seed: int, planted: list[str], late: int) -> tuple[Cluster, Machine, Machine]:
    """All end; the third one is lost, and one of the others has not what it confirmed last; return it and the complete.

    It starts first; the complete one `late` after it. It has the lower disk with every other seed.
    """
    cluster = begun(seed, 3, forks=True)
    cluster.planted = planted
    third = cluster.machines[2]
    loser, complete = cluster.machines[:2] if seed % 2 else reversed(cluster.machines[:2])
    old = deepcopy(loser.store)
    control(leader(cluster)).requests.put("k", b"v", -1, "test")
    cluster.until(lambda: all(setting(machine) == b"v" for machine in cluster.machines), 5 * S)
    cluster.run(S)
    cluster.kill(third)
    cluster.kill(complete)
    lose_power(cluster, loser, old)
    cluster.start(loser)
    cluster.at(late, lambda: cluster.start(complete))
    cluster.run(late)
    return cluster, loser, complete


@pytest.mark.parametrize("late", [0, S, 4 * S])
@pytest.mark.parametrize("seed", range(4))
def test_a_complete_disk_forks_in_place_of_one_in_doubt(seed: int, late: int) -> None:
    cluster, loser, complete = without_the_third(seed, [], late)
    before = loser.disk
    cluster.until(cluster.is_whole, 30 * S)
    assert "cluster_forked" in complete.events
    assert "cluster_forked" not in loser.events
    assert loser.disk != before
    assert [setting(loser), setting(complete)] == [b"v", b"v"]


def test_an_incomplete_disk_that_forks_as_a_complete_one_does_is_found() -> None:
    cluster, loser, _complete = without_the_third(1, ["fork_in_doubt"], 2 * S)
    cluster.until(cluster.is_whole, 30 * S)
    assert "cluster_forked" in loser.events


@pytest.mark.parametrize("seed", range(4))
def test_a_fork_of_a_disk_in_doubt_merges_the_copies_of_a_complete_one_that_comes_later(seed: int) -> None:
    cluster, loser, complete = without_the_third(seed, [], 8 * S)
    assert "cluster_forked" in loser.events
    merged: dict[int, bool] = {}

    def is_whole() -> bool:
        configuration = control(loser).configuration
        for number, disks in configuration.branches.items() if configuration is not None else ():
            if complete.disk in disks:
                merged[number] = True
        return cluster.is_whole()

    cluster.until(is_whole, 30 * S)
    assert sorted(merged) == sorted(complete.copies), "all that it has is a branch"


@pytest.mark.parametrize("forks", [False, True])
def test_the_only_voter_in_doubt_forks_if_it_does_not_reach_one_that_may_have_more(forks: bool) -> None:
    cluster = begun(1, 2, forks)
    machine = leader(cluster)
    other = next(one for one in cluster.machines if one is not machine)
    cluster.kill(other)
    lose_power(cluster, machine, machine.store)
    cluster.start(machine)
    cluster.until(lambda: machine.is_live(cluster.now), 5 * S)
    assert "cluster_forked" in machine.events
    assert sorted(machine.copies) == list(range(8))
    cluster.start(other)
    cluster.until(cluster.is_whole, 20 * S)


@pytest.mark.parametrize("late", [0, S, 4 * S, 9 * S])
def test_the_only_voter_in_doubt_does_not_go_on_beside_a_fork_of_a_complete_one(late: int) -> None:
    cluster = begun(1, 2, forks=True)
    machine = leader(cluster)
    other = next(one for one in cluster.machines if one is not machine)
    before = machine.disk
    lose_power(cluster, machine, machine.store)
    cluster.run(late)
    cluster.start(machine)
    cluster.until(cluster.is_whole, 30 * S)
    assert (machine.disk != before) == ("cluster_forked" in other.events)
    assert "cluster_forked" not in machine.events
