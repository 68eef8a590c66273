"""The planner: it comes to an end, at which everything is as it should be, and moves little on the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from folkmoot.kernel.feature import TOGETHER_BIT
from folkmoot.kernel.rng import Rng
from folkmoot.membership.cluster_member import DATA, WITNESS, ClusterMember, Process
from folkmoot.membership.command import (
    ENDED,
    FORGOTTEN,
    Activate,
    AlterIsr,
    Command,
    Evict,
    Features,
    Found,
    IsrItem,
    Join,
    Lead,
    Leave,
    MarkAway,
    Place,
    Remove,
    Stay,
    Strain,
    encode_command,
)
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.fork import fork_of
from folkmoot.membership.lifecycle import ACTIVE, AWAY, AWAY_LEAVING, LEAVING, is_leaving, is_up
from folkmoot.membership.placement import PlacementMemo, ideal_placement
from folkmoot.membership.placement_plan import PlanLimits, plan
from folkmoot.membership.transition import Result, Transition

PARTITIONS = 64


class Planned:
    """A configuration, the planner, and members that are filled as soon as they learn."""

    def __init__(
        self,
        size: int,
        copies: int = 3,
        zones: int = 100,
        limits: PlanLimits | None = None,
        features: int = TOGETHER_BIT,
    ) -> None:
        self.transition = Transition(ClusterConfiguration())
        self.configuration = self.transition.configuration
        self.limits = limits or PlanLimits()
        self.zones = zones
        self.gone: list[int] = []
        self.voters: list[int] = []
        self.added = 0  # copies that were given to members
        self.led = 0  # leaderships that were handed over
        self.most_filling = 0
        self.memo = PlacementMemo()
        self.merges = True  # branches are merged as soon as a leader is there
        self.slow: Rng | None = None  # some copies take longer than others
        self.do(Found(1, 1, 0, 0, [self.member(disk) for disk in range(1, size + 1)], PARTITIONS, copies))
        if features:
            self.do(Features(features))

    def member(self, disk: int, kind: int = DATA) -> ClusterMember:
        process = Process(1, "", f"zone{disk % self.zones}", f"host{disk}", features=TOGETHER_BIT)
        return ClusterMember(disk, f"node{disk}", kind, process)

    def do(self, command: Command) -> Result:
        result = self.transition.apply(self.configuration.index + 1, encode_command(command))
        assert result.is_accepted(), result
        return result

    def join(self, disk: int, kind: int = DATA) -> None:
        member = self.member(disk, kind)
        self.do(Join(member))
        self.do(Activate(disk, self.version(disk), member.process))

    def version(self, disk: int) -> int:
        return self.configuration.members[disk].version

    def away(self, disk: int, gone: bool = True) -> None:
        self.do(MarkAway(disk, self.configuration.members[disk].incarnation, self.version(disk), ENDED))
        if gone:
            self.gone.append(disk)

    def start(self, disk: int, branches: list[int] | None = None) -> None:
        before = self.configuration.members[disk].process
        process = Process(before.incarnation + 1, "", before.zone, before.host, features=before.features)
        self.do(Activate(disk, self.version(disk), process, 0, branches))
        self.gone = [other for other in self.gone if other != disk]

    def plan(self) -> list[Command]:
        return plan(self.configuration, self.limits, self.voters, self.gone, self.memo)

    def step(self) -> bool:
        """Let one plan be done, and the copies be filled; False if there was nothing to do."""
        ended = [disk for disk, member in self.configuration.members.items() if member.state == LEAVING]
        ended = [disk for disk in ended if not self.configuration.holds(disk)]
        for disk in ended:  # it has nothing more to do, and stops
            self.away(disk, False)
        commands = self.plan()
        for command in commands:
            if isinstance(command, Place):
                for item in command.items:
                    before = self.configuration.partitions[item.partition]
                    if before.isr:
                        self.added += len(set(item.replicas) - set(before.replicas))
            self.led += isinstance(command, Lead)
            leaders = [state.leader for state in self.configuration.partitions]
            result = self.do(command)
            assert not result.skipped
            if isinstance(command, Place):
                after = [state.leader for state in self.configuration.partitions]
                assert [n for n, leader in enumerate(leaders) if leader not in (0, after[n])] == [], (
                    "a placement moved it"
                )
        self.configuration.check()
        return self.fill() or bool(commands) or bool(ended)

    def fill(self) -> bool:
        """Let leaders add to the ISR whoever learns and is up."""
        filling = 0
        for number, state in enumerate(self.configuration.partitions):
            learners = [disk for disk in state.learners() if self.configuration.can_lead(disk)]
            if not self.merges:
                learners = [disk for disk in learners if not self.configuration.is_branch(number, disk)]
            if state.leader and learners:
                filling += len(learners)
                if self.slow is not None and self.slow.chance(1, 2):
                    continue
                isr = [*state.isr, *learners]
                started = {disk: self.configuration.members[disk].started for disk in isr}
                items = [IsrItem(number, state.leader_epoch, state.version, isr)]
                self.do(AlterIsr(state.leader, items, started))
        self.most_filling = max(self.most_filling, filling)
        return filling > 0

    def settle(self) -> int:
        for steps in range(600):
            if not self.step():
                assert self.plan() == []
                return steps
        raise AssertionError("the planner finds no end")

    def led_by(self) -> dict[int, int]:
        led = {disk: 0 for disk, member in self.configuration.members.items() if member.kind == DATA}
        for state in self.configuration.partitions:
            if state.leader:
                led[state.leader] += 1
        return led

    def held_by(self) -> dict[int, int]:
        held = {disk: 0 for disk, member in self.configuration.members.items() if member.kind == DATA}
        for state in self.configuration.partitions:
            for disk in state.replicas:
                held[disk] += 1
        return held

    def is_whole(self) -> None:
        """Assert that every partition that can be served has all its copies, on members that stay."""
        members = self.configuration.members
        able = [disk for disk in members if members[disk].kind == DATA and members[disk].state == ACTIVE]
        wanted = min(self.configuration.copies, len(able))
        for number, state in enumerate(self.configuration.partitions):
            if not able or (state.leader == 0 and state.isr):
                continue  # it waits for the only member that has everything
            assert len(state.isr) == wanted == len(state.replicas), (number, state)
            assert set(state.isr) <= set(able)
            assert state.leader in state.isr


def test_a_new_cluster_is_placed_at_once() -> None:
    found = Planned(5)
    commands = found.plan()
    assert [type(command) for command in commands] == [Place]
    assert found.settle() <= 4
    found.is_whole()
    assert found.added == 0, "nothing was copied"
    share = PARTITIONS / 5
    assert max(found.led_by().values()) <= share * 1.1 + 1
    assert max(found.held_by().values()) <= share * 3 * 1.05 + 1


def test_a_plan_of_nothing() -> None:
    assert plan(ClusterConfiguration(), PlanLimits(), [], []) == []


@pytest.mark.parametrize("size", [3, 4, 7])
def test_a_join_moves_its_share_and_no_more(size: int) -> None:
    found = Planned(size)
    found.settle()
    found.join(size + 1)
    found.settle()
    found.is_whole()
    share = PARTITIONS * 3 / (size + 1)
    assert share * 0.8 <= found.added <= share * 1.5
    assert found.most_filling <= found.limits.fills
    assert found.held_by()[size + 1] >= share * 0.8
    assert found.led_by()[size + 1] >= PARTITIONS / (size + 1) * 0.8


def test_fills_are_bounded() -> None:
    found = Planned(3, limits=PlanLimits(fills=2, leads=1))
    found.settle()
    found.slow = Rng(1)
    for disk in (4, 5, 6):
        found.join(disk)
    found.settle()
    found.is_whole()
    assert found.most_filling <= 2


def test_a_member_that_leaves_is_drained_and_removed() -> None:
    found = Planned(4)
    found.settle()
    found.voters = [1, 2]
    found.do(Leave(1, found.version(1)))
    found.settle()
    found.is_whole()
    assert found.held_by()[1] == 0
    assert found.configuration.members[1].state == AWAY_LEAVING, "it still votes"
    found.voters = [2]
    found.settle()
    assert 1 not in found.configuration.members
    assert found.added <= PARTITIONS * 3 / 4 * 1.5


def test_a_leave_that_is_taken_back_costs_what_was_moved() -> None:
    found = Planned(4)
    found.settle()
    found.do(Leave(1, found.version(1)))
    found.step()
    found.step()
    found.do(Stay(1, found.version(1)))
    found.settle()
    found.is_whole()
    assert found.held_by()[1] > 0


def test_when_all_leave_they_keep_what_they_have() -> None:
    found = Planned(2)
    found.settle()
    for disk in (1, 2):
        found.do(Leave(disk, found.version(disk)))
    found.settle()
    assert found.held_by() == {1: PARTITIONS, 2: PARTITIONS}


def test_a_short_absence_moves_no_copy() -> None:
    found = Planned(5)
    found.settle()
    before = found.held_by()
    found.away(2, gone=False)
    found.settle()
    assert found.held_by() == before
    assert found.led_by()[2] == 0
    found.start(2)
    found.settle()
    assert (found.held_by(), found.added) == (before, 0)
    assert found.led_by()[2] >= PARTITIONS / 5 * 0.8, "it leads its share again"


def test_copies_of_a_member_that_is_gone_are_made_elsewhere() -> None:
    found = Planned(5)
    found.settle()
    held = found.held_by()[2]
    found.away(2)
    found.settle()
    found.is_whole()
    assert found.held_by()[2] == 0
    assert held <= found.added <= held * 1.5


def test_three_copies_on_two_members_grow_when_a_third_comes() -> None:
    found = Planned(2)
    found.settle()
    assert found.held_by() == {1: PARTITIONS, 2: PARTITIONS}
    found.join(3)
    found.settle()
    assert found.held_by() == {1: PARTITIONS, 2: PARTITIONS, 3: PARTITIONS}


def test_a_member_without_room_leads_nothing_and_gets_nothing() -> None:
    found = Planned(4)
    found.settle()
    held = [number for number, state in enumerate(found.configuration.partitions) if 1 in state.replicas]
    found.do(Strain(1, 1, found.version(1), True, False))
    found.settle()
    assert found.led_by()[1] == 0
    found.away(2)
    found.settle()
    now = [number for number, state in enumerate(found.configuration.partitions) if 1 in state.replicas]
    assert set(now) <= set(held)
    assert found.led_by()[1] == 0
    found.do(Strain(1, 1, found.version(1), False, False))
    found.settle()
    found.is_whole()
    assert found.led_by()[1] >= PARTITIONS / 3 * 0.8


def test_a_member_without_room_leads_what_nobody_else_can() -> None:
    found = Planned(1)
    found.settle()
    found.do(Strain(1, 1, found.version(1), True, False))
    found.settle()
    assert found.led_by() == {1: PARTITIONS}


def test_a_slow_member_leads_nothing_and_keeps_its_copies() -> None:
    found = Planned(4)
    found.settle()
    before = [state.replicas for state in found.configuration.partitions]
    found.do(Strain(1, 1, found.version(1), False, True))
    found.settle()
    assert found.led_by()[1] == 0
    assert [sorted(state.replicas) for state in found.configuration.partitions] == [sorted(one) for one in before]
    found.away(2)
    found.settle()
    found.is_whole()
    assert found.held_by() == {1: PARTITIONS, 2: 0, 3: PARTITIONS, 4: PARTITIONS}, "it is given copies"
    assert found.led_by()[1] == 0
    found.do(Strain(1, 1, found.version(1), False, False))
    found.settle()
    assert found.led_by()[1] >= PARTITIONS / 3 * 0.8


def test_a_slow_member_leads_what_nobody_else_can() -> None:
    found = Planned(2)
    found.settle()
    for disk in (1, 2):
        found.do(Strain(disk, 1, found.version(disk), False, True))
    led = found.led_by()
    found.settle()
    assert found.led_by() == led
    found.away(1)
    found.settle()
    assert found.led_by() == {1: 0, 2: PARTITIONS}


def test_a_lost_partition_begins_with_what_another_has() -> None:
    found = Planned(4, copies=2)
    found.settle()
    found.away(1)
    found.away(2)
    lost = [number for number, state in enumerate(found.configuration.partitions) if state.leader == 0]
    assert lost, "some had both copies there"
    found.settle()
    assert [number for number in lost if found.configuration.partitions[number].leader] == [], "they wait"
    # The copies that fell behind belong to the member that died first.
    found.do(Remove(2, found.version(2), FORGOTTEN, True))
    assert sorted(found.configuration.lost) == lost
    for gone in ([], [1]):
        found.gone = gone
        found.settle()
        waits = [number for number in lost if found.configuration.partitions[number].leader == 0]
        assert waits == lost, "the copies at the member that is away are older, but not nothing, also after long"
    found.start(1)
    found.settle()
    found.is_whole()
    assert sorted(found.configuration.lost) == lost, "the losses stay listed"


def test_of_a_lost_partition_only_a_copy_that_is_left_is_in_sync() -> None:
    """If its node were away before it has taken over, one without a copy would begin the partition empty."""
    found = Planned(5, copies=2)
    found.settle()
    number, (first, last) = next((n, state.isr) for n, state in enumerate(found.configuration.partitions))
    found.away(first)
    found.away(last)
    found.do(Remove(last, found.version(last), FORGOTTEN, True))
    found.start(first)
    (place,) = [command for command in found.plan() if isinstance(command, Place)]
    found.do(place)
    state = found.configuration.partitions[number]
    assert (state.isr, state.leader) == ([first], first)
    assert len(state.replicas) > 1, "others learn"
    found.away(first)
    state = found.configuration.partitions[number]
    assert (state.isr, state.leader) == ([first], 0)


def test_where_a_member_may_not_know_that_rule_all_that_are_up_are_in_sync_as_before() -> None:
    """A build that decided otherwise about the same entry would have another configuration, and another leader."""
    found = Planned(5, copies=2, features=0)
    found.settle()
    number, (first, last) = next((n, state.isr) for n, state in enumerate(found.configuration.partitions))
    found.away(first)
    found.away(last)
    found.do(Remove(last, found.version(last), FORGOTTEN, True))
    found.start(first)
    (place,) = [command for command in found.plan() if isinstance(command, Place)]
    found.do(place)
    state = found.configuration.partitions[number]
    assert state.isr == state.replicas
    assert len(state.isr) == 2


def test_the_copy_of_a_member_that_leaves_and_is_away_is_waited_for() -> None:
    found = Planned(5, copies=3)
    found.settle()
    number, (old, newer, last) = next((n, state.isr) for n, state in enumerate(found.configuration.partitions))
    found.away(old, gone=False)
    found.do(Leave(newer, found.version(newer)))
    found.away(newer, gone=False)
    found.away(last, gone=False)
    found.start(old)
    found.do(Remove(last, found.version(last), FORGOTTEN, True))
    assert number in found.configuration.lost
    found.settle()
    assert found.configuration.partitions[number].leader == 0
    found.do(Stay(newer, found.version(newer)))
    found.start(newer)
    found.settle()
    assert found.configuration.partitions[number].leader


def test_members_that_go_together_stay_in_sync_together() -> None:
    found = Planned(5, copies=2)
    found.settle()
    number, pair = next((n, state.isr) for n, state in enumerate(found.configuration.partitions))
    third = next(disk for disk in range(1, 6) if disk not in pair)
    found.away(third)
    others = [MarkAway(disk, 1, found.version(disk), ENDED) for disk in pair]
    others[0].others = [others[1], MarkAway(third, 1, found.version(third), ENDED)]
    found.do(others[0])  # the third is away already
    state = found.configuration.partitions[number]
    assert (state.isr, state.leader) == (pair, 0)
    assert len([one for one in found.configuration.members.values() if is_up(one.state)]) == 2
    found.start(pair[1])
    state = found.configuration.partitions[number]
    assert (state.isr, state.leader) == ([pair[1]], pair[1])


def test_a_branch_is_kept_until_it_is_merged() -> None:
    found = Planned(5)
    found.settle()
    found.away(1)
    found.settle()
    assert found.held_by()[1] == 0
    found.merges = False
    found.start(1, list(range(0, PARTITIONS, 4)))
    found.away(1, gone=False)
    for gone in ([], [1]):  # its copies are to be at others, and then it has none besides
        found.gone = gone
        found.settle()
        assert sorted(found.configuration.branches) == list(range(0, PARTITIONS, 4))
        assert found.held_by()[1] >= PARTITIONS / 4
    found.start(1)
    found.do(Leave(1, found.version(1)))
    found.settle()
    assert found.held_by()[1] == PARTITIONS / 4, "it leaves, and keeps its branches"
    found.merges = True
    found.settle()
    assert 1 not in found.configuration.members
    assert found.configuration.branches == {}
    found.is_whole()


def test_a_partition_that_was_lost_keeps_its_branches() -> None:
    found = Planned(3, copies=1)
    found.settle()
    number = next(n for n, state in enumerate(found.configuration.partitions) if state.isr == [1])
    found.merges = False
    found.start(2, [number])
    found.away(2)
    found.away(1)
    found.do(Remove(1, found.version(1), FORGOTTEN, True))
    assert number in found.configuration.lost
    found.settle()
    state = found.configuration.partitions[number]
    assert (state.isr, state.leader, found.configuration.branches[number]) == ([3], 3, [2])


def test_a_branch_is_kept_while_copies_are_made() -> None:
    found = Planned(4, copies=2)
    found.settle()
    found.merges = False
    state = found.configuration.partitions[0]
    (outside, *_) = [disk for disk in (1, 2, 3, 4) if disk not in state.replicas]
    found.start(outside, [0])
    found.settle()
    state = found.configuration.partitions[0]
    started = {state.leader: found.configuration.members[state.leader].started}
    found.do(AlterIsr(state.leader, [IsrItem(0, state.leader_epoch, state.version, [state.leader])], started))
    assert found.plan() == []
    assert found.configuration.branches == {0: [outside]}


def test_nothing_begins_where_only_branches_are_left() -> None:
    found = Planned(3, copies=1)
    found.settle()
    number = next(n for n, state in enumerate(found.configuration.partitions) if state.isr == [1])
    found.merges = False
    found.start(2, [number])
    found.away(2)
    found.away(1)
    found.do(Remove(1, found.version(1), FORGOTTEN, True))
    found.away(3, gone=False)
    assert found.plan() == []


def test_a_partition_that_waits_keeps_no_other_one_waiting() -> None:
    found = Planned(4, copies=2, limits=PlanLimits(fills=1))
    found.settle()
    for disk in (1, 2):
        found.away(disk)
    found.start(1)  # it learns where the only copy in sync is away
    assert [state for state in found.configuration.partitions if state.leader == 0 and 1 in state.learners()]
    found.settle()
    found.is_whole()
    assert found.added > 0


def test_a_witness_holds_nothing_and_can_leave() -> None:
    found = Planned(2)
    found.join(3, WITNESS)
    found.settle()
    found.is_whole()
    found.do(Leave(3, found.version(3)))
    found.settle()
    assert 3 not in found.configuration.members


def test_leaderships_within_a_tenth_of_the_share_stay() -> None:
    found = Planned(4)
    found.settle()
    found.led = 0
    share = PARTITIONS // 4
    number = next(n for n, state in enumerate(found.configuration.partitions) if state.leader == 1)
    state = found.configuration.partitions[number]
    other = next(disk for disk in state.isr if disk != 1 and found.led_by()[disk] <= share)
    found.do(Lead(number, state.version, other))
    found.settle()
    assert found.led == 0


def test_copies_are_in_different_zones() -> None:
    found = Planned(6, zones=3)
    found.settle()
    for state in found.configuration.partitions:
        assert len({disk % 3 for disk in state.replicas}) == 3


def test_copies_in_few_zones_are_on_different_hosts() -> None:
    members = []
    for disk in range(1, 13):
        process = Process(1, "", f"zone{disk % 2}", f"host{disk // 2 % 3}")
        members.append(ClusterMember(disk, f"node{disk}", DATA, process))
    place = {member.disk: (member.process.zone, member.process.host) for member in members}
    for disks in ideal_placement(members, 256, 3, {}):
        assert len({place[disk][0] for disk in disks}) == 2
        assert len({place[disk] for disk in disks}) == 3


def test_a_replaced_disk_gets_back_what_its_node_had() -> None:
    members = [ClusterMember(disk, f"node{disk}", DATA, Process(1, "", "z", f"h{disk}")) for disk in range(1, 6)]
    before = ideal_placement(members, PARTITIONS, 3, {})
    members[0] = ClusterMember(99, "node1", DATA, Process(1, "", "z", "h1"))
    after = ideal_placement(members, PARTITIONS, 3, {})
    assert after == [[99 if disk == 1 else disk for disk in disks] for disks in before]


def happen(found: Planned, rng: Rng, fresh: int) -> None:
    """Let something happen to a member."""
    members = found.configuration.members
    disks = sorted(members)
    if not disks:
        return  # the only one was told to leave before it had anything
    disk = disks[rng.below(len(disks))]
    member = members[disk]
    up = [other for other in disks if is_up(members[other].state)]
    what = rng.below(8)
    if what < 2 and len(disks) < 9:
        found.join(fresh, WITNESS if rng.chance(1, 6) else DATA)
    elif what == 2 and len(up) > 1 and disk in up:
        found.away(disk, rng.chance(1, 2))
    elif what == 3 and disk in up:
        found.do(Evict(disk, member.incarnation))
    elif what == 4 and not is_leaving(member.state):
        found.do(Leave(disk, member.version))
    elif what == 5 and is_leaving(member.state):
        found.do(Stay(disk, member.version))
    elif what == 6:
        found.do(Strain(disk, member.incarnation, member.version, not member.full, rng.chance(1, 3)))
    elif not is_up(member.state):
        some = [number for number in range(PARTITIONS) if rng.chance(1, 8)]
        found.start(disk, some if member.kind == DATA and rng.chance(1, 2) else [])


@pytest.mark.parametrize("seed", [*range(12), 204])
def test_drawn_clusters_come_to_rest_with_all_copies(seed: int) -> None:
    rng = Rng(seed)
    limits = PlanLimits(1 + rng.below(30), 1 + rng.below(20), 1 + rng.below(80))
    found = Planned(1 + rng.below(6), 1 + rng.below(4), 1 + rng.below(5), limits)
    found.slow = Rng(seed)
    for number in range(14):
        happen(found, rng, 20 + number)
        for _ in range(rng.below(6)):
            found.step()
        if rng.chance(1, 3):
            found.settle()
    # At last everybody has room, and nobody is in between: who is away is gone.
    for disk in sorted(found.configuration.members):
        member = found.configuration.members[disk]
        if member.is_strained():
            found.do(Strain(disk, member.incarnation, member.version, False, False))
        if not is_up(member.state) and [1 for branches in found.configuration.branches.values() if disk in branches]:
            found.start(disk)
        elif member.state == AWAY and disk not in found.gone:
            found.gone.append(disk)
    found.settle()
    found.is_whole()
    assert [n for n in found.configuration.branches if found.configuration.partitions[n].leader] == []
    members = found.configuration.members
    assert [disk for disk in members if is_leaving(members[disk].state) and not found.configuration.holds(disk)] == []


def test_the_ideal_placement_is_computed_when_members_change_and_not_with_each_plan() -> None:
    found = Planned(3)
    found.settle()
    changes: list[Callable[[], None]] = [lambda: found.join(4), lambda: found.away(2), lambda: found.start(2)]
    for change in changes:
        before = found.memo.computed
        change()
        assert found.settle() > 2, "there were several plans"
        assert found.memo.computed == before + 1
        members = [one for one in found.configuration.members.values() if one.disk not in found.gone]
        assert found.memo.placement(members, PARTITIONS, 3, {}) == ideal_placement(members, PARTITIONS, 3, {})
        assert found.memo.computed == before + 1


@pytest.mark.parametrize("leaves", [False, True])
def test_a_fork_keeps_the_copies_of_the_other_side(leaves: bool) -> None:
    """One of two copies may be at this side: if its disk is lost, the other one is waited for."""
    cluster = Planned(4, 2, limits=PlanLimits(64))
    cluster.settle()
    if leaves:
        cluster.do(Leave(4, cluster.version(4)))
    parent = cluster.configuration
    fork = fork_of(parent, 7, [(disk, parent.members[disk].incarnation) for disk in (3, 4)])
    before = [list(state.replicas) for state in fork.partitions]
    cluster.transition = Transition(fork)
    cluster.configuration = fork
    cluster.gone = [3, 4]
    cluster.settle()
    for replicas, state in zip(before, fork.partitions, strict=True):
        if 1 in replicas or 2 in replicas:
            assert set(state.isr) == {1, 2}
            assert {disk for disk in replicas if disk == 3 or not leaves} <= set(state.replicas)
        else:
            assert state.leader == 0
