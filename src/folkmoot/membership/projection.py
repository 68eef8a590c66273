"""Roles from the configuration log, in the form of the views from which `replica` and the broker take them.

A pure function of the configuration: every member makes the same view of the same configuration, at another moment, and
may skip some. Two configurations of one lineage with the same `changed` have equal views. What each field of a `View`
means for those that read it:

    field         meaning                                            for
    epoch         `changed`, with the tag of the lineage             messages of replicas, versions of rows and requests
    members       members with data that are up                      everything
    replicas      the ISR, its leader first; none without a leader   leading, following, counting copies
    leader_epochs the numbers of the leaderships                     which partitions open anew
    learners      other replicas that are up, branches first;        filling, before anything is dropped
                  none without a leader, who would fill them
    branches      copies with changes of another lineage             merging, before a partition opens
    recovering    partitions whose ISR is what was left, and was     its leader says when all have the same;
                  not compared yet                                   copies that were never filled leave it
    known         members with data that have ever been up           who may come with changes of its own: dates of rows
    absent        those of `known` that are not up                   status, addresses to look for them
    bases         the epoch by which a member came up last           who has lost what was under way; counting learners
    lasts         the epoch before a member went away                which epochs a history has to keep
    lineage       what is shared with ancestors, newest first        which requests both sides of a split have
    floor         the last that is shared with forgotten ancestors   the same
    crowded       members that are full or slow                      checks of the simulation
    losses        partitions without leader: their ISR, and whether  holding offsets back, warnings of a forget
                  it is damaged; what was given up, by the entry
                  that did it
    is_trunk      the lineage is no fork, or a fork that has all     offsets of streams, packet ids
    trunk         of a fork: the ancestor that gives out offsets     records of streams that are merged

Why roles from configurations are safe, though members take them at different moments: *every member of an ISR has every
change that was committed before*, on its disk. By induction over the entries of the log, for a change x of partition p
that a leader L committed in configuration c:

1. In c, L waited for all of the ISR, and each took x as a follower of L in c. A member handles messages of its own
   epoch alone: those of a newer one wait (`replica/early`), older ones are void. It acknowledges in its own epoch, too.
   So L commits nothing in c with a member that has a newer configuration, and whoever has acknowledged x has it in the
   reports that it sends in later ones.
2. While the ISR only shrinks, all in it were in that of c and have acknowledged x in c, so any of them may lead. A new
   leader waits for the reports of the whole ISR all the same. It adopts the longest copy, so that the others need not
   drop what they have. And it does not begin if another member in sync has a newer configuration already.
3. The ISR grows by ALTER_ISR alone, as long as it is not empty. The leader that asks for D counts on D from before it
   asks (`replica/lead.Follower.counts`), in every configuration that it installs until the entry: the entry is refused
   if another leadership has begun, D has come up again, or the partition has changed. And D has everything up to the
   moment from which it counts. So whether x was committed before or after, D has it.
4. A leader that is alone in its ISR commits alone, however old its configuration is. Nobody else leads until it has
   asked for another member, on which it counts then; or until it is away, which is after its lease, and the partition
   has no leader while it is. By force it is given up; that is a loss, and is listed.
5. A leader that skips configurations in which another one led goes on as if it had led throughout. It was in sync all
   the time, because it cannot be filled again without taking part. So the other one waited for its report in vain, and
   committed nothing.

What a member in sync must not do, therefore, is to overwrite its copy: nothing else may have what it has. It leaves the
ISR first (WITHDRAW), see `replica/copy`. A leader that finds another copy in sync diverged leaves
it too, if a later leadership has written to that one; else it keeps its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr

from folkmoot.membership.cluster_member import DATA, ClusterMember
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.holding import COMPLETE, Holding, HoldingsSource
from folkmoot.membership.lifecycle import is_leaving, is_up
from folkmoot.membership.loss import LOSSES_MAX, Loss, Losses
from folkmoot.membership.view import View
from folkmoot.peer.member import ACTIVE, LEAVING, Member
from folkmoot.store.epoch import COUNTER_MAX, counter_of, make_epoch, tag_of

__all__ = ["BranchSource", "HeldBranches", "branches_of", "epoch_of", "member_of", "relics_of", "view_of"]


def _make(counter: int, lineage: int) -> int:
    """Return the epoch of a configuration of a lineage."""
    return make_epoch(counter, f"lineage {lineage:x}")


def _epoch_at(configuration: ClusterConfiguration, counter: int) -> int:
    """Return the epoch of an earlier configuration, which may be one of an ancestor."""
    for lineage, shared in configuration.ancestors:
        if counter <= shared:
            return _make(counter, lineage)
    return _make(counter, configuration.lineage)


def epoch_of(configuration: ClusterConfiguration) -> int:
    """Return the epoch of the view of a configuration; the same as long as no role has changed."""
    return _make(configuration.changed, configuration.lineage)


def view_of(configuration: ClusterConfiguration) -> View:
    """Return the view of a configuration that was founded; see the module's text."""
    assert configuration.is_founded(), "there are members"
    names: dict[int, str] = {}  # of members that are up
    members: list[Member] = []
    absent: list[Member] = []
    crowded: list[str] = []
    bases: dict[str, int] = {}
    lasts: dict[str, list[int]] = {}
    for disk in configuration.disks():
        one = configuration.members[disk]
        if one.kind != DATA or one.started == 0:
            continue
        name = one.node_id
        if not is_up(one.state):
            absent.append(member_of(one))
            lasts[name] = [_epoch_at(configuration, one.away - 1)]
            continue
        names[disk] = name
        members.append(member_of(one))
        bases[name] = _epoch_at(configuration, one.started)
        if one.is_strained():
            crowded.append(name)
    known = [member.node_id for member in members] + [member.node_id for member in absent]
    replicas: list[list[str]] = []
    learners: list[list[str]] = []
    branches: dict[int, list[str]] = {}
    for number, state in enumerate(configuration.partitions):
        leader = state.leader
        if not leader:
            replicas.append([])
            learners.append([])
            continue
        replicas.append([names[leader], *[names[disk] for disk in state.isr if disk != leader]])
        fill = [disk for disk in state.replicas if disk not in state.isr and disk in names]
        apart = [names[disk] for disk in fill if configuration.is_branch(number, disk)]
        if apart:
            branches[number] = apart
        learners.append(apart + [names[disk] for disk in fill if names[disk] not in apart])
    view = View(epoch_of(configuration), members, replicas, learners, known, absent, branches, bases)
    view.leader_epochs = [state.leader_epoch for state in configuration.partitions]
    partitions = configuration.partitions
    left = [number for number in branches if configuration.is_left_over(number, partitions[number].leader)]
    view.recovering = sorted([*configuration.recovering, *left])
    view.lineage = [_make(shared, lineage) for lineage, shared in reversed(configuration.ancestors)]
    view.floor = configuration.floor
    view.lasts = lasts
    view.losses = _losses_of(configuration)
    view.crowded = sorted(crowded)
    view.is_trunk = configuration.trunk == configuration.lineage
    for lineage, shared in configuration.ancestors:
        if lineage == configuration.trunk:
            view.trunk = _make(shared, lineage)
    return view


