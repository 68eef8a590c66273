"""Forks: what a lineage begins with, against the naive reference, and which lineage is the trunk."""

from __future__ import annotations

from itertools import permutations

import pytest

from folkmoot.kernel.rng import Rng
from folkmoot.membership.command import (
    CUT_OFF,
    FORGOTTEN,
    REPLACED,
    STOPPED,
    Activate,
    Evict,
    Join,
    MarkAway,
    Place,
    PlaceItem,
    Put,
    Remove,
)
from folkmoot.membership.configuration import ANCESTORS_MAX, ClusterConfiguration
from folkmoot.membership.configuration_format import decode_configuration, encode_configuration
from folkmoot.membership.configuration_log import ConfigurationLog
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.fork import Lineage, fork_of, lineage_in, outranks, trunk_of
from folkmoot.membership.holding import COMPLETE, Holding
from folkmoot.membership.lifecycle import ACTIVE, AWAY, JOINING, is_up
from folkmoot.membership.loss import cost_of
from folkmoot.membership.neighbours import Neighbour, Neighbours
from folkmoot.membership.placement_plan import PlanLimits, plan
from folkmoot.membership.planted import PlantedControl
from folkmoot.membership.projection import branches_of, epoch_of
from folkmoot.membership.splits import Splits
from folkmoot.membership.transition import ACCEPTED, INELIGIBLE, LAST_COPY, Transition
from folkmoot.peer.member import ACTIVE as LIVES
from folkmoot.peer.member import Member
from tests.membership.reference import Drawer, Reference, founded, member, process


def cluster(*replicas: list[int]) -> ClusterConfiguration:
    """Five members with these copies, at a counter that is not the index."""
    transition = Transition(ClusterConfiguration())
    transition.apply_command(2, founded([1, 2, 3, 4, 5], len(replicas)))
    transition.apply_command(3, Place([PlaceItem(number, 0, disks) for number, disks in enumerate(replicas)]))
    transition.apply_command(5, Activate(5, 0, process(2, 5), 99))
    assert transition.configuration.counter() == 100
    return transition.configuration


def comes(transition: Transition, disk: int, branches: list[int]) -> None:
    """A member comes up by a new process, with changes of another lineage."""
    member = transition.configuration.members[disk]
    started = Activate(disk, member.version, process(member.incarnation + 1, disk), 0, branches)
    assert transition.apply_command(transition.configuration.index + 1, started).is_accepted()
    transition.configuration.check()


def test_a_fork_goes_on_behind_what_it_shares() -> None:
    parent = cluster([1, 2, 3], [3, 4, 5], [2, 5, 1])
    before = encode_configuration(parent)
    fork = fork_of(parent, 7, [(3, 1), (4, 1), (5, 2)])
    assert encode_configuration(parent) == before, "the parent is unchanged"
    assert (fork.lineage, fork.parent, fork.parent_index, fork.index) == (7, 1, 5, 6)
    assert fork.ancestors == [(1, 100)]
    assert fork.counter() == fork.changed == 101
    assert [fork.members[disk].state for disk in (1, 2, 3, 4, 5)] == [ACTIVE, ACTIVE, AWAY, AWAY, AWAY]
    assert (fork.members[3].away, fork.members[3].why, fork.members[3].version) == (101, CUT_OFF, 6)
    assert [(state.isr, state.leader) for state in fork.partitions] == [([1, 2], 1), ([3, 4, 5], 0), ([2, 1], 2)]
    assert fork.strength == 2
    persisted = ConfigurationLog.fork(fork, 1)
    assert persisted.snapshot.index == 6
    assert encode_configuration(decode_configuration(persisted.snapshot.data)) == persisted.snapshot.data


