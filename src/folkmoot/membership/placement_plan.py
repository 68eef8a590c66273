"""What the leader of the configuration log proposes next, so that copies and leaderships come to where they should be.

A pure function of the configuration: it is asked again after each change, and answers with nothing when all is well.

1. A copy is added before another is dropped. A partition gets the missing members of its ideal placement as learners,
   and loses what is not in it when all that are in it are in sync. A branch is no copy, and is never dropped: it has to
   be merged first. In a fork nobody loses a copy, or is removed. Another side may wait for that copy, because it was
   the only one in sync there, and could not go on from what others were given of it here; or this side for one that is
   at another side, if it loses its own. Exception: who leaves, and has not been up in the fork, may have left there.
2. No more than `fills` copies are filled at a time in the whole cluster; partitions with the fewest copies come first.
   Copies that cannot be filled, because their partition has no leader or they have no room, keep no other one waiting.
3. A leadership never moves with a placement, but by a Lead of its own, for which the leader can end what it does.
4. A member that leaves, has no room or is slow hands over what another member in sync can lead. One that is slow keeps
   its copies and is given new ones, one without room keeps its own. Otherwise leaderships move only if a member leads
   10 % more or less than its share, and only from one that leads at least two more: every move makes the sum of the
   squares smaller, so it ends.
5. A member that is away keeps its place until the caller says that it is gone. A partition whose only copy in sync is
   away waits for it; a partition whose last copy was given up waits for all others, and goes on from the newest. Until
   they are compared it loses none.
6. A member that leaves, holds nothing, has no vote and is away, because it has nothing more to do for clients, is
   removed. A branch is something that it holds.
"""

from __future__ import annotations

from typing import Final

from folkmoot.membership.cluster_member import DATA, ClusterMember
from folkmoot.membership.command import LEFT, Command, Lead, Place, PlaceItem, Remove
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.lifecycle import ACTIVE, AWAY, AWAY_LEAVING, is_leaving, is_up
from folkmoot.membership.partition_state import PartitionState
from folkmoot.membership.placement import PlacementMemo

__all__ = ["PlanLimits", "plan"]

_BAND_PERCENT: Final = 10  # of its share, by which a member may lead more or less


class PlanLimits:
    """How much is on its way at once; the defaults keep a disk and a network usable for clients meanwhile.

    Args:
        fills: Copies that are being filled.
        leads: Leaderships that are handed over by one plan.
        places: Partitions whose replicas one plan changes.

    copies: of each partition, as many as members want; 0: as many as the cluster was founded with.
    """

    def __init__(self, fills: int = 16, leads: int = 16, places: int = 1024) -> None:
        assert fills > 0, "a copy can be filled"
        assert leads > 0, "a leadership can move"
        assert places > 0, "a partition can be placed"
        self.fills = fills
        self.leads = leads
        self.places = places
        self.copies: int = 0


def plan(
    configuration: ClusterConfiguration,
    limits: PlanLimits,
    voters: list[int],
    gone: list[int],
    memo: PlacementMemo | None = None,
) -> list[Command]:
    """Return the commands to propose next, in their order; none if all is as it should be.

    Args:
        configuration: With everything that is known to be committed.
        limits: How much is on its way at once.
        voters: Raft's voters: a member that votes is not removed yet.
        gone: Members that have been away for so long that their copies are made anew elsewhere.
        memo: Of the caller, for its next plans.
    """
    if not configuration.is_founded():
        return []
    return _Plan(configuration, limits, gone, memo or PlacementMemo()).commands(voters)