def member_of(one: ClusterMember) -> Member:
    """Return a member as views have it."""
    process = one.process
    state = LEAVING if is_leaving(one.state) else ACTIVE
    found = Member(one.node_id, one.incarnation, process.address, process.zone, state)
    found.wire_min = process.wire_min
    found.wire_max = process.wire_max
    found.software = process.build
    found.disk = one.disk
    found.host = process.host
    found.witness = one.kind != DATA
    return found


def _losses_of(configuration: ClusterConfiguration) -> Losses:
    """Return which partitions wait for a copy that is away, and which were given up."""
    losses = Losses()
    for number, state in enumerate(configuration.partitions):
        if number in configuration.damaged:
            losses.damaged[number] = configuration.members[configuration.damaged[number]].node_id
        elif state.isr and not state.leader:
            losses.missing[number] = _absent_of(configuration, state.isr)
        elif not state.isr and state.replicas:
            losses.leftover[number] = _absent_of(configuration, state.replicas)
        unmerged = _absent_of(configuration, configuration.branches.get(number, []))
        if unmerged:
            losses.unmerged[number] = unmerged
    given_up: dict[int, int] = {}
    for index in configuration.lost.values():
        given_up[index] = given_up.get(index, 0) + 1
    for index in sorted(given_up)[-LOSSES_MAX:]:
        nodes = [removal.node_id for removal in configuration.removed if removal.index == index]
        losses.past.append(Loss(index, given_up[index], nodes))
    return losses