def test_a_fork_places_nothing_that_its_parent_may_have_placed_until_all_have_come() -> None:
    transition = Transition(ClusterConfiguration())
    transition.apply_command(2, founded([1, 2, 3], 1))
    fork = fork_of(transition.configuration, 7, [(2, 1), (3, 1)])
    assert [(state.replicas, state.isr, state.leader) for state in fork.partitions] == [([], [], 0)]
    place = Place([PlaceItem(0, 0, [1])])
    forked = Transition(fork)
    assert forked.apply_command(fork.index + 1, place).refused == INELIGIBLE
    assert plan(fork, PlanLimits(), [1], [2, 3]) == []
    comes(forked, 2, [])
    assert forked.apply_command(fork.index + 1, place).refused == INELIGIBLE
    comes(forked, 3, [])
    assert [command.kind for command in plan(fork, PlanLimits(), [1], [])] == [place.kind]
    assert forked.apply_command(fork.index + 1, place).is_accepted()


def test_a_fork_by_order_is_without_those_who_will_not_come_back() -> None:
    parent = cluster([1, 2, 3], [3, 4], [2, 5, 1])
    fork = fork_of(parent, 7, [(3, 1), (4, 1), (5, 2)], 1, [3, 4])
    assert [(disk, member.state) for disk, member in fork.members.items()] == [(1, ACTIVE), (2, AWAY), (5, AWAY)]
    assert [(removal.disk, removal.index, removal.why) for removal in fork.removed] == [
        (3, 6, FORGOTTEN),
        (4, 6, FORGOTTEN),
    ]
    assert fork.lost == {1: 6}, "nobody else has what they had"
    assert [(state.replicas, state.isr) for state in fork.partitions] == [([1, 2], [1]), ([], []), ([2, 5, 1], [1])]
    assert encode_configuration(decode_configuration(encode_configuration(fork))) == encode_configuration(fork)
    assert fork.strength == 2


@pytest.mark.parametrize("founder", [1, 2, 3])
def test_a_founder_that_knew_more_of_the_parent_comes_up_anew_and_keeps_its_copies(founder: int) -> None:
    parent = cluster([1, 2, 3], [4, 5])
    fork = fork_of(parent, 7, [(4, 1), (5, 2)], founder, anew=True)
    assert [fork.members[disk].state for disk in (1, 2, 3, 4, 5)] == [AWAY] * 5
    assert [(state.isr, state.leader) for state in fork.partitions] == [([founder], 0), ([4, 5], 0)]
    transition = Transition(fork)
    incarnation = fork.members[founder].incarnation
    started = Activate(founder, fork.members[founder].version, process(incarnation, founder), 200, [0])
    assert transition.apply_command(fork.index + 1, started).is_accepted()
    assert fork.counter() > 200
    assert [(state.isr, state.leader) for state in fork.partitions] == [([founder], founder), ([4, 5], 0)]


def test_only_the_process_that_is_absent_goes_away() -> None:
    parent = cluster([1, 2, 3])
    transition = Transition(parent)
    transition.apply_command(6, Join(member(6)))
    transition.apply_command(7, MarkAway(2, 1, parent.members[2].version, STOPPED))
    fork = fork_of(parent, 7, [(5, 1), (6, 1), (2, 1), (99, 1), (3, 1), (3, 1)])
    assert fork.members[5].state == ACTIVE, "it has started again since"
    assert fork.members[6].state == JOINING, "it was not up"
    assert fork.members[2].why == STOPPED, "it was away before"
    assert fork.members[3].state == AWAY
    assert fork.partitions[0].isr == [1]


@pytest.mark.parametrize("first", [1, 2, 4])
def test_an_absent_partition_is_led_by_whichever_of_its_copies_comes_first(first: int) -> None:
    parent = cluster([1, 2, 4], [3, 1, 5])
    fork = fork_of(parent, 7, [(disk, parent.members[disk].incarnation) for disk in (1, 2, 4, 5)], 3)
    assert [is_up(fork.members[disk].state) for disk in (1, 2, 3, 4, 5)] == [False, False, True, False, False]
    assert [(state.isr, state.leader) for state in fork.partitions] == [([1, 2, 4], 0), ([3], 3)]
    assert fork.strength == 1
    transition = Transition(fork)
    comes(transition, first, [])
    assert (fork.partitions[0].isr, fork.partitions[0].leader) == ([first], first)
    later = [disk for disk in (1, 2, 4) if disk != first]
    comes(transition, later[0], [])
    comes(transition, later[1], [0])
    assert (fork.partitions[0].isr, fork.partitions[0].leader) == ([first], first)
    assert fork.branches == {0: [later[1]]}, "what it has changed in the parent since is merged"


