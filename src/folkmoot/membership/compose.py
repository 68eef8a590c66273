"""Makes a view from promises: states of members, known nodes, placement. A pure function of the proposal."""

from __future__ import annotations

from folkmoot.membership.absence import losses_of
from folkmoot.membership.assign import assign
from folkmoot.membership.heartbeat import EVICT, FORGET, Request
from folkmoot.membership.proposal import Promise, Proposal
from folkmoot.membership.quorum import has_majority_or_tie
from folkmoot.membership.ring import Ring
from folkmoot.membership.view import FORGOTTEN_MAX, LINEAGE_MAX, View
from folkmoot.peer.member import ACTIVE, JOINING, LEAVING, Member

__all__ = ["chain_for", "compose"]


def compose(
    proposal: Proposal, partitions: int, replicas: int, requests: list[Request], leaving: list[str], left: list[str]
) -> View:
    """Return the view that follows from all promises.

    requests: of operators. leaving: ids of nodes that want to leave. left: ids of nodes that left and keep nothing.
    """
    # A node that was forgotten and comes back is placed as if it had nothing: the others went on without its copies,
    # and what it held must not be merged. `told` is what it really said, for what the others need to know of it.
    fresh = _fresh(proposal)
    told = proposal
    if fresh:
        proposal = _without(proposal, fresh)
    tops = _tops(proposal)
    within = _within(tops)
    previous = _foremost(within)
    leaving = [*leaving, *_interrupted(tops)]
    members = [member.in_state(LEAVING if member.node_id in leaving else ACTIVE) for member in proposal.members]
    before = _known_before(within)
    ring = Ring(View(proposal.epoch, _placed(members, before, leaving, requests, replicas)), partitions, replicas)
    bases: dict[str, View] = {}
    served: dict[str, int] = {}
    for node_id, promise in told.promises.items():
        if promise.base is not None:
            if node_id not in fresh:
                bases[node_id] = promise.base
            # Members compare it with their own view: a node that served in a view unknown to them has dropped what was
            # under way between them. One that served in none has nothing to drop.
            served[node_id] = promise.base_epoch if promise.serving else proposal.epoch
    branches: dict[int, list[str]] = {}
    uncommitted_tails: dict[int, list[tuple[str, int, int]]] = {}
    holdings = {node_id: promise.holdings for node_id, promise in proposal.promises.items()}
    kept, fill = assign(
        members,
        ring,
        previous,
        holdings,
        bases,
        {node_id: promise.filled for node_id, promise in proposal.promises.items()},
        branches,
        [node_id for node_id in bases if proposal.promises[node_id].serving],
        told.crowded,
        uncommitted_tails,
    )
    final = _with_joining(members, fill, before)
    known, absent = _known(final, before, tops, requests, left)
    view = View(proposal.epoch, final, kept, fill, known, absent, _refused(tops, requests, final), branches, served)
    view.crowded = list(told.crowded)
    view.uncommitted_tails = uncommitted_tails
    # Members without most of their seeds may be beside a cluster that goes on without them: offsets that they gave out
    # could name other records there. A view that goes on from a real cluster's keeps none of that doubt.
    view.minority_bootstrap = told.few and (previous is None or previous.minority_bootstrap)
    view.lineage = _lineage(bases)
    view.lasts = _lasts(tops, absent)
    view.forgotten = _forgotten(view, tops, fresh, before, requests)
    view.losses = losses_of(view, tops, holdings, proposal.started_us)
    return view


def _fresh(proposal: Proposal) -> dict[str, int]:
    """Return the nodes that were forgotten and do not know it, with the epoch: their copies no longer count.

    The view with most votes decides: the smaller side of a split cannot have the larger one forgotten.
    """
    view = _foremost(_within(_tops(proposal)))
    found: dict[str, int] = {}
    if view is not None:
        for node_id, epoch in view.forgotten:
            promise = proposal.promises.get(node_id)
            if promise is not None and promise.base is not None and (node_id, epoch) not in promise.base.forgotten:
                found[node_id] = epoch
    return found


