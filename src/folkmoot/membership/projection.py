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

Why such roles are safe. *The leader* is in the ISR, and opens a partition when all of the ISR and all replicas of the
view before have reported: it adopts the longest copy, which has everything that was committed. *A leader with an older
view* commits nothing more once a follower that it needs has a newer one, because followers take nothing of an older
epoch; one that needs nobody is alone in the ISR, and is replaced only when its lease is over. *A learner* counts for
its leader from the moment at which the leader asks for it, so it may be taken into the ISR at any moment after that.
Members install views at different moments: messages of a newer one wait, those of an older one are void (`replica`).
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