def test_an_absent_copy_with_changes_of_the_parent_is_the_partition_if_it_comes_first() -> None:
    fork = fork_of(cluster([1, 2, 4]), 7, [(1, 1), (2, 1), (4, 1)])
    transition = Transition(fork)
    comes(transition, 5, [0])
    assert (fork.partitions[0].isr, fork.partitions[0].leader) == ([1, 2, 4], 0), "it was not in sync"
    comes(transition, 2, [0])
    assert (fork.partitions[0].isr, fork.partitions[0].leader) == ([2], 2)
    assert fork.branches == {0: [5]}


def test_an_absent_partition_outlives_the_disk_of_one_of_its_copies() -> None:
    fork = fork_of(cluster([1, 2]), 7, [(1, 1), (2, 1)])
    transition = Transition(fork)
    evicted = Evict(2, 1)
    assert transition.apply_command(fork.index + 1, evicted).is_accepted()
    assert fork.partitions[0].isr == [1, 2], "what it has is as good as before"
    replaced = Remove(2, fork.members[2].version, REPLACED, True)
    assert transition.apply_command(fork.index + 1, replaced).is_accepted()
    assert (fork.partitions[0].isr, fork.lost) == ([1], {})
    comes(transition, 1, [])
    assert (fork.partitions[0].isr, fork.partitions[0].leader) == ([1], 1)


def test_a_fork_without_absent_members_has_other_roles_than_its_parent_all_the_same() -> None:
    parent = cluster([1, 2, 3])
    transition = Transition(parent)
    assert transition.apply_command(6, Put("k", b"", -1, "a")).is_accepted()
    assert parent.changed < parent.counter()
    fork = fork_of(parent, 7, [])
    assert (fork.changed, fork.strength) == (parent.counter() + 1, 1)


def test_all_ancestors_are_known_and_what_they_share_is_no_branch() -> None:
    found = cluster([1])
    holding = Holding(COMPLETE, epoch_of(found), 7, [(epoch_of(found), 0)])
    first = found.lineage
    for lineage in range(first + 1, first + 41):
        found = fork_of(found, lineage, [])
    assert [one[0] for one in found.ancestors] == list(range(first, first + 40))
    assert found.ancestors[-1] == (found.parent, found.counter() - 1)
    assert branches_of([holding], found) == [], "an idle partition was changed last before the first fork"
    assert trunk_of([lineage_in(found), lineage_in(cluster([1]))]).lineage == first
    with pytest.raises(AssertionError, match="a fork is new"):
        fork_of(found, first + 10, [])
    with pytest.raises(AssertionError, match="a fork is new"):
        fork_of(found, found.lineage, [])


def silent(now: int) -> Splits:
    """Return what the process on disk 1 sees, which has been silent for long."""
    me = Neighbour(Member("n1", 1 << 40, "n1", "", LIVES), 0)
    me.disk = 1
    splits = Splits(me, Neighbours(1), ControlOptions(), PlantedControl([]))
    splits.begin(1)
    splits.look(False, False, 2)
    splits._seen_ns = now
    return splits


def test_a_side_whose_lineage_has_as_many_ancestors_as_can_be_waits() -> None:
    found = cluster([1])
    found.ancestors = [(1000 + number, number + 1) for number in range(ANCESTORS_MAX)]
    now = 100_000_000_000
    splits = silent(now)
    assert not splits.forks(found, [1], found.index, False, now)
    found.ancestors.pop()
    assert splits.forks(found, [1], found.index, False, now)


