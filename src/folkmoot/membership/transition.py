"""The transition of the configuration: one entry of the log after another, with the same result at every member.

The rules here are part of the log. A build that decided differently would have another configuration, so a rule changes
only together with a feature (`Features`) that all members have, and the former rule stays for the entries before it.

Fencing. A command about a member names the version of the member that its proposer knew, one about a partition the
version of the partition, one about a setting its number; each is changed by every accepted command, so of two commands
that know the same one is refused, and so is a repetition. START of a newer incarnation needs no version: the order of
starts on one disk is proof enough. EVICT names the incarnation and is about it for ever.

Why a START leaves a member in the ISR. A replica in sync has everything committed on its disk, and that disk is the
same: a copy that was set back is another member. If members left the ISR by starting again, then after a loss of all
power whichever came up last would be the only one in sync. The leadership ends all the same: a leader that comes back
may have sent records of its epoch that it has lost itself, so it must not append to that epoch (`leader_epoch` + 1).

Why a member is added to an ISR by the counter with which it came up. The leader waits for a member from the moment at
which it asks. But a member that is away in between is not waited for, and may come back with the same process, before
the entry: it lacks what was committed meanwhile.

Branches. A member may come back from another lineage in which its copy of a partition has acknowledged changes; START
lists these partitions. If its copy is in sync, and no other one in sync is up, it is the partition. Else the member
leaves the ISR, because its copy is not what the others have: the copy is a *branch*, and is kept until the leader of
the partition has merged it. A branch is a replica that is not in sync, and ends as soon as it is in sync, or is no
replica. A leadership begins with it, also of the same member: all others close the partition until it is merged,
whichever configurations they install, and no leader adds a member whose changes it has not seen. A later START does not
end it, and who has one is removed only by force.

What a removal costs is judged here, when the entry is applied (`loss.cost_of`), and nowhere else for certain: who asks
for it knows an earlier configuration. So of two removals that are harmless each and together give up the last copy, the
second one is refused.

Recovery. Where the last copy in sync was given up, what is left are copies that were in sync earlier, or never: nobody
knows which of them is the newest (in Kafka's words, an unclean recovery: KIP-966 asks all of them for the ends of their
logs). So they are put in sync together, when all of them are up, and the partition is *recovering*: its leader adopts
the newest of them, and the others what it has. Until it says that they have (ALTER_ISR), no copy leaves the ISR because
its member is away. Instead nobody leads, for the one that is away may be the newest: it is waited for, or forgotten by
force. A copy that is unfit leaves as always (WITHDRAW), and a copy that is left alone has nothing to be compared with.

Damage. A member whose copy cannot be read leaves the ISR (WITHDRAW). Where it is the last one it stays: what it has may
be restored. But it must not lead, else it would take writes into a copy that it cannot read: the partition has no
leader, and lists it as `damaged`, until the member starts again, because its operator has restored the copy or wants it
to be tried again, or it is removed by force. The version fences this, because a copy that was filled since is sound.
One that is merely behind is not listed: as the last one in sync it has everything that was committed.

The trunk. A fork gives out no offsets of streams, because the lineage from which it descends may give out the same.
That ends when all members with data are up in the fork and all branches are merged, or the others are forgotten: then
the fork is the trunk, and goes on with a quorum of its own voters like the lineage that was founded.

Pruning. A fork that has become the trunk may forget old ancestors (PRUNE), when all members are up in it and no branch
is left: whoever is up has said which of its copies have changes of another lineage. It does not matter when that was
proposed. A member that is in another lineage by then, and counts as up here, has parted behind the floor, so its
changes since are told from those before.

Why START raises the base of counters. A member that comes back from another lineage has rows with its epochs. Were
those of this one lower, new rows would count as older than the ones that they replace. A counter far ahead is refused:
all would adopt it, and no numbers would be left.
"""

from __future__ import annotations

from typing import Final

