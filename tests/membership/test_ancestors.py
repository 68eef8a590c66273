"""Ancestors of a lineage: those from which nothing can come any more are forgotten, so sides can always fork."""

from __future__ import annotations

from functools import partial

import pytest

from folkmoot.kernel.rng import Rng
from folkmoot.membership.command import CUT_OFF, Activate, Join, MarkAway, Prune
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.configuration_format import decode_configuration, encode_configuration
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.fork import Lineage, fork_of, lineage_in, outranks, trunk_of
from folkmoot.membership.holding import COMPLETE, Holding
from folkmoot.membership.lifecycle import is_up
from folkmoot.membership.log_rows import is_retired, put_left, retire_lineage, retire_lineages
from folkmoot.membership.projection import branches_of, epoch_of, view_of
from folkmoot.membership.transition import ACCEPTED, INVALID, UNCHANGED, WRONG_STATE, Transition
from folkmoot.store.key import META, end_of, plain_key
from folkmoot.store.memory import MemoryStore
from folkmoot.store.writer import Writer
from tests.membership.reference import Drawer, Reference, founded, member, process
from tests.membership.simulated_control import Cluster, Machine, S
from tests.membership.test_control import control

ANCESTORS_MAX = 16
SEED = 2  # of a run in which the old lineage is the stronger one


def begun(seed: int, count: int, planted: list[str] | None = None) -> Cluster:
    """A cluster that forks sixteen times before it has to forget something."""

    def tune(options: ControlOptions) -> None:
        options.ancestors_max = ANCESTORS_MAX
        options.copies = count

    cluster = Cluster(seed, count, tune)
    cluster.planted = planted or []
    for machine in cluster.machines:
        cluster.start(machine)
    cluster.until(cluster.is_whole, 10 * S)
    return cluster


def configuration(machine: Machine) -> ClusterConfiguration:
    found = control(machine).configuration
    assert found is not None
    return found


def have_forked(cluster: Cluster, machines: list[Machine], before: int) -> bool:
    return all(one.is_live(cluster.now) and control(one).lineage != before for one in machines)


def fork(cluster: Cluster, machines: list[Machine]) -> int:
    """Cut these machines off from all others until each has forked; return the lineage that goes on."""
    before = control(machines[0]).lineage
    for machine in machines:
        cluster.isolate(machine, cluster.machines, True)
    cluster.until(partial(have_forked, cluster, machines, before), 30 * S)
    for machine in machines:
        cluster.isolate(machine, cluster.machines, False)
    cluster.until(cluster.is_whole, 60 * S)
    cluster.run(2 * S)
    return control(machines[0]).lineage


def lineages_on(machine: Machine) -> dict[int, int]:
    """Return the lineages of which a disk has rows, and how many."""
    start = plain_key(0, META, b"raft")
    found: dict[int, int] = {}
    for key, _value in machine.store.scan(start, end_of(start), 100_000):
        lineage = int.from_bytes(key[len(start) : len(start) + 8], "big")
        found[lineage] = found.get(lineage, 0) + 1
    return found


def test_a_cluster_forks_more_often_than_it_remembers() -> None:
    cluster = begun(1, 3)
    last = 0
    for _ in range(2 * ANCESTORS_MAX):
        last = fork(cluster, cluster.machines)
        found = configuration(cluster.machines[0])
        assert len(found.ancestors) <= ANCESTORS_MAX // 2
        assert found.ancestors[-1][0] == found.parent
        found.check()
    assert found.floor > 0, "some are forgotten"
    for machine in cluster.machines:
        known = [last, *[lineage for lineage, _counter in found.ancestors]]
        assert [lineage for lineage, rows in lineages_on(machine).items() if rows > 1 and lineage not in known] == []
    for machine in cluster.machines:
        cluster.kill(machine)
    for machine in cluster.machines:
        cluster.start(machine)
    cluster.until(cluster.is_whole, 20 * S)


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
def test_a_node_that_was_forgotten_before_comes_back_from_a_lineage_that_nobody_knows_any_more(seed: int) -> None:
    assert comes_back(seed, []) == []