def test_a_process_whose_log_has_a_leader_waits_for_its_lease() -> None:
    found = cluster([1])
    now = 100_000_000_000
    splits = silent(now)
    assert not splits.forks(found, [1], found.index, True, now)
    assert splits.forks(found, [1], found.index, False, now)


def test_the_silence_of_a_process_counts_from_when_its_log_last_had_a_leader() -> None:
    found = cluster([1])
    now = 100_000_000_000
    splits = silent(now)
    splits.look(False, True, now)
    now += 2 * ControlOptions().fork_ns
    splits._seen_ns = now
    assert not splits.forks(found, [1], found.index, False, now - 1)
    assert splits.forks(found, [1], found.index, False, now)


def forked(seed: int) -> int:
    """Compare forks with the reference; return the absent partitions with several copies that were met."""
    drawer = Drawer(seed)
    rng = Rng(seed)
    transition = Transition(ClusterConfiguration())
    reference = Reference()
    index = 2
    kept = 0
    for number in range(400):
        command = drawer.draw(transition.configuration) if number else founded([10, 11, 12], 3)
        assert transition.apply_command(index, command).is_accepted() == reference.apply(index, command)
        index += 1
        if number % 20 < 19:
            continue
        parent = transition.configuration
        crowded = max(parent.partitions, key=lambda state: len(state.isr))
        absent = [disk for disk in parent.disks() if disk in crowded.isr or rng.chance(1, 3)]
        fork = fork_of(parent, 1000 + index, [(disk, parent.members[disk].incarnation) for disk in absent])
        assert fork.index == index
        assert not [disk for disk in absent if is_up(fork.members[disk].state)]
        dead = [parent.members[disk] for disk in absent if is_up(parent.members[disk].state)]
        reference.fork(index, [MarkAway(one.disk, one.incarnation, one.version, CUT_OFF) for one in dead])
        reference.compare(fork)
        kept += len([state for state in fork.partitions if len(state.isr) > 1 and not state.leader])
        assert fork.strength == len([state for state in fork.partitions if state.leader])
        transition = Transition(fork)
        index += 1
    reference.compare(transition.configuration)
    transition.configuration.check()
    return kept


def test_a_fork_is_what_the_reference_says_and_goes_on() -> None:
    kept = sum(forked(seed) for seed in range(400, 410))
    assert kept, "a partition was absent that has several copies"


# The trunk


def test_of_two_lineages_the_ancestor_is_the_trunk() -> None:
    root = Lineage(9, [], 0)
    child = Lineage(5, [9], 200)
    grandchild = Lineage(3, [9, 5], 100)
    strong = Lineage(4, [9, 5], 256)
    for one, other in ((root, child), (child, grandchild), (root, grandchild), (child, strong)):
        assert outranks(one, other), "whatever their strengths"
        assert not outranks(other, one)


def test_of_two_strangers_the_stronger_one_is_the_trunk() -> None:
    one = Lineage(5, [1], 10)
    assert outranks(Lineage(6, [1], 11), one)
    assert not outranks(one, Lineage(6, [1], 11))
    assert outranks(Lineage(4, [1], 10), one), "the lower one of equals"
    assert not outranks(one, Lineage(4, [1], 10))
    assert not outranks(one, one)


def test_three_lineages_that_outrank_each_other_have_one_trunk() -> None:
    weak = Lineage(5, [1], 10)
    child = Lineage(6, [1, 5], 30)
    stranger = Lineage(7, [1], 20)
    assert outranks(weak, child)
    assert outranks(child, stranger)
    assert outranks(stranger, weak)
    for order in permutations([weak, child, stranger]):
        assert trunk_of(list(order)) is stranger
    for order in permutations([weak, child, stranger, Lineage(1, [], 0)]):
        assert trunk_of(list(order)).lineage == 1
    circle = [Lineage(5, [1, 7], 10), Lineage(6, [1, 5], 30), Lineage(7, [1, 6], 20)]
    for order in permutations(circle):
        assert trunk_of(list(order)).lineage == 6, "no correct members say so; whoever hears it decides the same"
    assert trunk_of([child]) is child
    assert trunk_of([child, weak]) is weak