def _absent_of(configuration: ClusterConfiguration, disks: list[int]) -> list[str]:
    """Return the ids of those of some members that are away."""
    members = [configuration.members[disk] for disk in disks]
    return sorted([member.node_id for member in members if not is_up(member.state)])


def branches_of(holdings: list[Holding], configuration: ClusterConfiguration, disk: int = 0) -> list[int]:
    """Return the partitions of which a node has changes from another lineage, for its START in this one.

    The newest change of a copy decides. A change of this lineage, or of an ancestor before it parted, is no branch: it
    is in the copies that are in sync, or nobody was told of it. Of ancestors that were forgotten that is known for
    members only: whatever they had from that time was compared when they came up for the first time.

    Args:
        holdings: What the node has, by partition.
        configuration: Of the lineage to which it comes.
        disk: Of the node.
    """
    member = configuration.members.get(disk)
    floor = -1 if member is None or member.started == 0 else configuration.floor
    newest: dict[int, int] = {}  # by tag: the highest counter that is no branch
    for lineage, shared in configuration.ancestors:
        newest[tag_of(_make(shared, lineage))] = shared
    newest[tag_of(_make(0, configuration.lineage))] = COUNTER_MAX
    found: list[int] = []
    for number in range(min(len(holdings), len(configuration.partitions))):
        holding = holdings[number]
        whole = holding.state == COMPLETE and holding.seq > 0
        if whole and counter_of(holding.epoch) > newest.get(tag_of(holding.epoch), floor):
            found.append(number)
    return found


def relics_of(holdings: list[Holding], configuration: ClusterConfiguration, former: int) -> list[int]:
    """Return the partitions that were lost together with a former disk, and of which its folder has a copy.

    A folder that was set back, or that was forgotten, may have copies that are older than what was committed. Where
    others were in sync, they have everything. Where nobody was, nothing is newer than this copy: it is a branch, to be
    merged.

    Args:
        holdings: What the node has, by partition.
        configuration: In which the former disk is no member any more.
        former: That disk; 0: there is none.
    """
    given_up = {removal.index for removal in configuration.removed if removal.disk == former}
    found: list[int] = []
    for number, index in sorted(configuration.lost.items()):
        if index in given_up and number < len(holdings):
            if holdings[number].state == COMPLETE and holdings[number].seq > 0:
                found.append(number)
    return found


@mypyc_attr(allow_interpreted_subclasses=True)  # asked with each heartbeat of a process that is not up
class BranchSource(ABC):
    """Says what this process has changed in other lineages, at the moment at which it asks to be let up."""

    @abstractmethod
    def branches(self, configuration: ClusterConfiguration) -> list[int]:
        """Return the partitions of which it has changes that this configuration does not share, in their order."""


class HeldBranches(BranchSource):
    """Those of the copies of a node; former: the disk that its folder was before it was set back, 0: it was none.

    A disk that was removed from another lineage than its own is told so by nobody: it joins again as it is. Until it
    has come up for the first time since, its copies are those that it had before.
    """

    def __init__(self, disk: int, holdings: HoldingsSource) -> None:
        self.former: int = 0
        self._disk = disk
        self._holdings = holdings

    def branches(self, configuration: ClusterConfiguration) -> list[int]:
        """Return `branches_of` what it has now, and `relics_of`."""
        holdings = self._holdings.holdings()
        found = branches_of(holdings, configuration, self._disk)
        found.extend(relics_of(holdings, configuration, self.former))
        member = configuration.members.get(self._disk)
        if member is not None and member.started == 0:
            found.extend(relics_of(holdings, configuration, self._disk))
        return sorted(set(found))