def test_members_would_go_over_to_a_lineage_that_all_have_left() -> None:
    assert comes_back(SEED, ["follows_the_old"])


def comes_back(seed: int, planted: list[str]) -> list[str]:
    """Return what went wrong when a node comes back after so many forks that its lineage is forgotten.

    It leads all that it had a copy of, so it is the strongest, and has acknowledged what nobody else has.
    """
    cluster = begun(seed, 4, planted)
    old, others = cluster.machines[3], cluster.machines[:3]
    before = control(old).lineage
    cluster.isolate(old, others, True)
    cluster.until(partial(have_forked, cluster, [old], before), 30 * S)
    cluster.until(lambda: control(others[0]).is_live(others[0].clock(cluster.now)), 30 * S)
    held, disk = control(old).lineage, old.disk
    cluster.run(5 * S)
    control(others[0]).forget(old.name, others[0].clock(cluster.now))
    cluster.until(lambda: old.disk not in configuration(others[0]).members, 20 * S)
    for _ in range(8):
        fork_beside(cluster, others)
    found = configuration(others[0])
    assert before not in dict(found.ancestors)
    assert found.floor
    known = {control(machine).lineage for machine in others}
    wrong: list[str] = []
    cluster.isolate(old, others, False)
    since = cluster.now
    branches: dict[int, bool] = {}
    while cluster.now - since < 60 * S and not (old.disk != disk and cluster.is_whole()):
        cluster.run(S // 20)
        gone = [machine for machine in others if machine.control is not None and control(machine).lineage == held]
        wrong.extend([f"{machine.name} has gone over to the old lineage" for machine in gone])
        now = control(others[0]).configuration
        if now is not None:
            branches.update(dict.fromkeys(now.branches, True))
    if old.disk == disk:
        wrong.append("the old disk is a member")
    if {control(machine).lineage for machine in cluster.machines} != known:
        wrong.append("the lineage is another one")
    if not branches:
        wrong.append("what it has acknowledged is not merged")
    return wrong


def fork_beside(cluster: Cluster, machines: list[Machine]) -> None:
    """Let some machines fork and meet again while others are cut off from them."""
    before = control(machines[0]).lineage
    for machine in machines:
        cluster.isolate(machine, machines, True)
    cluster.until(partial(have_forked, cluster, machines, before), 30 * S)
    for machine in machines:
        cluster.isolate(machine, machines, False)
    cluster.until(partial(are_one, cluster, machines), 60 * S)
    cluster.run(2 * S)


def are_one(cluster: Cluster, machines: list[Machine]) -> bool:
    if len({control(machine).lineage for machine in machines}) > 1:
        return False
    return all(machine.is_live(cluster.now) for machine in machines) and not configuration(machines[0]).branches


# The rule


def descended(count: int) -> tuple[Transition, list[ClusterConfiguration]]:
    """A lineage with so many ancestors, in which all three members have come up; and these ancestors."""
    transition = Transition(ClusterConfiguration())
    transition.apply_command(2, founded([1, 2, 3], 2))
    parents: list[ClusterConfiguration] = []
    for number in range(count):
        before = transition.configuration
        parents.append(before)
        away = [(disk, before.members[disk].incarnation) for disk in before.disks()]
        transition = Transition(fork_of(before, 100 + number, away))
        for disk in before.disks():
            come(transition, disk, [])
    return transition, parents


def come(transition: Transition, disk: int, branches: list[int]) -> None:
    member = transition.configuration.members[disk]
    started = Activate(disk, member.version, process(member.incarnation + 1, disk), 0, branches)
    assert transition.apply_command(transition.configuration.index + 1, started).is_accepted()


def prune(transition: Transition, upto: int) -> int:
    return transition.apply_command(transition.configuration.index + 1, Prune(upto)).refused


def test_ancestors_are_forgotten_when_nothing_can_come_from_them() -> None:
    transition, parents = descended(4)
    found = transition.configuration
    shared = [counter for _lineage, counter in found.ancestors]
    assert prune(transition, shared[-1]) == INVALID, "the parent stays"
    away = MarkAway(2, found.members[2].incarnation, found.members[2].version, CUT_OFF)
    transition.apply_command(found.index + 1, away)
    assert prune(transition, shared[1]) == WRONG_STATE, "a member may come from another lineage"
    come(transition, 2, [0])
    assert transition.apply_command(found.index + 1, Join(member(7))).is_accepted(), "it has never been up"
    assert prune(transition, shared[1]) == ACCEPTED, "none was in sync there: the copy is the partition"
    assert ([lineage for lineage, _counter in found.ancestors], found.floor) == ([101, 102], shared[1])
    assert prune(transition, shared[1]) == UNCHANGED
    assert prune(transition, 1) == UNCHANGED
    found.check()
    data = encode_configuration(found)
    assert (data[0], encode_configuration(decode_configuration(data))) == (2, data)
    assert fork_of(found, 7, []).floor == found.floor, "forks have forgotten them too"
    assert parents[0].floor == 0
    assert encode_configuration(parents[0])[0] == 1


def test_an_ancestor_stays_while_the_epoch_of_a_start_names_it() -> None:
    transition, _parents = descended(2)
    for number in range(3):
        before = transition.configuration
        away = [(disk, before.members[disk].incarnation) for disk in (2, 3)]
        transition = Transition(fork_of(before, 200 + number, away))  # the first one founds them all
        for disk in (2, 3):
            come(transition, disk, [])
    found = transition.configuration
    bases = view_of(found).bases
    assert prune(transition, found.prunable(1)) == ACCEPTED
    assert [lineage for lineage, _counter in found.ancestors] == [101, 201]
    assert view_of(found).bases == bases


@pytest.mark.parametrize("disk", [1, 9])
def test_copies_of_members_that_nobody_has_changed_since_are_no_branches(disk: int) -> None:
    transition, parents = descended(4)
    found = transition.configuration
    idle = Holding(COMPLETE, epoch_of(parents[0]), 7, [(epoch_of(parents[0]), 0)])
    assert branches_of([idle], found, disk) == []
    assert view_of(found).shares(idle.epoch)
    assert prune(transition, found.prunable(1)) == ACCEPTED
    assert branches_of([idle], found, disk) == ([] if disk == 1 else [0]), "of a stranger nobody knows"
    assert view_of(found).shares(idle.epoch)
    later = Holding(COMPLETE, epoch_of(fork_of(found, 8, [])), 9, [(epoch_of(found), 0)])
    assert branches_of([later], found, disk) == [0]
    assert not view_of(found).shares(later.epoch)


def test_a_lineage_outlives_those_of_the_time_that_it_has_forgotten() -> None:
    transition, parents = descended(6)
    found = transition.configuration
    beside = fork_of(parents[1], 50, [])
    beside.strength = 2
    assert outranks(lineage_in(beside), lineage_in(found)), "it is stronger"
    assert prune(transition, found.prunable(2)) == ACCEPTED
    now = lineage_in(found)
    old = [lineage_in(parent) for parent in parents[:4]]
    for one in [lineage_in(beside), *old]:
        assert now.outlives(one)
        assert not one.outlives(now)
        assert outranks(now, one)
        assert trunk_of([one, now]) is now
        assert trunk_of([now, one, lineage_in(parents[5])]).lineage == parents[5].lineage, "it knows that one"
    for parent in parents[4:]:
        assert not now.outlives(lineage_in(parent)), "it knows that one"
        assert outranks(lineage_in(parent), now)
    young = fork_of(found, 51, [])
    assert not lineage_in(young).outlives(now)
    assert not now.outlives(lineage_in(young))
    assert lineage_in(young).outlives(lineage_in(beside))
    strange = Lineage(60, [1], 9, found.floor + 1, 0)
    assert not now.outlives(strange), "it may have parted from one that is known"


def compared(seed: int) -> int:
    """Fork, come back and prune at random, and compare with the reference; return how often it was accepted."""
    drawer, rng = Drawer(seed), Rng(seed)
    transition, reference = Transition(ClusterConfiguration()), Reference()
    index, accepted = 2, 0
    assert reference.apply(2, founded([10, 11, 12], 3, witnesses=[13]))
    transition.apply_command(2, founded([10, 11, 12], 3, witnesses=[13]))
    for number in range(30):
        parent = transition.configuration
        absent = [disk for disk in parent.disks() if rng.chance(2, 3)]
        dead = [parent.members[disk] for disk in absent if is_up(parent.members[disk].state)]
        fork = fork_of(parent, 1000 + number, [(one.disk, one.incarnation) for one in dead])
        index += 1
        reference.fork(index, [MarkAway(one.disk, one.incarnation, one.version, CUT_OFF) for one in dead])
        transition = Transition(fork)
        for disk in fork.disks():
            if not is_up(fork.members[disk].state) and rng.chance(9, 10):
                index += 1
                member = fork.members[disk]
                started = Activate(disk, member.version, process(member.incarnation + 1, disk))
                assert transition.apply_command(index, started).is_accepted()
                assert reference.apply(index, started)
        for _ in range(rng.below(4)):
            index += 1
            newest = [counter for _lineage, counter in fork.ancestors[-3:]]
            upto = 1 + rng.below(fork.counter()) if rng.chance(1, 3) else newest[rng.below(len(newest))]
            command = Prune(upto) if rng.chance(2, 3) else drawer.draw(fork)
            done = transition.apply_command(index, command).is_accepted()
            assert done == reference.apply(index, command)
            accepted += done and isinstance(command, Prune)
            reference.compare(fork)
            fork.check()
    return accepted


def test_the_reference_forgets_the_same() -> None:
    assert sum(compared(seed) for seed in range(20)) > 20


# What operators see


def test_few_forks_are_left_while_a_member_is_away() -> None:
    cluster = begun(3, 4)
    away, others = cluster.machines[3], cluster.machines[:3]
    cluster.kill(away)
    cluster.run(5 * S)
    while len(configuration(others[0]).ancestors) < ANCESTORS_MAX - 1:
        assert not [machine for machine in others if "forks_short" in machine.events]
        fork_beside(cluster, others)
    assert [machine for machine in others if "forks_short" in machine.events]
    assert "forks_short left=1 why=" in " ".join(cluster.log)
    cluster.start(away)
    cluster.until(cluster.is_whole, 30 * S)
    cluster.run(3 * S)
    assert len(configuration(away).ancestors) < 5
    for _ in range(3):
        fork(cluster, cluster.machines)


# What disks keep


def test_a_disk_keeps_the_newest_lineages_that_it_has_left() -> None:
    store = MemoryStore()
    for number in range(1, 31):
        writer = Writer(4, 1)
        put_left(writer, 1000 - number, number)
        apply(store, writer)
    writer = Writer(4, 1)
    assert retire_lineages(writer, store, [999, 998], 40, False) == 30 - 2 - 16
    apply(store, writer)
    assert [number for number in range(1, 31) if is_retired(store, 1000 - number)] == list(range(3, 15))
    writer = Writer(4, 1)
    assert retire_lineages(writer, store, [999], 50, True) == 17
    apply(store, writer)
    assert [number for number in range(1, 31) if not is_retired(store, 1000 - number)] == [1]


def test_a_disk_forgets_what_it_has_retired_long_ago() -> None:
    store = MemoryStore()
    writer = Writer(4, 1)
    for number in range(1, 1031):
        retire_lineage(writer, 5000 - number, number)
    apply(store, writer)
    writer = Writer(4, 1)
    assert retire_lineages(writer, store, [], 2000, True) == 0
    apply(store, writer)
    assert [number for number in range(1, 1031) if not is_retired(store, 5000 - number)] == list(range(1, 7))


def apply(store: MemoryStore, writer: Writer) -> None:
    batch = writer.take()
    assert batch is not None
    store.apply(batch)
