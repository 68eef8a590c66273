"""All copies of a partition go at one moment: each is in sync until one comes back, whichever that is."""

from __future__ import annotations

import pytest

from folkmoot.kernel.feature import TOGETHER_BIT
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.lifecycle import is_up
from folkmoot.membership.partition_state import PartitionState
from tests.membership.simulated_control import MS, Cluster, Machine, S
from tests.membership.test_control import control, controller


def begun(seed: int, nodes: int, copies: int, planted: list[str], old: int = 0) -> Cluster:
    """Return a cluster that is whole, with so many copies of each partition; old: members of an older build."""

    def tune(options: ControlOptions) -> None:
        options.copies = copies
        options.gone_ns = 10_000 * S

    cluster = Cluster(seed, nodes, tune)
    cluster.planted = planted
    for machine in cluster.machines[nodes - old :]:
        machine.features = 0
    for machine in cluster.machines:
        cluster.start(machine)
    cluster.until(cluster.is_whole, 30 * S)
    cluster.run(3 * S)
    return cluster


def partitions_of(machine: Machine) -> list[PartitionState]:
    configuration = control(machine).configuration
    assert configuration is not None
    return configuration.partitions


def is_up_at(machine: Machine, other: Machine) -> bool:
    configuration = control(machine).configuration
    assert configuration is not None
    return is_up(configuration.members[other.disk].state)


def isr_of(machine: Machine, number: int) -> list[int]:
    return partitions_of(machine)[number].isr


def go(cluster: Cluster, pair: list[Machine], isolated: bool) -> None:
    for machine in pair:
        if isolated:
            cluster.isolate(machine, cluster.machines, True)
        else:
            cluster.kill(machine)


def serves_with_one_back(seed: int, isolated: bool, planted: list[str]) -> bool:
    """Whether the copy of a pair that went at one moment serves again, while the other one stays away."""
    cluster = begun(seed, 5, 2, planted)
    boss = controller(cluster)
    number = next(n for n, state in enumerate(partitions_of(boss)) if boss.disk not in state.isr)
    pair = [machine for machine in cluster.machines if machine.disk in isr_of(boss, number)]
    go(cluster, pair, isolated)
    cluster.run(10 * S)
    dead = next(machine for machine in pair if machine.disk == isr_of(boss, number)[0])
    back = next(machine for machine in pair if machine is not dead)
    if isolated:
        cluster.isolate(back, [machine for machine in cluster.machines if machine is not dead], False)
    else:
        cluster.start(back)
    cluster.run(60 * S)
    assert is_up_at(boss, back)
    assert not is_up_at(boss, dead)
    return partitions_of(boss)[number].leader == back.disk


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("isolated", [False, True], ids=["killed", "isolated"])
def test_the_copy_that_is_back_serves(seed: int, isolated: bool) -> None:
    assert serves_with_one_back(seed, isolated, [])


@pytest.mark.parametrize("isolated", [False, True], ids=["killed", "isolated"])
def test_it_would_not_if_the_other_one_had_been_left_in_sync_alone(isolated: bool) -> None:
    assert not serves_with_one_back(1, isolated, ["leaves_to_silent"])


def pair_of(cluster: Cluster) -> tuple[int, list[Machine]]:
    """Return a partition of which the controller has no copy, and the machines with its two copies."""
    boss = controller(cluster)
    number = next(n for n, state in enumerate(partitions_of(boss)) if boss.disk not in state.isr)
    return number, [machine for machine in cluster.machines if machine.disk in isr_of(boss, number)]


def never_alone(cluster: Cluster, number: int, pair: list[Machine]) -> bool:
    """Let time pass until both copies are away; tell whether none was in sync alone meanwhile."""
    alone = False
    boss = controller(cluster)
    for _ in range(500):
        cluster.run(10 * MS)
        alone = alone or len(isr_of(boss, number)) < 2
        if not [machine for machine in pair if is_up_at(boss, machine)]:
            return not alone
    raise AssertionError("both are away")


def stall(machine: Machine, flag: bool) -> None:
    """The disk of a machine stands still, which it knows at once; or it goes on."""
    machine.disk_stalled = flag
    control(machine).stalled = flag


@pytest.mark.parametrize("seed", range(2))
def test_a_partition_is_not_left_to_a_member_that_stalls_too(seed: int) -> None:
    """It is heard, and will be away all the same: its lease is not renewed while its disk stands still."""
    cluster = begun(seed, 5, 2, [])
    number, pair = pair_of(cluster)
    stall(pair[0], True)
    cluster.run(200 * MS)
    stall(pair[1], True)
    assert never_alone(cluster, number, pair)
    stall(pair[0], False)
    cluster.run(20 * S)
    assert partitions_of(controller(cluster))[number].leader == pair[0].disk