from folkmoot.membership.cluster_member import DATA, ClusterMember
from folkmoot.membership.cluster_settings import ABSENT, is_possible
from folkmoot.membership.command import (
    COPIES_MAX,
    EVICTED,
    FORGOTTEN,
    MEMBERS_MAX,
    PARTITIONS_MAX,
    REPLICAS_MAX,
    Activate,
    AlterIsr,
    Command,
    Delete,
    Evict,
    Features,
    Found,
    IsrItem,
    Join,
    Lead,
    Leave,
    MarkAway,
    Place,
    PlaceItem,
    Prune,
    Put,
    Remove,
    Renew,
    Stay,
    Strain,
    Withdraw,
    decode_command,
)
from folkmoot.membership.configuration import REMOVALS_MAX, ClusterConfiguration, Removal
from folkmoot.membership.lifecycle import (
    ACTIVE,
    AWAY,
    AWAY_LEAVING,
    GONE,
    IMPOSSIBLE,
    JOINING,
    LEAVING,
    ON_AWAY,
    ON_EVICT,
    ON_LEAVE,
    ON_REMOVE,
    ON_START,
    ON_STAY,
    is_up,
    next_state,
)
from folkmoot.membership.loss import Cost, cost_of
from folkmoot.membership.partition_state import PartitionState, unplaced
from folkmoot.store.epoch import COUNTER_MAX, is_sane

__all__ = [
    "ACCEPTED",
    "FOUNDED",
    "HOLDS_COPIES",
    "INELIGIBLE",
    "INVALID",
    "KNOWN_DISK",
    "LACKS_FEATURES",
    "LAST_COPY",
    "NAME_TAKEN",
    "NOT_FOUNDED",
    "NOT_IN_SYNC",
    "NO_ROOM",
    "OLD_INCARNATION",
    "OLD_VERSION",
    "OTHER_LEADER",
    "NO_NUMBERS",
    "OTHER_NUMBER",
    "REASONS",
    "RUNS",
    "Result",
    "Transition",
    "UNCHANGED",
    "UNKNOWN_DISK",
    "UNKNOWN_PARTITION",
    "UNMERGED",
    "WAS_EVICTED",
    "WRONG_STATE",
]

ACCEPTED: Final = 0
FOUNDED: Final = 1
NOT_FOUNDED: Final = 2
INVALID: Final = 3
KNOWN_DISK: Final = 4
UNKNOWN_DISK: Final = 5
NAME_TAKEN: Final = 6
WAS_EVICTED: Final = 7
OLD_INCARNATION: Final = 8
OLD_VERSION: Final = 9
WRONG_STATE: Final = 10
LAST_COPY: Final = 11
HOLDS_COPIES: Final = 12
UNKNOWN_PARTITION: Final = 13
OTHER_LEADER: Final = 14
NOT_IN_SYNC: Final = 15
INELIGIBLE: Final = 16
UNCHANGED: Final = 17
OTHER_NUMBER: Final = 18
NO_ROOM: Final = 19
LACKS_FEATURES: Final = 20
UNMERGED: Final = 21
NO_NUMBERS: Final = 22  # by the controller: the command is no entry
RUNS: Final = 23  # by the controller, too
REASONS: Final[list[str]] = [
    "accepted",
    "the cluster is founded already",
    "the cluster is not founded yet",
    "the command has values that no correct proposer sends",
    "the disk is a member already: its process starts",
    "no member has this disk",
    "another disk has the name of this node: remove that member first",
    "the process was put out, or its disk was removed: start it again",
    "a newer process of the member is known",
    "what the command changes has changed since it was proposed",
    "the command does not fit the state of the member",
    "the member has the only copy of a partition that is in sync: force gives it up",
    "the member holds copies: they are handed over first",
    "there is no such partition",
    "another member, or another epoch of this one, leads the partition",
    "the member is not in sync",
    "the member is not up, holds no data or only a damaged copy, or has come up again since",
    "nothing would change",
    "the setting has another number than expected",
    "there is no room for the setting, the member or the replica",
    "a member lacks a feature that is on, or is to be",
    "the member has changes from another lineage that are not merged yet: force gives them up",
    "the cluster has no numbers left for changes of settings, only for those of roles",
    "the process of the member runs, and may have what nobody else has: force gives it up",
]
"""Why a command was refused, as texts for people."""


class Result:
    """What became of a command, and what a node has to install: disks of members, partitions, and keys of settings.

    `skipped`: the partitions of a Place or AlterIsr whose items were refused, with the reasons. A refused command has
    changed nothing, but that a request for a setting is known as judged. `first`: the entry that was for the same
    request, and how it was judged; None: this is the first one.
    """

    def __init__(self, index: int, command: Command) -> None:
        self.index = index
        self.command = command
        self.refused: int = ACCEPTED
        self.disks: list[int] = []
        self.partitions: list[int] = []
        self.keys: list[str] = []
        self.cost: Cost | None = None  # what a removal by force has given up, or one without it would
        self.skipped: list[tuple[int, int]] = []
        self.features: bool = False
        self.founded: bool = False
        self.first: tuple[int, int] | None = None

    def is_accepted(self) -> bool:
        """Tell whether the command was applied."""
        return self.refused == ACCEPTED

    def text(self) -> str:
        """Return what became of the command, for people."""
        return REASONS[self.refused]

    def __repr__(self) -> str:
        return f"{self.index} {self.command!r}: {self.text()}"