def test_a_fork_is_ranked_below_what_it_comes_from() -> None:
    parent = cluster([1, 2, 3], [3, 4, 5])
    fork = fork_of(parent, 7, [(3, 1), (4, 1), (5, 2)])
    twin = fork_of(parent, 8, [(1, 1), (2, 1)])
    below = fork_of(twin, 9, [])
    assert [lineage_in(one).strength for one in (parent, fork, twin, below)] == [0, 1, 2, 2]
    for one in (fork, twin, below):
        assert outranks(lineage_in(parent), lineage_in(one))
    assert outranks(lineage_in(twin), lineage_in(fork))
    assert outranks(lineage_in(twin), lineage_in(below))


def test_a_fork_that_a_witness_left_first_is_no_trunk() -> None:
    parent = ClusterConfiguration()
    transition = Transition(parent)
    assert transition.apply_command(1, founded([2, 3], witnesses=[1])).is_accepted()
    fork = fork_of(parent, 7, [], 3)
    assert [disk for disk in fork.disks() if is_up(fork.members[disk].state)] == [3]
    assert fork.trunk == parent.lineage
    assert fork_of(parent, 7, [(1, 1), (2, 1)], 3, [1, 2]).trunk == 7, "nobody else will be back"


def test_of_two_removals_that_give_up_the_last_copy_together_the_second_is_refused() -> None:
    parent = cluster([4, 5], [1, 4])
    transition = Transition(fork_of(parent, 7, [(4, 1), (5, 2)], 1))
    for disk in (4, 5):
        assert cost_of(transition.configuration, disk).copies == [], "the other one has the same"
    orders = [Remove(disk, transition.configuration.members[disk].version, FORGOTTEN, False) for disk in (4, 5)]
    results = [transition.apply_command(transition.configuration.index + 1, order) for order in orders]
    assert [result.refused for result in results] == [ACCEPTED, LAST_COPY]
    cost = results[1].cost
    assert cost is not None
    assert (cost.copies, cost.branches) == ([0], [])
    by_force = Remove(5, transition.configuration.members[5].version, FORGOTTEN, True)
    assert transition.apply_command(transition.configuration.index + 1, by_force).is_accepted()
    assert transition.configuration.lost == {0: transition.configuration.index}


def test_who_has_one_of_the_last_copies_of_what_was_given_up_is_not_removed_without_force() -> None:
    transition = Transition(cluster([1, 4, 5]))
    for disk in (4, 5, 1):
        member = transition.configuration.members[disk]
        away = MarkAway(disk, member.incarnation, member.version, STOPPED)
        assert transition.apply_command(transition.configuration.index + 1, away).is_accepted()
    assert transition.configuration.partitions[0].isr == [1]
    for disk, force in ((1, True), (4, False)):
        removed = Remove(disk, transition.configuration.members[disk].version, FORGOTTEN, force)
        result = transition.apply_command(transition.configuration.index + 1, removed)
        assert result.refused == (ACCEPTED if force else LAST_COPY)


@pytest.mark.parametrize("founder", [1, 2])
def test_a_fork_in_doubt_shares_nothing_certain_with_its_parent(founder: int) -> None:
    parent = cluster([1, 2, 3], [3, 4])
    known = epoch_of(parent)
    fork = fork_of(parent, 7, [(3, 1), (4, 1), (5, 2)], founder, in_doubt=True)
    fork.check()
    assert fork.ancestors == [(1, 1)]
    assert fork.counter() == 101, "its numbers are higher all the same"
    holdings = [Holding(COMPLETE, known, 5, []), Holding(COMPLETE, known, 5, [])]
    assert branches_of(holdings, fork) == [0, 1]
    assert branches_of(holdings, fork_of(parent, 7, [(3, 1), (4, 1), (5, 2)], founder)) == []
    child = fork_of(fork, 8, [], founder, in_doubt=True)
    assert child.ancestors == [(1, 1), (7, 2)]
