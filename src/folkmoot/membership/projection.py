"""Roles for today's replication: a configuration of the log as a view.

Replication takes its roles from views (`membership/view`), on which members agree. A configuration says the same and
more, so a view of it is a function of the configuration alone: members that have applied the same entries have the same
view, and a view is newer than another one of its lineage if its epoch is higher.

field | of a configuration
--- | ---
epoch | the counter of the last entry that changed roles, and a tag of the lineage
members | members with data that are up; a witness holds nothing and serves nobody
replicas | the leader, then the rest of the ISR that is up; none if the partition is absent
learners | the other replicas that are up
branches | learners with changes of another lineage
known, absent | members with data that have been up, and those of them that are away
bases | the epoch of the view in which a member came up: a node with an older view starts over with it
lasts | the last view before a member went away: histories keep what is around it
lineage | this view, and the last ones that were shared with the lineages from which this one descends
losses | absent partitions and the members in their ISR; partitions that were given up
crowded, refused | members that are strained; processes that were put out

Why roles from configurations are safe, though members take them at different moments. Views had a phase of promises:
all members of the next one stopped in the old one first. Here only this holds: *every member of an ISR has every change
that was committed before*, on its disk. By induction over the entries of the log, for a change x of partition p that a
leader L committed in configuration c:

1. In c, L waited for all of the ISR, and each took x as a follower of L in c. A member handles messages of its own
   epoch alone: those of a newer one wait (`replica/early`), older ones are void. It acknowledges in its own epoch, too.
   So L commits nothing in c with a member that has a newer configuration, and whoever has acknowledged x has it in the
   reports that it sends in later ones.
2. While the ISR only shrinks, all in it were in that of c and have x. A leader that took over in between was one of
   them, and has x unless L has not committed it yet. It waits for the reports of the whole ISR and adopts the longest
   copy: after these reports L commits nothing more with the members that sent them.
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
ISR first (WITHDRAW), see `replica/copy`. A leader that finds another copy in sync diverged keeps its own.
"""

from __future__ import annotations

from typing import Final

from folkmoot.membership.cluster_member import DATA, ClusterMember
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.holding import NONE, Holding
from folkmoot.membership.lifecycle import JOINING, is_leaving, is_up
from folkmoot.membership.loss import LOSSES_MAX, Loss
from folkmoot.membership.view import View
from folkmoot.peer.member import ACTIVE, LEAVING, Member
from folkmoot.store.epoch import counter_of, make_epoch, tag_of

__all__ = ["branches_of", "epoch_of", "view_of"]

_NOBODY: Final[list[str]] = []
_NO_DISKS: Final[list[int]] = []


def epoch_of(counter: int, lineage: int) -> int:
    """Return the epoch of a counter in a lineage."""
    return make_epoch(counter, f"lineage {lineage}")


def view_of(configuration: ClusterConfiguration) -> View:
    """Return the roles of a configuration."""
    assert configuration.is_founded(), "a configuration before the first has no roles"
    lineage = configuration.lineage
    names: dict[int, str] = {}
    members: list[Member] = []
    absent: list[Member] = []
    for disk in configuration.disks():
        member = configuration.members[disk]
        if member.kind != DATA or member.state == JOINING or member.started == 0:
            continue
        names[disk] = member.node_id
        (members if is_up(member.state) else absent).append(_member_of(member))
    here = {disk: name for disk, name in names.items() if is_up(configuration.members[disk].state)}
    replicas: list[list[str]] = []
    learners: list[list[str]] = []
    branches: dict[int, list[str]] = {}
    for number, state in enumerate(configuration.partitions):
        if state.leader == 0:
            replicas.append(_NOBODY)
            learners.append(_NOBODY)
            continue
        synced = [here[disk] for disk in state.isr if disk in here and disk != state.leader]
        replicas.append([here[state.leader], *synced])
        diverged = [disk for disk in configuration.branches.get(number, _NO_DISKS) if disk in here]
        if diverged:
            branches[number] = [here[disk] for disk in diverged]
        learners.append([here[disk] for disk in state.learners() if disk in here])
    bases: dict[str, int] = {}
    for disk, name in here.items():
        bases[name] = epoch_of(configuration.members[disk].started, lineage)
    known = sorted(names.values())
    refused = [(member.node_id, member.evicted) for member in configuration.members.values() if member.evicted]
    view = View(
        epoch_of(configuration.changed, lineage),
        members,
        replicas,
        learners,
        known,
        absent,
        refused,
        branches,
        bases,
    )
    view.is_of_log = True
    view.is_trunk = not configuration.ancestors
    view.lineage = [epoch_of(counter, ancestor) for ancestor, counter in reversed(configuration.ancestors)]
    view.crowded = sorted([here[disk] for disk in here if configuration.members[disk].is_strained()])
    for member_away in absent:
        gone = configuration.members[member_away.disk]
        view.lasts[gone.node_id] = [epoch_of(max(gone.away - 1, 1), lineage)]
    _note_losses(view, configuration, names)
    return view


def _member_of(member: ClusterMember) -> Member:
    process = member.process
    state = LEAVING if is_leaving(member.state) else ACTIVE
    found = Member(member.node_id, member.incarnation, process.address, process.zone, state)
    found.wire_min = process.wire_min
    found.wire_max = process.wire_max
    found.software = process.build
    found.disk = member.disk
    found.host = process.host
    return found


def _note_losses(view: View, configuration: ClusterConfiguration, names: dict[int, str]) -> None:
    """Note which partitions are absent, and which were given up; nobody keeps when that was."""
    for number, state in enumerate(configuration.partitions):
        if state.leader == 0 and state.isr:
            view.losses.missing[number] = sorted([names[disk] for disk in state.isr if disk in names])
    given_up: dict[int, int] = {}
    for index in configuration.lost.values():
        given_up[index] = given_up.get(index, 0) + 1
    for index in sorted(given_up)[-LOSSES_MAX:]:
        view.losses.past.append(Loss(index, given_up[index], _NOBODY))


def branches_of(holdings: list[Holding], configuration: ClusterConfiguration) -> list[int]:
    """Return the partitions, ascending, of which a node has changes that this lineage does not share.

    A change carries the tag of the lineage in which it was made. It is shared if that is this lineage, or one of its
    ancestors and not newer than the last configuration that they share.
    """
    shared: dict[int, int] = {tag_of(epoch_of(0, configuration.lineage)): -1}
    for lineage, counter in configuration.ancestors:
        shared[tag_of(epoch_of(0, lineage))] = counter
    found: list[int] = []
    for number, holding in enumerate(holdings):
        if holding.state == NONE or holding.seq == 0:
            continue
        last = shared.get(tag_of(holding.epoch), 0)
        if last >= 0 and counter_of(holding.epoch) > last:
            found.append(number)
    return found