def _disk_of(command: MarkAway) -> int:
    return command.disk


class Transition:
    """Applies entries to a configuration."""

    def __init__(self, configuration: ClusterConfiguration) -> None:
        self.configuration = configuration
        self._index: int = 0
        self._changed: list[int] = []  # partitions

    def apply(self, index: int, data: bytes) -> Result:
        """Apply the entry at `index`; raises ValueError if this build cannot read it, after which it must stop."""
        return self.apply_command(index, decode_command(data))

    def apply_command(self, index: int, command: Command) -> Result:
        """Apply a command that was decoded already."""
        assert index > self.configuration.index, "entries are applied in their order"
        result = self._apply_at(index, command)
        if result.is_accepted():
            self._settle()
        return result

    def begin(self, index: int, deaths: list[MarkAway], forgotten: list[int], founder: int = 0) -> None:
        """Make the first configuration of a fork (`membership/fork`): what is known at once is one entry.

        Of a partition whose replicas in sync are all away, all of them stay in sync: nobody has led it between their
        deaths. Deaths that do not fit are refused, like any.

        Args:
            index: Of that entry.
            deaths: Members that are away in the fork.
            forgotten: Disks that are removed by force, all of them away.
            founder: A disk of `deaths` that knows more than this configuration, in which others may have left the ISR:
                where it is in sync, it alone stays so. 0: there is none.
        """
        configuration = self.configuration
        assert index > configuration.index, "a fork goes on behind its parent"
        assert configuration.is_founded(), "a fork is of a cluster"
        before = list(configuration.partitions)
        for command in deaths:
            self._apply_at(index, command)
        for number, partition in enumerate(configuration.partitions):
            if number not in configuration.recovering and not configuration.able(partition.isr):
                isr = [founder] if founder in before[number].isr else before[number].isr
                if isr != partition.isr:
                    self._put_partition(number, partition.replicas, isr, 0, False)
        for disk in forgotten:
            removed = self._apply_at(index, Remove(disk, configuration.members[disk].version, FORGOTTEN, True))
            assert removed.is_accepted(), "who is forgotten is away"
        configuration.index = index
        configuration.changed = configuration.counter()
        self._settle()  # as a whole: after the first deaths, those that follow seem to be up

    def _apply_at(self, index: int, command: Command) -> Result:
        configuration = self.configuration
        result = Result(index, command)
        self._index = index
        self._changed = []
        if isinstance(command, Found):
            result.refused = self._found(command, result)
        elif not configuration.is_founded():
            result.refused = NOT_FOUNDED
        else:
            result.refused = self._apply(command, result)
        configuration.index = index
        if result.is_accepted() and not (result.keys or result.features):
            configuration.changed = configuration.counter()
        result.partitions = sorted(set(self._changed))
        self._check(result)
        return result

    def _settle(self) -> None:
        """Make a fork the trunk when it is whole: nobody with data is in another lineage, or has to be merged."""
        configuration = self.configuration
        if configuration.trunk == configuration.lineage or configuration.branches:
            return
        for member in configuration.members.values():
            if member.kind == DATA and member.started and not is_up(member.state):
                return
        configuration.trunk = configuration.lineage

    def _apply(self, command: Command, result: Result) -> int:
        if isinstance(command, AlterIsr):
            return self._alter(command, result)
        if isinstance(command, Place):
            return self._place(command, result)
        if isinstance(command, Lead):
            return self._lead(command)
        if isinstance(command, (Put, Delete)):
            return self._set(command, result)
        if isinstance(command, Features):
            return self._features(command, result)
        if isinstance(command, Prune):
            return self._prune(command)
        if isinstance(command, Join):
            return self._join(command.member, result)
        return self._apply_to_member(command, result)

    def _apply_to_member(self, command: Command, result: Result) -> int:
        if isinstance(command, Activate):
            return self._start(command, result)
        if isinstance(command, MarkAway):
            return self._away(command, result)
        if isinstance(command, Evict):
            return self._evict(command, result)
        if isinstance(command, Leave):
            return self._turn(command.disk, command.version, ON_LEAVE, result)
        if isinstance(command, Stay):
            return self._turn(command.disk, command.version, ON_STAY, result)
        if isinstance(command, Remove):
            return self._remove(command, result)
        if isinstance(command, Strain):
            return self._strain(command, result)
        assert isinstance(command, (Withdraw, Renew)), "every command is applied"
        return self._ask(command)

    def _check(self, result: Result) -> None:
        """Assert the invariants of what an entry has changed."""
        configuration = self.configuration
        assert result.is_accepted() or not (result.disks or result.partitions or result.keys), (
            "a refusal changes nothing"
        )
        for number in result.partitions:
            configuration.check_partition(number)
        for disk in result.disks:
            member = configuration.members.get(disk)
            if member is None:
                assert not configuration.holds(disk), "a member that is gone holds nothing"
                continue
            assert member.version == self._index, "the version of a member is the entry that changed it last"
            assert not is_up(member.state) or member.evicted < member.incarnation, "an evicted process is not up"

    # The foundation

    def _found(self, command: Found, result: Result) -> int:
        configuration = self.configuration
        if configuration.is_founded():
            return FOUNDED
        disks = {member.disk for member in command.members}
        names = {member.node_id for member in command.members}
        data = [member for member in command.members if member.kind == DATA]
        if not data or len(disks) < len(command.members) or len(names) < len(command.members):
            return INVALID
        if not 0 < command.partitions <= PARTITIONS_MAX or not 0 < command.copies <= COPIES_MAX:
            return INVALID
        configuration.cluster = command.cluster
        configuration.lineage = command.lineage
        configuration.trunk = command.lineage
        configuration.parent = command.parent
        configuration.parent_index = command.parent_index
        configuration.copies = command.copies
        for member in command.members:
            self._put_member(ClusterMember(member.disk, member.node_id, member.kind, member.process), ACTIVE, result)
        configuration.partitions = [unplaced() for _ in range(command.partitions)]
        result.founded = True
        return ACCEPTED

    def _put_member(self, member: ClusterMember, state: int, result: Result) -> None:
        """Install a new member."""
        after = member.in_state(state, self._index)
        after.started = self._counter() if is_up(state) else 0
        self.configuration.members[member.disk] = after
        result.disks.append(member.disk)

    def _counter(self) -> int:
        """Return the counter of the configuration that this entry makes."""
        return self.configuration.counter_at(self._index)

    # Members

    def _join(self, member: ClusterMember, result: Result) -> int:
        configuration = self.configuration
        if member.disk in configuration.members:
            return KNOWN_DISK
        if configuration.named(member.node_id) is not None:
            return NAME_TAKEN
        if member.incarnation <= configuration.removed_incarnation(member.disk):
            return WAS_EVICTED
        if len(configuration.members) >= MEMBERS_MAX:
            return NO_ROOM
        if configuration.features & member.process.features != configuration.features:
            return LACKS_FEATURES
        self._put_member(ClusterMember(member.disk, member.node_id, member.kind, member.process), JOINING, result)
        return ACCEPTED

    def _start(self, command: Activate, result: Result) -> int:
        configuration = self.configuration
        member = configuration.members.get(command.disk)
        if member is None:
            return UNKNOWN_DISK
        process = command.process
        if process.incarnation < member.incarnation:
            return OLD_INCARNATION
        if process.incarnation <= member.evicted:
            return WAS_EVICTED
        if process.incarnation == member.incarnation:
            if is_up(member.state):
                return UNCHANGED
            if command.version != member.version:
                return OLD_VERSION
        if configuration.features & process.features != configuration.features:
            return LACKS_FEATURES
        if command.seen >= COUNTER_MAX or not is_sane(command.seen, self._counter()):
            return INVALID
        reason = self._judge_branches(member, command.branches)
        if reason != ACCEPTED:
            return reason
        configuration.base += max(command.seen + 1 - self._counter(), 0)
        after = member.copied(self._index)
        after.process = process
        after.state = next_state(ON_START, member.state)
        assert is_up(after.state), "a member that has started is up"
        after.why = 0
        after.started = self._counter()
        self._change(member, after, result)
        for number in [number for number, disk in configuration.damaged.items() if disk == command.disk]:
            del configuration.damaged[number]
        branches = set(command.branches)
        for number, partition in enumerate(configuration.partitions):
            if number in branches:
                self._branch(number, command.disk)
            elif command.disk in partition.isr and partition.leader in (0, command.disk):
                isr = configuration.remaining(number, partition.isr)
                leader = configuration.elect(number, partition.replicas, isr)
                if leader == 0:
                    assert not configuration.is_compared(number, isr), "the member itself can lead"
                    continue  # it waits for another one
                self._put_partition(number, partition.replicas, isr, leader, True)
        return ACCEPTED

    def _judge_branches(self, member: ClusterMember, branches: list[int]) -> int:
        """Tell whether a member may have copies with these branches."""
        partitions = self.configuration.partitions
        last = -1
        for number in branches:
            if number <= last or member.kind != DATA:
                return INVALID
            if number >= len(partitions):
                return UNKNOWN_PARTITION
            if member.disk not in partitions[number].replicas and len(partitions[number].replicas) >= REPLICAS_MAX:
                return NO_ROOM
            last = number
        return ACCEPTED

    def _branch(self, number: int, disk: int) -> None:
        """Take over a copy with changes from another lineage; if it is in sync and nobody else is up, it leads.

        Where the last copy in sync was given up, and others are left, it is a branch of what they will have together.
        """
        configuration = self.configuration
        before = configuration.partitions[number]
        replicas = before.replicas if disk in before.replicas else [*before.replicas, disk]
        isr = before.isr
        if disk in isr:
            isr = [other for other in configuration.remaining(number, isr) if other != disk]
        left = [other for other in self._leftovers(number) if other != disk]
        if not isr and not left:
            self._put_partition(number, replicas, [disk], disk, True)
            return
        leader = before.leader
        if leader in (0, disk):
            leader = configuration.elect(number, replicas, isr)
        self._put_partition(number, replicas, isr, leader, bool(isr))
        branches = [*configuration.branches.get(number, []), disk]
        configuration.branches[number] = [other for other in replicas if other in branches]

    def _away(self, command: MarkAway, result: Result) -> int:
        """Mark processes as away, those that can be; if none can, the reason is that of the one with the least disk.

        If one of them has changed since that was proposed, none is marked: its proposer knew that it does not live, and
        would have the others leave their partitions to it.
        """
        commands = sorted(command.all(), key=_disk_of)
        if len({one.disk for one in commands}) < len(commands):
            return INVALID
        reasons = [self._judge_away(one) for one in commands]
        for reason in reasons:
            if reason in (OLD_INCARNATION, OLD_VERSION):
                return reason
        if ACCEPTED not in reasons:
            return reasons[0]
        marked = [one for one, reason in zip(commands, reasons, strict=True) if reason == ACCEPTED]
        for one in marked:
            before = self.configuration.members[one.disk]
            after = before.in_state(next_state(ON_AWAY, before.state), self._index)
            after.why = one.why
            after.away = self._counter()
            self._change(before, after, result)
        self._withdraw([one.disk for one in marked])
        return ACCEPTED

    def _judge_away(self, command: MarkAway) -> int:
        """Tell whether a process can be marked as away."""
        member = self.configuration.members.get(command.disk)
        if member is None:
            return UNKNOWN_DISK
        if command.incarnation != member.incarnation:
            return OLD_INCARNATION
        if command.version != member.version:
            return OLD_VERSION
        if next_state(ON_AWAY, member.state) == IMPOSSIBLE:
            return WRONG_STATE
        return INVALID if command.why == 0 else ACCEPTED

    def _evict(self, command: Evict, result: Result) -> int:
        member = self.configuration.members.get(command.disk)
        if member is None:
            return UNKNOWN_DISK
        if command.incarnation != member.incarnation:
            return OLD_INCARNATION
        if command.incarnation <= member.evicted:
            return UNCHANGED
        state = next_state(ON_EVICT, member.state)
        assert state in (AWAY, AWAY_LEAVING), "a member that was put out is away"
        after = member.in_state(state, self._index)
        after.evicted = command.incarnation
        after.why = EVICTED
        if member.why == 0:  # it was not away before
            after.away = self._counter()
        self._change(member, after, result)
        self._withdraw([member.disk])
        return ACCEPTED

    def _turn(self, disk: int, version: int, event: int, result: Result) -> int:
        """Begin a leave or take it back."""
        member = self.configuration.members.get(disk)
        if member is None:
            return UNKNOWN_DISK
        if version != member.version:
            return OLD_VERSION
        state = next_state(event, member.state)
        if state == IMPOSSIBLE:
            return WRONG_STATE
        assert is_up(state) == is_up(member.state), "a leave neither starts nor ends a process"
        self._change(member, member.in_state(state, self._index), result)
        return ACCEPTED

    def _strain(self, command: Strain, result: Result) -> int:
        member = self.configuration.members.get(command.disk)
        if member is None:
            return UNKNOWN_DISK
        if command.incarnation != member.incarnation:
            return OLD_INCARNATION
        if command.version != member.version:
            return OLD_VERSION
        if command.full == member.full and command.slow == member.slow:
            return UNCHANGED
        after = member.copied(self._index)
        after.full = command.full
        after.slow = command.slow
        self._change(member, after, result)
        return ACCEPTED

    def _ask(self, command: Withdraw | Renew) -> int:
        """Do what a member asks for itself: leave ISRs, or begin anew with the others."""
        configuration = self.configuration
        member = configuration.members.get(command.disk)
        if member is None:
            return UNKNOWN_DISK
        if command.incarnation != member.incarnation:
            return OLD_INCARNATION
        if not is_up(member.state):
            return WRONG_STATE
        if isinstance(command, Renew):
            return ACCEPTED
        for number in [*command.partitions, *[number for number, _version in command.damaged]]:
            if number >= len(configuration.partitions):
                return UNKNOWN_PARTITION
        done = False
        for number in sorted(set(command.partitions)):
            done = self._withdraw_one(number, command.disk) or self._yield_one(number, command.disk) or done
        for number, version in command.damaged:
            done = self._withdraw_one(number, command.disk) or self._close(number, command.disk, version) or done
        return ACCEPTED if done else LAST_COPY

    def _withdraw_one(self, number: int, disk: int) -> bool:
        """Take a member out of one ISR, if another remains; its leadership passes to that one."""
        partition = self.configuration.partitions[number]
        isr = [other for other in partition.isr if other != disk]
        if disk not in partition.isr or not isr:
            return False
        leader = partition.leader
        if leader == disk:
            leader = self.configuration.elect(number, partition.replicas, isr)
        self._put_partition(number, partition.replicas, isr, leader, False)
        return True

    def _yield_one(self, number: int, disk: int) -> bool:
        """Let a branch be a partition whose last copy in sync was given up, and of which what is left has nothing."""
        configuration = self.configuration
        if not configuration.is_left_over(number, disk):
            return False
        branches = configuration.able(configuration.branches[number])
        if not branches:
            return False
        self._put_partition(number, configuration.partitions[number].replicas, branches[:1], branches[0], True)
        return True

    def _close(self, number: int, disk: int, version: int) -> bool:
        """End the leadership of a partition whose last copy in sync is damaged."""
        partition = self.configuration.partitions[number]
        if partition.isr != [disk] or partition.version != version or number in self.configuration.damaged:
            return False
        self.configuration.damaged[number] = disk
        self._put_partition(number, partition.replicas, partition.isr, 0, False)
        return True

    def _change(self, before: ClusterMember, after: ClusterMember, result: Result) -> None:
        """Install the next state of a member."""
        assert after.succeeds(before), "numbers of a member grow"
        self.configuration.members[after.disk] = after
        result.disks.append(after.disk)

    def _withdraw(self, disks: list[int]) -> None:
        """Take members that are away out of the ISRs in which another remains, and give their leaderships to others.

        The last members of an ISR stay in it: nothing else has what was committed, and each of them has all of it. All
        stay in that of a partition that recovers.
        """
        configuration = self.configuration
        assert not configuration.able(disks), "the members are away"
        for number, partition in enumerate(configuration.partitions):
            if not any(disk in partition.isr for disk in disks):
                continue
            isr = configuration.remaining(number, partition.isr) or partition.isr
            leader = partition.leader
            if leader in disks or not configuration.is_compared(number, isr):
                leader = configuration.elect(number, partition.replicas, isr)
            if leader != partition.leader or len(isr) < len(partition.isr):
                self._put_partition(number, partition.replicas, isr, leader, False)

    def _remove(self, command: Remove, result: Result) -> int:
        configuration = self.configuration
        disk = command.disk
        member = configuration.members.get(disk)
        if member is None:
            return UNKNOWN_DISK
        if command.version != member.version:
            return OLD_VERSION
        state = next_state(ON_REMOVE, member.state)
        if state == IMPOSSIBLE:
            return WRONG_STATE
        assert state == GONE, "a member that is removed is gone"
        if member.state == LEAVING and configuration.holds(disk):
            return HOLDS_COPIES
        cost = result.cost = cost_of(configuration, disk)
        if not command.force and cost.copies:
            return LAST_COPY
        if not command.force and cost.branches:
            return UNMERGED
        for number, partition in enumerate(configuration.partitions):
            if disk in partition.replicas:
                self._drop(number, partition, disk)
        del configuration.members[disk]
        configuration.settings.forget_requests(disk)
        configuration.removed.append(Removal(disk, member.node_id, member.incarnation, self._index, command.why))
        if len(configuration.removed) > REMOVALS_MAX:
            del configuration.removed[0]
        result.disks.append(disk)
        return ACCEPTED

    def _drop(self, number: int, partition: PartitionState, disk: int) -> None:
        """Take a member that is away, and leads nothing, from the replicas."""
        assert partition.leader != disk, "a member that is removed leads nothing"
        isr = [other for other in partition.isr if other != disk]
        if partition.isr and not isr:
            self.configuration.lost[number] = self._index
        replicas = [other for other in partition.replicas if other != disk]
        leader = partition.leader
        if leader == 0:  # those that are left may have waited for it
            leader = self.configuration.elect(number, replicas, isr)
        self._put_partition(number, replicas, isr, leader if isr else 0, False)

    def _prune(self, command: Prune) -> int:
        """Forget old ancestors; a process that has been in one of them only is a stranger from now on."""
        configuration = self.configuration
        if not configuration.is_whole():
            return WRONG_STATE
        if command.upto > configuration.prunable(1):
            return INVALID
        return ACCEPTED if configuration.prune(command.upto) else UNCHANGED

    # Partitions

    def _put_partition(self, number: int, replicas: list[int], isr: list[int], leader: int, anew: bool) -> None:
        """Change a partition; `anew`: a leadership begins, also if the same member leads."""
        configuration = self.configuration
        before = configuration.partitions[number]
        epoch = before.leader_epoch
        if leader and (anew or leader != before.leader):
            epoch += 1
        after = PartitionState(replicas, isr, leader, epoch, before.version + 1)
        assert after.succeeds(before), "epochs and versions of a partition grow one by one"
        configuration.partitions[number] = after
        self._changed.append(number)
        if number in configuration.damaged and isr != [configuration.damaged[number]]:
            del configuration.damaged[number]
        if len(isr) < 2:
            configuration.recovering.pop(number, None)
        if number in configuration.branches:
            branches = [disk for disk in after.learners() if disk in configuration.branches[number]]
            if branches:
                configuration.branches[number] = branches
            else:
                del configuration.branches[number]

    def _place(self, command: Place, result: Result) -> int:
        for item in command.items:
            self._note(item.partition, self._place_one(item), result)
        return self._verdict(len(command.items), result)

    def _alter(self, command: AlterIsr, result: Result) -> int:
        for item in command.items:
            self._note(item.partition, self._alter_one(command, item), result)
        return self._verdict(len(command.items), result)

    def _note(self, number: int, reason: int, result: Result) -> None:
        """Note how one item was judged."""
        if reason != ACCEPTED:
            result.skipped.append((number, reason))

    def _verdict(self, items: int, result: Result) -> int:
        """Return what becomes of a command with items: it is accepted if one is, or has the first reason."""
        if len(result.skipped) < items:
            return ACCEPTED
        return result.skipped[0][1] if items else UNCHANGED

    def _place_one(self, item: PlaceItem) -> int:
        configuration = self.configuration
        if item.partition >= len(configuration.partitions):
            return UNKNOWN_PARTITION
        before = configuration.partitions[item.partition]
        if item.version != before.version:
            return OLD_VERSION
        replicas = item.replicas
        if not replicas or len(replicas) > REPLICAS_MAX or len(set(replicas)) < len(replicas):
            return INVALID
        if replicas == before.replicas and before.isr:
            return UNCHANGED
        for disk in replicas:
            if disk not in configuration.members:
                return UNKNOWN_DISK
            member = configuration.members[disk]
            if disk not in before.replicas and (member.kind != DATA or member.state != ACTIVE):
                return INELIGIBLE
        isr = [disk for disk in replicas if disk in before.isr]
        leader = before.leader
        left: list[int] = []
        if not before.isr:
            left = self._leftovers(item.partition)
            isr = self._first_isr(item.partition, replicas, left)
        elif item.partition in configuration.recovering and len(isr) < len(before.isr):
            return INELIGIBLE
        if not isr:
            return LAST_COPY if before.isr else INELIGIBLE
        if len(left) > 1:
            configuration.recovering[item.partition] = True
        if leader not in isr:
            leader = configuration.elect(item.partition, replicas, isr)
        self._put_partition(item.partition, replicas, isr, leader, False)
        return ACCEPTED

    def _leftovers(self, number: int) -> list[int]:
        """Return the copies of a partition that are left where its last copy in sync was given up, without branches.

        Where not all members know what recovers together, none is taken for such a copy.
        """
        configuration = self.configuration
        partition = configuration.partitions[number]
        if not configuration.goes_together() or partition.isr:
            return []
        return [disk for disk in partition.replicas if not configuration.is_branch(number, disk)]

    def _first_isr(self, number: int, replicas: list[int], left: list[int]) -> list[int]:
        """Return who is in sync in a partition in which nobody was.

        Where nothing was ever committed, all that are up are. Where the last copy was given up, those are that are
        `left` of it, when all of them are up: which one is the newest is not known. Others have nothing, and one of
        them could begin the partition empty. Copies from other lineages are merged; if there are no others, one of
        them is in sync.
        """
        configuration = self.configuration
        if not configuration.may_begin(number):
            return []
        if left:
            is_whole = len(configuration.able(left)) == len(left) and all(disk in replicas for disk in left)
            return [disk for disk in replicas if disk in left] if is_whole else []
        able = configuration.able(replicas)
        return [disk for disk in able if not configuration.is_branch(number, disk)] or able[:1]

    def _alter_one(self, command: AlterIsr, item: IsrItem) -> int:
        configuration = self.configuration
        if item.partition >= len(configuration.partitions):
            return UNKNOWN_PARTITION
        before = configuration.partitions[item.partition]
        if command.leader != before.leader or item.leader_epoch != before.leader_epoch:
            return OTHER_LEADER
        if item.version != before.version:
            return OLD_VERSION
        wanted = item.isr
        if command.leader not in wanted or len(set(wanted)) < len(wanted):
            return INVALID
        for disk in wanted:
            if disk not in before.replicas:
                return INELIGIBLE
            if disk in before.isr:
                continue
            member = configuration.members[disk]
            if not member.can_lead() or member.started != command.started[disk]:
                return INELIGIBLE
        isr = [disk for disk in before.replicas if disk in wanted]
        recovers = item.partition in configuration.recovering
        if isr == before.isr and not recovers:
            return UNCHANGED
        if recovers:
            del configuration.recovering[item.partition]  # the leader has the newest of them, and so have the others
        self._put_partition(item.partition, before.replicas, isr, before.leader, item.anew)
        return ACCEPTED

    def _lead(self, command: Lead) -> int:
        configuration = self.configuration
        if command.partition >= len(configuration.partitions):
            return UNKNOWN_PARTITION
        before = configuration.partitions[command.partition]
        if command.version != before.version:
            return OLD_VERSION
        if command.leader not in before.isr:
            return NOT_IN_SYNC
        if command.leader == before.leader:
            return UNCHANGED
        if not configuration.may_lead(command.partition, command.leader):
            return INELIGIBLE
        if not configuration.is_compared(command.partition, before.isr):
            return INELIGIBLE
        self._put_partition(command.partition, before.replicas, before.isr, command.leader, False)
        return ACCEPTED

    # Settings and features

    def _set(self, command: Put | Delete, result: Result) -> int:
        """Change a setting once for each request: a repetition changes nothing, whatever has changed since."""
        settings = self.configuration.settings
        request = command.request
        if request is None:
            return self._change_setting(command, result)
        if request.disk not in self.configuration.members:
            return UNKNOWN_DISK
        if settings.is_over(request):
            return OLD_VERSION
        result.first = settings.first(request)
        if result.first is not None:
            return UNCHANGED
        if not settings.has_room_for(request):
            return NO_ROOM
        refused = self._change_setting(command, result)
        settings.judge(request, self._index, refused)
        return refused

    def _change_setting(self, command: Put | Delete, result: Result) -> int:
        settings = self.configuration.settings
        key = command.key
        if not is_possible(key, command.author, len(command.value) if isinstance(command, Put) else 0):
            return INVALID
        if not settings.expects(key, command.expected):
            return OTHER_NUMBER
        if isinstance(command, Put):
            if not settings.has_room(key, command.value):
                return NO_ROOM
            settings.put(key, command.value, self._index, command.author)
        else:
            if settings.number(key) == ABSENT:
                return UNCHANGED
            settings.delete(key, self._index, command.author)
        result.keys.append(key)
        return ACCEPTED

    def _features(self, command: Features, result: Result) -> int:
        configuration = self.configuration
        bits = configuration.features | command.bits
        if bits == configuration.features:
            return UNCHANGED
        for member in configuration.members.values():
            if bits & member.process.features != bits:
                return LACKS_FEATURES
        configuration.features = bits
        result.features = True
        return ACCEPTED