class _Plan:
    """One plan."""

    def __init__(
        self, configuration: ClusterConfiguration, limits: PlanLimits, gone: list[int], memo: PlacementMemo
    ) -> None:
        self.configuration = configuration
        self.limits = limits
        self.gone = gone
        members: list[ClusterMember] = []
        held: dict[int, list[int]] = {}
        self.leads: dict[int, int] = {}  # disk -> partitions that it leads, for all that can be given more
        for disk in configuration.disks():
            member = configuration.members[disk]
            if member.kind != DATA or not self._is_counted(member):
                continue
            members.append(member)
            if member.full:
                held[disk] = []
            if member.state == ACTIVE and not member.is_strained():
                self.leads[disk] = 0
        led = 0
        for number, state in enumerate(configuration.partitions):
            for disk in state.replicas:
                if disk in held:
                    held[disk].append(number)
            if state.leader in self.leads:
                self.leads[state.leader] += 1
            if state.leader:
                led += 1
        self.led = led
        self.target: list[list[int]] = memo.placement(
            members, len(configuration.partitions), limits.copies or configuration.copies, held
        )
        self.items: list[PlaceItem] = []
        self.moves: list[Lead] = []
        self.moved: list[bool] = [False] * len(configuration.partitions)

    def _is_counted(self, member: ClusterMember) -> bool:
        return member.state == ACTIVE or (member.state == AWAY and member.disk not in self.gone)

    def _is_active(self, disk: int) -> bool:
        return disk in self.configuration.members and self.configuration.members[disk].state == ACTIVE

    def commands(self, voters: list[int]) -> list[Command]:
        """Return all commands."""
        partitions = self.configuration.partitions
        if [targets for targets in self.target if targets]:
            self._hand_over()
            self._balance()
            self._place()
        found: list[Command] = []
        found.extend(self.moves)
        if self.items:
            found.append(Place(self.items))
        for disk in self.configuration.disks():
            member = self.configuration.members[disk]
            if member.state == AWAY_LEAVING and disk not in voters and not self.configuration.holds(disk):
                if not self._must_stay(disk):
                    found.append(Remove(disk, member.version, LEFT, False))
        assert len(self.items) <= len(partitions), "a partition is placed once"
        return found

    # Leaderships

    def _hand_over(self) -> None:
        """Take leaderships from members that leave, are strained, or shall not keep the partition."""
        for number, state in enumerate(self.configuration.partitions):
            if state.leader and len(self.moves) < self.limits.leads:
                leaves = is_leaving(self.configuration.members[state.leader].state)
                strained = self.configuration.members[state.leader].is_strained()
                dropped = state.leader not in self.target[number] and self._is_complete(number)
                if leaves or strained or dropped:
                    self._move_to(number, self._best_leader(number, dropped))

    def _must_stay(self, disk: int) -> bool:
        """Tell whether this is a fork, in which this or another side may wait for what a member has."""
        configuration = self.configuration
        member = configuration.members.get(disk)
        if configuration.trunk == configuration.lineage or member is None:
            return False
        if not is_leaving(member.state) or is_up(member.state):
            return True
        _parent, shared = configuration.ancestors[-1]
        return member.away > shared + 1  # the first entry marks those of the other sides

    def _is_complete(self, number: int) -> bool:
        """Tell whether everybody in the ideal placement of a partition is in sync."""
        state = self.configuration.partitions[number]
        for disk in self.target[number]:
            if disk not in state.isr:
                return False
        return True

    def _best_leader(self, number: int, anyone: bool) -> int:
        """Return the member in sync that leads least, of those that stay if one can; 0: there is none.

        anyone: also one that is strained, because the leader cannot stay either.
        """
        state = self.configuration.partitions[number]
        best = 0
        for only_target in (True, False):
            for disk in state.isr:
                if disk in self.leads and (disk in self.target[number] or not only_target):
                    if best == 0 or self.leads[disk] < self.leads[best]:
                        best = disk
            if best:
                return best
        if anyone:
            for disk in self.target[number]:
                if disk in state.isr and self._is_active(disk):
                    return disk
        return 0

    def _move_to(self, number: int, disk: int) -> None:
        state = self.configuration.partitions[number]
        if disk in (0, state.leader):
            return
        assert disk in state.isr, "a leader is in sync"
        if disk in self.leads:
            self.leads[disk] += 1
        if state.leader in self.leads:
            self.leads[state.leader] -= 1
        self.moves.append(Lead(number, state.version, disk))
        self.moved[number] = True

    def _balance(self) -> None:
        """Even out leaderships, first for members that lead too few."""
        if not self.leads:
            return
        nodes = len(self.leads)
        low = self.led * (100 - _BAND_PERCENT) // (100 * nodes)
        high = -(-self.led * (100 + _BAND_PERCENT) // (100 * nodes))
        for disk in sorted(self.leads):
            while self.leads[disk] < low and len(self.moves) < self.limits.leads:
                if not self._take_one(disk):
                    break
        for disk in sorted(self.leads):
            while self.leads[disk] > high and len(self.moves) < self.limits.leads:
                if not self._give_one(disk):
                    break

    def _may_lead(self, number: int, disk: int) -> bool:
        """Tell whether a member can be given a partition, and keeps it."""
        in_sync = disk in self.configuration.partitions[number].isr
        return in_sync and disk in self.leads and disk in self.target[number]

    def _take_one(self, disk: int) -> bool:
        """Give a member a partition of the one that leads most; of these one that prefers it."""
        best = -1
        best_rank = (0, 0)
        for number, state in enumerate(self.configuration.partitions):
            if self.moved[number] or state.leader not in self.leads or not self._may_lead(number, disk):
                continue
            if self.leads[state.leader] >= self.leads[disk] + 2:
                rank = (self.leads[state.leader], 1 if self.target[number][:1] == [disk] else 0)
                if best < 0 or rank > best_rank:
                    best = number
                    best_rank = rank
        if best >= 0:
            self._move_to(best, disk)
        return best >= 0

    def _give_one(self, disk: int) -> bool:
        """Take a partition from a member, for the one that leads least."""
        best = -1
        best_disk = 0
        best_rank = (0, 0)
        for number, state in enumerate(self.configuration.partitions):
            if self.moved[number] or state.leader != disk:
                continue
            for other in state.isr:
                if self._may_lead(number, other) and self.leads[other] + 2 <= self.leads[disk]:
                    rank = (-self.leads[other], 1 if self.target[number][:1] == [other] else 0)
                    if best < 0 or rank > best_rank:
                        best = number
                        best_disk = other
                        best_rank = rank
        if best >= 0:
            self._move_to(best, best_disk)
        return best >= 0

    # Copies

    def _place(self) -> None:
        """Add and drop replicas."""
        partitions = self.configuration.partitions
        budget = self.limits.fills
        ranked: list[tuple[int, int]] = []
        for number, state in enumerate(partitions):
            ranked.append((len(state.isr), number))
            if state.leader:
                budget -= self._filling(number, state)
        ranked.sort()
        for _copies, number in ranked:
            if self.moved[number] or len(self.items) >= self.limits.places:
                continue
            state = partitions[number]
            wanted = self._wanted(number, state, max(budget, 0))
            if not wanted or (wanted == state.replicas and state.isr):
                continue
            if state.isr:
                budget -= len([disk for disk in wanted if disk not in state.replicas])
            self.items.append(PlaceItem(number, state.version, wanted))

    def _filling(self, number: int, state: PartitionState) -> int:
        """Return how many copies of a partition are being filled: not those that wait for room."""
        count = 0
        for disk in state.learners():
            if disk in self.target[number] and self._is_active(disk) and not self.configuration.members[disk].full:
                count += 1
        return count

    def _wanted(self, number: int, state: PartitionState, budget: int) -> list[int]:
        """Return the next replicas of a partition; nothing if it has to wait."""
        target = self.target[number]
        if not state.isr:
            return self._first(number, state)
        if state.leader == 0:
            return []
        if self._is_complete(number) and number not in self.configuration.recovering:
            if state.leader not in target:
                return []
            kept = [*target, *[disk for disk in state.replicas if disk not in target and self._must_stay(disk)]]
            return [*kept, *self._branches(number, kept)]
        wanted = [
            disk
            for disk in state.replicas
            if disk in target
            or disk in state.isr
            or self.configuration.is_branch(number, disk)
            or self._must_stay(disk)
        ]
        for disk in target:
            if budget > 0 and disk not in wanted and self._is_active(disk):
                wanted.append(disk)
                budget -= 1
        return wanted

    def _first(self, number: int, state: PartitionState) -> list[int]:
        """Return the replicas of a partition in which nobody is in sync: it is new, or its last copy was given up.

        A replica that is away may have all but the newest of what was lost with the last copy in sync. It is waited for
        until it is back, however long, or forgotten; but for a branch, which is merged when it comes.
        """
        configuration = self.configuration
        if not configuration.may_begin(number):
            return []
        for disk in state.replicas:
            member = configuration.members[disk]
            if member.started and not is_up(member.state) and not configuration.is_branch(number, disk):
                return []
        kept = self.configuration.able(state.replicas)
        first = [*kept, *[disk for disk in self.target[number] if self._is_active(disk) and disk not in kept]]
        return [*first, *self._branches(number, first)] if first else []

    def _branches(self, number: int, others: list[int]) -> list[int]:
        """Return the branches of a partition that are not among others."""
        return [disk for disk in self.configuration.branches.get(number, []) if disk not in others]
