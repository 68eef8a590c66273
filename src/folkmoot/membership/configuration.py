"""The configuration of the cluster: its members, partitions, features and settings, at one index of the log.

Counters. Rows and requests are ordered by epochs (`store/epoch`), which must grow also for a member that comes from
another lineage, whose log may be longer. So the counter of a configuration is its index and a `base`, which START
raises above the highest counter that the member knows. What is compared with epochs is kept as a counter, because later
configurations may have another base. Of one lineage, two configurations with the same `changed` give the same roles.
The glossary has a table of all numbers: who counts each, when it grows, and what it is compared with.

Ancestors. A lineage knows those from which it descends, so that the changes of copies from before the lineages parted
are not taken for those of a stranger. The oldest are forgotten when nothing can come from them any more (`is_whole`).
What is left of them is the *floor*, the last counter that is shared with one of them. The copies of members have been
compared with theirs when the members came up: what these have from before the floor, under an unknown name, is shared.
A lineage that began before the floor, and is no known ancestor, is over (`fork.Lineage.outlives`).

Only `membership/transition` changes it. `check` asserts everything that always holds.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.feature import TOGETHER_BIT
from folkmoot.membership.cluster_member import DATA, ClusterMember
from folkmoot.membership.cluster_settings import ClusterSettings
from folkmoot.membership.lifecycle import JOINING, is_up
from folkmoot.membership.partition_state import PartitionState
from folkmoot.store.epoch import COUNTER_MAX

__all__ = ["ANCESTORS_MAX", "REMOVALS_MAX", "ClusterConfiguration", "Removal"]

ANCESTORS_MAX: Final = 1024  # a lineage with so many has no forks any more, until the oldest are forgotten
REMOVALS_MAX: Final = 1024  # disks that were members; the oldest are forgotten, and could join without a new start


class Removal:
    """A disk that was a member, with its newest incarnation, which must not join again; immutable."""

    def __init__(self, disk: int, node_id: str, incarnation: int, index: int, why: int) -> None:
        self.disk = disk
        self.node_id = node_id
        self.incarnation = incarnation
        self.index = index
        self.why = why


class ClusterConfiguration:
    """The state of the configuration log; `index`: of the last command that was applied, 0 before the first."""

    def __init__(self) -> None:
        self.index: int = 0
        self.base: int = 0  # see `counter`
        self.changed: int = 0  # the counter of the last entry that changed more than settings and features
        self.cluster: int = 0  # the identity of the cluster; 0: not founded
        self.lineage: int = 0
        self.parent: int = 0
        self.parent_index: int = 0
        self.ancestors: list[tuple[int, int]] = []  # oldest first: (lineage, counter of what is shared with it)
        self.floor: int = 0  # the highest such counter of an ancestor that was forgotten; 0: none was
        self.trunk: int = 0  # the lineage that gives out offsets of streams: this one, or the ancestor that has done so
        self.strength: int = 0  # partitions that had a leader when this lineage began; 0 if it is no fork
        self.copies: int = 0
        self.features: int = 0  # those that are on
        self.members: dict[int, ClusterMember] = {}  # by disk
        self.partitions: list[PartitionState] = []
        self.lost: dict[int, int] = {}  # partition -> index of the entry that gave up its last copy
        self.recovering: dict[int, bool] = {}  # lost partitions whose leftovers, the ISR, were not compared yet
        self.damaged: dict[int, int] = {}  # partition -> the last replica in sync, which cannot be read
        self.branches: dict[int, list[int]] = {}  # partition -> replicas with changes that its leader has to merge
        self.removed: list[Removal] = []  # oldest first
        self.settings = ClusterSettings()

    def is_founded(self) -> bool:
        """Tell whether the log has begun."""
        return self.cluster > 0

    def counter(self) -> int:
        """Return the number of this configuration for epochs (`store/epoch.make_epoch`); it grows with each entry."""
        return self.counter_at(self.index)

    def counter_at(self, index: int) -> int:
        """Return the counter at another index with this base; at an earlier index it was that, or less."""
        return index + self.base

    def goes_together(self) -> bool:
        """Tell whether all members know the rules about members that go together (`kernel/feature.TOGETHER`)."""
        return self.features & TOGETHER_BIT > 0

    def disks(self) -> list[int]:
        """Return the disks of all members, ascending."""
        return sorted(self.members)

    def named(self, node_id: str) -> ClusterMember | None:
        """Return the member with this name, or None."""
        for disk in self.disks():
            if self.members[disk].node_id == node_id:
                return self.members[disk]
        return None

    def can_lead(self, disk: int) -> bool:
        """Tell whether a disk is a member that holds data and is up."""
        member = self.members.get(disk)
        return member is not None and member.can_lead()

    def able(self, disks: list[int]) -> list[int]:
        """Return those of some disks that can lead, in their order."""
        return [disk for disk in disks if self.can_lead(disk)]

    def removed_incarnation(self, disk: int) -> int:
        """Return the newest incarnation of a disk that was removed; 0: it never was, or long ago."""
        newest = 0
        for removal in self.removed:
            if removal.disk == disk:
                newest = max(newest, removal.incarnation)
        return newest

    def may_begin(self, number: int) -> bool:
        """Tell whether a partition without a copy in sync may be placed: it begins empty, or with what is left of it.

        In a fork one that was not placed is absent, like one whose copies are elsewhere: its parent may have placed it.
        """
        return number in self.lost or self.trunk == self.lineage

    def may_lead(self, number: int, disk: int) -> bool:
        """Tell whether a disk can lead a partition if it is in sync: it is up, and its copy is not known as damaged."""
        return self.can_lead(disk) and self.damaged.get(number, 0) != disk

    def elect(self, number: int, replicas: list[int], isr: list[int]) -> int:
        """Return who leads a partition: the first of these replicas in sync that may, without strain if one is; or 0.

        Of a partition that recovers nobody does while one of those in sync is away: that one may be the newest.

        This is a rule of the log: every build must have the same.
        """
        if not self.is_compared(number, isr):
            return 0
        spare = 0
        for disk in replicas:
            if disk in isr and self.may_lead(number, disk):
                if not self.members[disk].is_strained():
                    return disk
                if spare == 0:
                    spare = disk
        return spare

    def is_compared(self, number: int, isr: list[int]) -> bool:
        """Tell whether one of these replicas in sync knows, or can find out, which of them is the newest."""
        return number not in self.recovering or len(self.able(isr)) == len(isr)

    def remaining(self, number: int, isr: list[int]) -> list[int]:
        """Return which of these replicas stay in sync when others are up: those that are; all while it recovers."""
        return list(isr) if number in self.recovering else self.able(isr)

    def is_whole(self) -> bool:
        """Tell whether nobody can come with changes of another lineage, but who was removed: all members are up here.

        A member that is up has said which of its copies have such changes, and there is none that is not merged. One
        that has never been up is as good as a stranger (`projection.branches_of`).
        """
        if not self.is_founded() or self.trunk != self.lineage or self.branches:
            return False
        for member in self.members.values():
            if member.started and not is_up(member.state):
                return False
        return True

    def prunable(self, keep: int) -> int:
        """Return the highest counter up to which ancestors can be forgotten, but for the newest ones; 0: none can."""
        assert keep > 0, "the parent is known"
        needed = self._needed()
        found = 0
        for lineage, counter in self.ancestors[:-keep]:
            if lineage not in needed:
                found = counter
        return found

    def prune(self, upto: int) -> bool:
        """Forget the ancestors up to a counter, but for those that are needed; tell whether there were any."""
        needed = self._needed()
        kept: list[tuple[int, int]] = []
        floor = self.floor
        for lineage, counter in self.ancestors:
            if counter > upto or lineage in needed:
                kept.append((lineage, counter))
            else:
                floor = max(floor, counter)
        if len(kept) == len(self.ancestors):
            return False
        assert len(kept) > 0, "the parent is known"
        assert kept[-1][0] == self.parent, "the parent is known"
        self.ancestors = kept
        self.floor = floor
        return True

    def _needed(self) -> set[int]:
        """Return the ancestors that are not forgotten.

        They are those of the time at which members came up last, because epochs name them, and those with which a
        founder in doubt has shared nothing (`fork_of`): copies may have later changes of theirs than the floor says. So
        is the one before such a one, by which it is known.
        """
        needed: set[int] = set()
        for member in self.members.values():
            for lineage, counter in self.ancestors:
                if 0 < member.started <= counter:
                    needed.add(lineage)
                    break
        before = (0, 0)
        for ancestor in self.ancestors:
            if ancestor[1] == before[1] + 1:
                needed.update([before[0], ancestor[0]])
            before = ancestor
        return needed

    def has_few_up(self) -> bool:
        """Tell whether no majority of the members is up; those that never were do not count."""
        begun = [member for member in self.members.values() if member.state != JOINING]
        return 2 * len([member for member in begun if is_up(member.state)]) <= len(begun)

    def holds(self, disk: int) -> bool:
        """Tell whether a disk is a replica of any partition."""
        for state in self.partitions:
            if disk in state.replicas:
                return True
        return False

    def is_branch(self, number: int, disk: int) -> bool:
        """Tell whether a replica has changes from another lineage that are not merged yet."""
        return number in self.branches and disk in self.branches[number]

    def is_left_over(self, number: int, disk: int) -> bool:
        """Tell whether only this copy is in sync, as what was left of a lost partition, and there are branches of it.

        It may be that of a learner which was never filled. Whether it is, its member knows, and withdraws.
        """
        is_lone = self.partitions[number].isr == [disk] and number in self.lost
        return is_lone and number in self.branches and self.goes_together()

    def check_partition(self, number: int) -> None:
        """Assert what holds for one partition."""
        state = self.partitions[number]
        lost = number in self.lost
        assert len(set(state.replicas)) == len(state.replicas), "replicas are distinct"
        for disk in state.replicas:
            assert disk in self.members, "replicas are members"
            assert self.members[disk].kind == DATA, "a witness holds nothing"
        if number in self.branches:
            branches = self.branches[number]
            assert branches, "a partition without branches is not listed"
            assert branches == [disk for disk in state.learners() if disk in branches], "branches are not in sync"
        if number in self.damaged:
            assert state.isr == [self.damaged[number]], "a damaged copy is in sync only if nothing else is"
            assert state.leader == 0, "a damaged copy leads nothing"
        if number in self.recovering:
            assert lost, "what was never lost has nothing to recover"
            assert len(state.isr) > 1, "one copy alone has nobody to be compared with"
        if not state.isr:
            assert lost or not state.replicas, "a partition that is placed and not lost has a copy in sync"
        if state.leader:
            for disk in state.isr:
                assert is_up(self.members[disk].state), "a member that is away is in sync only if nobody else is up"
            assert self.members[state.leader].can_lead(), "a member that is away or joining leads nothing"
        elif self.is_compared(number, state.isr):
            for disk in state.isr:
                assert not self.may_lead(number, disk), "a partition with a copy in sync that can lead has a leader"

    def check(self) -> None:
        """Assert everything that always holds; its time grows with members and partitions."""
        names: set[str] = set()
        assert self.changed <= self.counter(), "what was changed was changed by an entry"
        assert self.base < COUNTER_MAX, "numbers are left for epochs"
        self._check_lineage()
        for disk in self.disks():
            member = self.members[disk]
            assert member.disk == disk, "members are found by their disks"
            assert member.node_id not in names, "the name of a node is unique"
            assert 0 < member.version <= self.index, "a member was changed by an entry"
            assert max(member.started, member.away) <= self.changed, "a member comes and goes by entries that change it"
            if is_up(member.state):
                assert member.started > member.away, "a member that is up has come up since it was away"
            assert (member.why > 0) == (member.away > member.started), "a member went away for a reason"
            assert not is_up(member.state) or member.evicted < member.incarnation, "an evicted process is not up"
            assert self.features & member.process.features == self.features, "every member has the features that are on"
            names.add(member.node_id)
        for number in range(len(self.partitions)):
            self.check_partition(number)
        for number in self.lost:
            assert number < len(self.partitions), "a partition that was lost is one"
        for number in self.recovering:
            assert number < len(self.partitions), "a partition that recovers is one"
        for number in self.branches:
            assert number < len(self.partitions), "a partition that has branches is one"
        for number in self.damaged:
            assert number < len(self.partitions), "a partition that is damaged is one"
        assert len(self.removed) <= REMOVALS_MAX, "removals are bounded"
        for setting in self.settings.values.values():
            assert setting.number <= self.index, "a setting was put by an entry"

    def _check_lineage(self) -> None:
        """Assert what holds for the lineage and its ancestors."""
        shared = 0
        known: set[int] = {self.lineage}
        for lineage, counter in self.ancestors:
            assert lineage > 0, "an ancestor is a lineage"
            assert lineage not in known, "a lineage does not descend from itself"
            assert shared < counter < self.counter(), "each lineage goes on behind what it shares with its parent"
            known.add(lineage)
            shared = counter
        assert self.trunk in known, "a trunk is this lineage or an ancestor"
        assert len(self.ancestors) <= ANCESTORS_MAX, "ancestors are bounded"
        assert self.floor == 0 or self.floor < shared, "the parent is not forgotten"
        assert not self.ancestors or self.ancestors[-1][0] == self.parent, "the parent is the newest ancestor"
        assert self.strength <= len(self.partitions), "a partition has one leader"
        assert self.strength == 0 or self.ancestors, "a lineage that is no fork has no strength"