def _without(proposal: Proposal, fresh: dict[str, int]) -> Proposal:
    """Return the proposal as if the forgotten nodes had nothing."""
    same = Proposal(proposal.epoch, proposal.members, proposal.started_us)
    same.promises.update(proposal.promises)
    for node_id in fresh:
        same.promises[node_id] = Promise(proposal.epoch, False, None, [], [])
    return same


def _forgotten(
    view: View, tops: list[View], fresh: dict[str, int], before: dict[str, bool], requests: list[Request]
) -> list[tuple[str, int]]:
    """Return the forgotten nodes, and those that come back with this view, with the epochs of the orders."""
    marks = dict(fresh)
    for top in tops:
        for node_id, epoch in top.forgotten:
            if view.member(node_id) is None and node_id not in view.known:
                marks[node_id] = max(epoch, marks.get(node_id, 0))
    for request in requests:
        node_id = request.node_id
        if request.kind == FORGET and node_id in before and node_id not in view.known:
            marks[node_id] = view.epoch
    newest = sorted([(epoch, node_id) for node_id, epoch in marks.items()])[-FORGOTTEN_MAX:]
    return sorted([(node_id, epoch) for epoch, node_id in newest])


def _lineage(bases: dict[str, View]) -> list[int]:
    """Return the newest epochs that all members with a history descend from, newest first."""
    common: list[int] | None = None
    for base in {view.epoch: view for view in bases.values()}.values():
        ancestry = base.ancestry()
        common = ancestry if common is None else [epoch for epoch in common if epoch in ancestry]
    return [] if common is None else common[:LINEAGE_MAX]


def chain_for(proposal: Proposal, view: View, recent: list[View]) -> list[View]:
    """Return the views that members of the new one may have missed, and the new one, in order.

    A node that promised a view and did not get its commit gets it now: all members install the same sequence.
    """
    lowest = min([promise.base_epoch for promise in proposal.promises.values()])
    found: dict[int, View] = {one.epoch: one for one in recent}
    for promise in proposal.promises.values():
        # A view without a proposer is a `MemberState.base` that was updated without a majority: nobody installed it.
        if promise.base is not None and promise.base.proposer:
            found.setdefault(promise.base_epoch, promise.base)
    chain = [found[epoch] for epoch in sorted(found) if lowest < epoch < view.epoch and _missed(found[epoch], proposal)]
    return [*chain[-3:], view]


def _missed(view: View, proposal: Proposal) -> bool:
    for member in proposal.members:
        here = view.member(member.node_id)
        if here is None or here.incarnation != member.incarnation:
            continue
        if proposal.promises[member.node_id].base_epoch < view.epoch:
            return True
    return False


def _tops(proposal: Proposal) -> list[View]:
    """Return the views that this one succeeds: one, or after a split one per component.

    A view is behind another if a node that has installed it is a member of the later one. Restarted nodes report old
    views. Those count only when no node serves, or when a minority of the seeds began the view
    of the nodes that serve.
    """
    found: dict[int, View] = {}
    holders: dict[int, list[str]] = {}
    for serving in (True, False):
        for node_id in sorted(proposal.promises):
            promise = proposal.promises[node_id]
            if promise.base is not None and promise.serving == serving:
                found[promise.base_epoch] = promise.base
                holders.setdefault(promise.base_epoch, []).append(node_id)
        if [view for view in found.values() if not view.minority_bootstrap]:
            break
    tops: list[View] = []
    for epoch in sorted(found, reverse=True):
        behind = False
        for later in found.values():
            if later.epoch <= epoch:
                continue
            for node_id in holders[epoch]:
                if later.member(node_id) is not None:
                    behind = True
        if not behind:
            tops.append(found[epoch])
    return tops


def _within(tops: list[View]) -> list[View]:
    """Return the views that no minority of the seeds began, if there are any: the others' members are new to them."""
    return [top for top in tops if not top.minority_bootstrap] or tops


def _foremost(tops: list[View]) -> View | None:
    best: View | None = None
    for view in tops:
        if best is None or view.votes() > best.votes():
            best = view
    return best