@pytest.mark.parametrize("seed", range(2))
def test_a_partition_is_not_left_to_a_member_that_is_cut_off_too(seed: int) -> None:
    """It is heard, and will be away all the same: it has no link to others, and its lease is not renewed any more."""
    cluster = begun(seed, 7, 2, [])
    number, pair = pair_of(cluster)
    boss = controller(cluster)
    rest = [machine for machine in cluster.machines if machine not in pair and machine is not boss]
    for machine, others in ((pair[0], rest[:2]), (pair[1], rest[2:4])):
        for other in others:
            cluster.isolate(machine, [other], True)
        cluster.run(300 * MS)
    assert never_alone(cluster, number, pair)


@pytest.mark.parametrize("seed", range(2))
def test_a_partition_is_not_left_to_a_member_that_is_silent_when_the_other_is_put_out(seed: int) -> None:
    """They go with one entry, and then the one that an operator has put out cannot come back."""
    cluster = begun(seed, 5, 2, [])
    number, pair = pair_of(cluster)
    boss = controller(cluster)
    control(boss).evict(pair[0].name)
    cluster.run(300 * MS)
    cluster.isolate(pair[1], cluster.machines, True)
    assert never_alone(cluster, number, pair)
    cluster.run(S)
    configuration = control(boss).configuration
    assert configuration is not None
    put_out = configuration.members[pair[0].disk]
    assert put_out.evicted == put_out.incarnation
    cluster.run(10 * S)
    assert not is_up_at(boss, pair[0])


@pytest.mark.parametrize("seed", range(3))
def test_a_controller_that_stops_and_waits_for_a_silent_member_hands_over_when_it_is_away(seed: int) -> None:
    """A successor knows no leases and waits for one: the process would have ended before it is away."""
    cluster = begun(seed, 5, 2, [])
    boss = controller(cluster)
    number = next(n for n, state in enumerate(partitions_of(boss)) if boss.disk in state.isr and len(state.isr) == 2)
    silent = next(m for m in cluster.machines if m.disk in isr_of(boss, number) and m is not boss)
    witness = next(m for m in cluster.machines if m not in (silent, boss))
    cluster.isolate(silent, cluster.machines, True)
    cluster.run(300 * MS)
    control(boss).stopping = True
    began = cluster.now
    cluster.until(lambda: control(boss).is_away, 5 * S)
    assert cluster.now - began < 900 * MS
    assert sorted(isr_of(witness, number)) == sorted([boss.disk, silent.disk])


@pytest.mark.parametrize("isolated", [False, True], ids=["killed", "isolated"])
def test_while_a_member_may_not_know_entries_of_several_each_is_one(isolated: bool) -> None:
    """An older build cannot read them: it would stop at the first one, and at each start again."""
    cluster = begun(1, 5, 2, [], old=1)
    boss = controller(cluster)
    configuration = control(boss).configuration
    assert configuration is not None
    assert not configuration.goes_together()
    number = next(n for n, state in enumerate(configuration.partitions) if boss.disk not in state.isr)
    pair = [machine for machine in cluster.machines if machine.disk in isr_of(boss, number)]
    go(cluster, pair, isolated)
    cluster.run(10 * S)
    assert not [machine for machine in pair if is_up_at(boss, machine)]
    configuration = control(boss).configuration
    assert configuration is not None
    versions = [configuration.members[machine.disk].version for machine in pair]
    assert len(set(versions)) == 2, "each was changed by an entry of its own"
    assert len(isr_of(boss, number)) == 1


def test_such_entries_begin_when_the_last_member_of_an_older_build_is_gone() -> None:
    cluster = begun(1, 5, 2, [], old=1)
    old = cluster.machines[-1]
    cluster.kill(old)
    old.features = TOGETHER_BIT
    cluster.start(old)
    cluster.until(cluster.is_whole, 30 * S)
    cluster.run(3 * S)
    configuration = control(controller(cluster)).configuration
    assert configuration is not None
    assert configuration.goes_together()


@pytest.mark.parametrize("seed", range(2))
def test_two_of_three_copies_serve_when_they_boot_later_than_the_others_after_a_loss_of_all_power(seed: int) -> None:
    cluster = begun(seed, 7, 3, [])
    log = control(controller(cluster)).log
    assert log is not None
    voters = list(log.voters)
    partitions = log.configuration.partitions
    number = next(
        n for n, state in enumerate(partitions) if 2 * len([v for v in voters if v not in state.isr]) > len(voters)
    )
    late = [machine for machine in cluster.machines if machine.disk in partitions[number].isr]
    early = [machine for machine in cluster.machines if machine not in late]
    for machine in cluster.machines:
        cluster.kill(machine)
    cluster.run(2 * S)
    for machine in early:
        cluster.start(machine)
    cluster.run(8 * S)
    dead = next(machine for machine in late if machine.disk == isr_of(controller(cluster), number)[0])
    for machine in late:
        if machine is not dead:
            cluster.start(machine)
    cluster.run(60 * S)
    state = partitions_of(early[0])[number]
    assert state.leader
    assert sorted(state.isr) == sorted([machine.disk for machine in late if machine is not dead])