def _known_before(tops: list[View]) -> dict[str, bool]:
    known: dict[str, bool] = {}
    for view in tops:
        for node_id in view.known:
            known[node_id] = True
    return known


def _interrupted(tops: list[View]) -> list[str]:
    """Return the nodes that were lost while they were leaving: they continue to leave when they come back."""
    found: list[str] = []
    for view in tops:
        found.extend([member.node_id for member in view.absent if member.state == LEAVING])
    return found


def _placed(
    members: list[Member], before: dict[str, bool], leaving: list[str], requests: list[Request], replicas: int
) -> list[Member]:
    """Return the members as the placement is to see them.

    A leaving node keeps its copies while a node is absent that would have to keep them instead, and while no other
    member is there: otherwise a crash during a leave would cost the copies that the leaving node still has.
    """
    forgotten = [request.node_id for request in requests if request.kind == FORGET]
    stay = [member.node_id for member in members if member.state != LEAVING]
    expected = dict.fromkeys(stay, True)
    for node_id in before:
        if node_id not in leaving and node_id not in forgotten:
            expected[node_id] = True
    if stay and len(stay) >= min(replicas, len(expected)):
        return members
    return [member.in_state(ACTIVE) for member in members]


def _with_joining(members: list[Member], learners: list[list[str]], before: dict[str, bool]) -> list[Member]:
    """Mark new members whose copies are not filled yet; they count in no majority until then."""
    filling: dict[str, bool] = {}
    for ids in learners:
        for node_id in ids:
            filling[node_id] = True
    final: list[Member] = []
    for member in members:
        # Otherwise any side of a split could become a majority by starting enough empty nodes.
        joins = member.state == ACTIVE and member.node_id in filling and member.node_id not in before
        final.append(member.in_state(JOINING) if joins else member)
    return final


def _known(
    members: list[Member], before: dict[str, bool], tops: list[View], requests: list[Request], left: list[str]
) -> tuple[list[str], list[Member]]:
    here = {member.node_id: member for member in members}
    known = dict(before)
    # The smaller side of a split takes in newcomers, but they do not make it a majority.
    if not before or has_majority_or_tie(list(before), here):
        for member in members:
            if member.state == ACTIVE:
                known[member.node_id] = True
    for node_id in left:
        if node_id not in here:
            known.pop(node_id, None)
    for request in requests:
        if request.kind == FORGET and request.node_id not in here:
            known.pop(request.node_id, None)
    last: dict[str, Member] = {}
    for view in reversed(tops):
        for member in [*view.absent, *view.members]:
            last[member.node_id] = member
    absent = [last[node_id] for node_id in sorted(known) if node_id not in here and node_id in last]
    return sorted(known), absent


def _lasts(tops: list[View], absent: list[Member]) -> dict[str, list[int]]:
    """Return for absent nodes the epochs of the last views in which they were, one for each side of a split.

    Histories keep the entries around these. So a copy that comes back after any number of views is known for what it
    is: a prefix of the others', which is brought up to date, or a branch, which is merged. A prefix that was merged
    would bring back what was delivered and removed.
    """
    found: dict[str, list[int]] = {}
    for member in absent:
        node_id = member.node_id
        epochs: dict[int, bool] = {}
        for view in tops:
            if view.member(node_id) is not None:
                epochs[view.epoch] = True
            else:
                for epoch in view.lasts.get(node_id, []):
                    epochs[epoch] = True
        found[node_id] = sorted(epochs)
    return found


def _refused(tops: list[View], requests: list[Request], members: list[Member]) -> list[tuple[str, int]]:
    """Return the nodes that an operator evicted, until they are restarted or forgotten."""
    marks: dict[str, int] = {}
    for view in tops:
        marks.update(dict(view.refused))
    for request in requests:
        if request.kind == EVICT:
            marks[request.node_id] = request.incarnation
        elif request.kind == FORGET:
            marks.pop(request.node_id, None)
    for member in members:
        if marks.get(member.node_id, -1) != member.incarnation:
            marks.pop(member.node_id, None)
    return sorted(marks.items())
