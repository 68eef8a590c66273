"""The placement in the next view: from its members, the ideal placement, and the copies that each member reports.

A pure function, run only by the proposer of a view; its result is part of the view. Its rules:

1. A replica has everything that was committed. It is *in sync*: a replica of the newest view that some member
   installed, or a learner that the leader of that view reported as filled (from that report on the leader waits for it
   as for a replica). A position alone proves nothing: changes are committed while promises are on their way.
2. A view is closed for a partition as soon as one of its replicas has installed a later one: that replica takes no more
   changes of the old view. A replica that stayed behind is not in sync by the old view.
3. A member that promised a view and did not see it installed is in sync by it, if it is a replica in it: without that
   member nothing was committed there.
4. Copies that diverged (after a split) are one branch each. One branch leads, the others are learners: their changes
   are merged, not dropped (`branches`). Changes of a dead leader that no other replica has are no branch: nobody was
   told of them.
5. A copy that was absent, so that others began empty or from an older copy, takes precedence over theirs.

If no copy is in sync, the furthest complete one leads; if none is complete, the furthest partial one, because there is
no other; if there is none, the partition begins empty. A damaged copy never leads, and is never replaced by an empty
one: a partition with nothing else has no leader until another copy comes, or an operator removes the damaged ones.
"""

from __future__ import annotations

from folkmoot.membership.divergence import NO, YES, includes
from folkmoot.membership.holding import COMPLETE, NONE, PARTIAL, Holding, knows_epoch, later, root_of
from folkmoot.membership.ring import Ring
from folkmoot.membership.view import View
from folkmoot.peer.member import Member

__all__ = ["assign", "is_branch"]


def _current_bases(bases: dict[str, View], serving: list[str]) -> dict[str, View]:
    """Return the views that count as installed: of nodes that do not serve only those that no served view succeeds.

    A node that was restarted with an old view lacks what was committed since, whatever role that view gave it.
    """
    newest = max([bases[node_id].epoch for node_id in serving if node_id in bases], default=0)
    return {node_id: base for node_id, base in bases.items() if node_id in serving or base.epoch >= newest}


def is_branch(holding: Holding, base: View | None, partition: int, tip: Holding, replicas: list[str]) -> bool:
    """Tell whether a copy has changes that may have been committed and that the new replicas lack.

    base: the view that its node had installed. Nothing is committed without all replicas of its view, and a view that
    continues with uncommitted changes begins with a change of its own. So changes of an epoch were told to nobody if a
    replica of that epoch lacks them, or if the others' history has the epoch.
    """
    if holding.state != COMPLETE or includes(tip, holding) != NO or knows_epoch(tip, holding.epoch):
        return False  # also if it is unknown: what was removed long ago must not come back
    if base is None or base.epoch != holding.epoch or partition >= len(base.replicas):
        return True
    return not [node_id for node_id in base.replicas[partition] if node_id in replicas]


class _Copy:
    """What one member has of the partition at hand."""

    def __init__(self, node_id: str, holding: Holding) -> None:
        self.node_id = node_id
        self.holding = holding


class _Group:
    """Copies that are in sync with each other; `order`: their ids, replicas of their view first."""

    def __init__(self, tip: _Copy, order: list[str], votes: int) -> None:
        self.tip = tip
        self.order = order
        self.votes = votes
        self.holders = 0  # members of the last full membership that hold this branch
        self.without: list[str] = []  # absent nodes with a newer copy: it continues from an older one


def assign(
    members: list[Member],
    ring: Ring,
    previous: View | None,
    holdings: dict[str, list[Holding]],
    bases: dict[str, View] | None = None,
    filled: dict[str, list[tuple[int, str]]] | None = None,
    branches: dict[int, list[str]] | None = None,
    serving: list[str] | None = None,
    crowded: list[str] | None = None,
    uncommitted_tails: dict[int, list[tuple[str, int, int]]] | None = None,
) -> tuple[list[list[str]], list[list[str]]]:
    """Return for each partition its replicas (leader first) and its learners in the next view.

    members: of the next view. ring: the ideal placement of them. previous: the view that the proposer goes on from.
    holdings: per member what it holds, one per partition; a member that is missing holds nothing. bases: per member the
    view that it has installed, this one included when it was started again since; without it all members of `previous`
    have installed that. filled: per member the (partition, learner) that it reports as filled, as their leader.
    branches: is given per partition the learners with another branch, see `is_branch`. serving: who serves in the view
    that it has installed (all who have one, if None); the others were started again since. crowded: who has no room on
    its disk: it keeps what it has, leads only what nobody else can, and gets nothing new. uncommitted_tails: filled per
    partition the learners with changes that were told to nobody, see `View.uncommitted_tails`.
    """
    if bases is None:
        bases = {}
        if previous is not None:
            for member in members:
                if previous.member(member.node_id) is not None:
                    bases[member.node_id] = previous
    current = bases if serving is None else _current_bases(bases, serving)
    assigner = _Assigner(members, ring, previous, holdings, current, {} if filled is None else filled)
    assigner.told_bases = bases
    # By the epoch: an older version sends the same view without the mark.
    minority_bootstrap = [base.epoch for base in bases.values() if base.minority_bootstrap]
    assigner.minority_bootstrap = [node_id for node_id, base in bases.items() if base.epoch in minority_bootstrap]
    assigner.crowded = {} if crowded is None else dict.fromkeys(crowded, True)
    replicas: list[list[str]] = []
    learners: list[list[str]] = []
    for partition in range(ring.partitions):
        keep, fill = assigner.place(partition)
        replicas.append(keep)
        learners.append(fill)
    if branches is not None:
        branches.update(assigner.branches)
    if uncommitted_tails is not None:
        uncommitted_tails.update(assigner.uncommitted_tails)
    return replicas, learners


class _Assigner:
    """The work on one proposal."""

    def __init__(
        self,
        members: list[Member],
        ring: Ring,
        previous: View | None,
        holdings: dict[str, list[Holding]],
        bases: dict[str, View],
        filled: dict[str, list[tuple[int, str]]],
    ) -> None:
        self._ids = sorted([member.node_id for member in members])
        self._incarnations: dict[str, int] = {member.node_id: member.incarnation for member in members}
        self._ring = ring
        self._known: list[str] = [] if previous is None else previous.known
        self._bases: dict[str, View] = {}
        self.branches: dict[int, list[str]] = {}
        self.uncommitted_tails: dict[int, list[tuple[str, int, int]]] = {}
        self.told_bases = bases
        self.minority_bootstrap: list[str] = []
        self.crowded: dict[str, bool] = {}
        self._copies: list[list[_Copy]] = [[] for _ in range(ring.partitions)]
        self._filled: list[list[tuple[str, str]]] = [[] for _ in range(ring.partitions)]
        views: dict[int, View] = {}
        for node_id in self._ids:
            base = bases.get(node_id)
            if base is not None:
                self._bases[node_id] = base
                views[base.epoch] = base
            for partition, holding in enumerate(holdings.get(node_id, [])[: ring.partitions]):
                if holding.state != NONE:
                    self._copies[partition].append(_Copy(node_id, holding))
            for partition, learner in filled.get(node_id, []):
                if 0 <= partition < ring.partitions:
                    self._filled[partition].append((node_id, learner))
        self._views: list[View] = [views[epoch] for epoch in sorted(views, reverse=True)]

    def place(self, partition: int) -> tuple[list[str], list[str]]:
        """Return replicas and learners of one partition."""
        ideal = self._ring.replicas_of(partition)
        copies = self._copies[partition]
        complete = [copy for copy in copies if copy.holding.state == COMPLETE]
        if complete:
            group = self._winner(partition, self._within(complete) or complete)
            replicas = _chosen(ideal, group.order, self.crowded)
            learners = self._learners(ideal, replicas, copies, complete, group.tip)
            self._note_branches(partition, replicas, learners, complete, group.tip.holding)
            return replicas, learners
        partial = [copy for copy in copies if copy.holding.state == PARTIAL]
        if partial:
            tip = _furthest(partial)
            return [tip.node_id], self._learners(ideal, [tip.node_id], copies, complete, tip)
        # A copy with one unreadable row is whole otherwise: an empty beginning must not overwrite it.
        return ([], []) if copies else (_chosen(ideal, ideal, self.crowded), [])

    def _note_branches(
        self, partition: int, replicas: list[str], learners: list[str], complete: list[_Copy], tip: Holding
    ) -> None:
        for copy in complete:
            node_id = copy.node_id
            if node_id not in learners:
                continue
            holding = copy.holding
            base = self.told_bases.get(node_id)
            mark = (node_id, holding.epoch, holding.seq)
            # Changes that were told to nobody stay so, also when the views that prove it are no longer known.
            judged = base is not None and mark in base.uncommitted_tails.get(partition, [])
            has = includes(tip, holding)
            if not judged and is_branch(holding, base, partition, tip, replicas):
                self.branches.setdefault(partition, []).append(node_id)
            elif has == NO or (judged and has != YES):
                self.uncommitted_tails.setdefault(partition, []).append(mark)

    def _winner(self, partition: int, complete: list[_Copy]) -> _Group:
        groups = self._groups(partition, complete)
        if groups:
            root = min([root_of(group.tip.holding) for group in groups])
            groups = [group for group in groups if root_of(group.tip.holding) == root]
            returned = _older(root, complete) or _newer(groups, complete)
            if returned:
                return _alone(_furthest(returned), returned)
            groups = [group for group in groups if not group.without] or groups
        if not groups:
            groups = [_alone(copy, complete) for copy in complete]
        if len(groups) == 1:
            return groups[0]
        best: _Group | None = None
        for group in groups:
            if _overtaken(group, groups):
                continue
            for copy in complete:
                known = copy.node_id in self._known
                if known and includes(group.tip.holding, copy.holding) == YES:
                    group.holders += 1
            if best is None or _outranks(group, best):
                best = group
        assert best is not None, "of branches that contain each other the first is kept"
        return best

    def _within(self, complete: list[_Copy]) -> list[_Copy]:
        """Return the copies without those from a minority bootstrap: the rest of the cluster may have had readers."""
        return [copy for copy in complete if copy.node_id not in self.minority_bootstrap]

    def _groups(self, partition: int, complete: list[_Copy]) -> list[_Group]:
        """Return the copies that are in sync, one group for each view that is not closed for this partition."""
        groups: list[_Group] = []
        for view in self._views:
            if partition >= len(view.replicas) or self._closed(partition, view):
                continue
            order: list[str] = list(view.replicas[partition])
            for leader, learner in self._filled[partition]:
                # By its epoch: if the proposer does not have the view, two members may each have sent it.
                same = leader in self._bases and self._bases[leader].epoch == view.epoch
                reported = order and leader == order[0] and same and self._same(view, learner)
                if reported and learner in view.learners[partition] and learner not in order:
                    order.append(learner)
            synced = [copy for copy in complete if copy.node_id in order and self._reached(copy.node_id, view)]
            if not synced:
                continue
            tip = _furthest(synced)
            on_branch = [copy.node_id for copy in synced if includes(tip.holding, copy.holding) == YES]
            kept = [node_id for node_id in order if node_id in on_branch]
            group = _Group(tip, kept, view.votes())
            group.without = view.losses.missing.get(partition, [])
            groups.append(group)
        return groups

    def _closed(self, partition: int, view: View) -> bool:
        for node_id in view.replicas[partition]:
            base = self._bases.get(node_id)
            if base is not None and base.epoch > view.epoch:
                return True
        return False

    def _reached(self, node_id: str, view: View) -> bool:
        """Tell whether a replica of a view took part in it: it has installed it, or promised it in its present start.

        One that was restarted with an older view may have lost its disk and begun empty meanwhile.
        """
        base = self._bases.get(node_id)
        if base is None or base.epoch > view.epoch:
            return False
        return base.epoch == view.epoch or self._same(view, node_id)

    def _same(self, view: View, node_id: str) -> bool:
        """Tell whether a node has not been restarted since a view."""
        member = view.member(node_id)
        return member is not None and member.incarnation == self._incarnations.get(node_id, -1)

    def _learners(
        self, ideal: list[str], replicas: list[str], copies: list[_Copy], complete: list[_Copy], tip: _Copy
    ) -> list[str]:
        learners = [node_id for node_id in ideal if node_id not in replicas and self._has_room(node_id, complete)]
        for copy in copies:
            node_id = copy.node_id
            if node_id in replicas or node_id in learners or includes(tip.holding, copy.holding) == YES:
                continue
            # A partial copy has nothing of its own if a complete one of its branch is here.
            if copy.holding.state != COMPLETE and _held(complete, copy.holding):
                continue
            learners.append(node_id)
        return learners

    def _has_room(self, node_id: str, complete: list[_Copy]) -> bool:
        """Tell whether a node can be filled: without room on its disk only if it has a whole copy that lacks little."""
        return node_id not in self.crowded or len([copy for copy in complete if copy.node_id == node_id]) > 0


def _chosen(ideal: list[str], order: list[str], crowded: dict[str, bool]) -> list[str]:
    """Return the replicas, leader first: the ideal ones that are in sync, and others up to the wanted number."""
    replicas = [node_id for node_id in ideal if node_id in order]
    # Others stay replicas until the ideal ones are filled: there are never fewer copies because of a move.
    for node_id in order:
        if len(replicas) < len(ideal) and node_id not in replicas:
            replicas.append(node_id)
    # Without the ideal leader the present one goes on, which is the first in `order`: each change costs its clients a
    # pause.
    leader = ideal[0] if ideal[0] in order else _first(order, replicas)
    if leader in crowded:
        leader = ([node_id for node_id in replicas if node_id not in crowded] or [leader])[0]
    replicas.remove(leader)
    return [leader, *replicas]


def _first(order: list[str], replicas: list[str]) -> str:
    for node_id in order:
        if node_id in replicas:
            return node_id
    raise AssertionError("replicas are chosen from those in sync")


def _furthest(copies: list[_Copy]) -> _Copy:
    best = copies[0]
    for copy in copies:
        if later(copy.holding, best.holding):
            best = copy
    return best


def _alone(tip: _Copy, complete: list[_Copy]) -> _Group:
    """Return a copy that no view proves in sync, with those that are exactly as far on the same branch."""
    order = [
        copy.node_id
        for copy in complete
        if copy.holding.seq == tip.holding.seq and includes(tip.holding, copy.holding) == YES
    ]
    return _Group(tip, order, 0)


def _older(root: int, complete: list[_Copy]) -> list[_Copy]:
    """Return the copies that are back after all groups began without them, from nothing.

    A history that began earlier wins: it was acknowledged and read before. A copy without a change has nothing to give.
    """
    return [copy for copy in complete if root_of(copy.holding) < root and copy.holding.seq]


def _newer(groups: list[_Group], complete: list[_Copy]) -> list[_Copy]:
    """Return the copies that are back after all groups had to continue without them, from an older copy."""
    if [group for group in groups if not group.without]:
        return []
    wanted: dict[str, bool] = {}
    for group in groups:
        wanted.update(dict.fromkeys(group.without, True))
    return [
        copy
        for copy in complete
        if copy.node_id in wanted and not [group for group in groups if includes(group.tip.holding, copy.holding) != NO]
    ]


def _overtaken(group: _Group, groups: list[_Group]) -> bool:
    """Tell whether another branch has all that this one has, and more: to choose that one loses nothing."""
    tip = group.tip.holding
    for other in groups:
        end = other.tip.holding
        if includes(end, tip) == YES and includes(tip, end) != YES:
            return True
    return False


def _outranks(one: _Group, other: _Group) -> bool:
    # Votes first: only a side with a majority has let records of streams be read, and offsets that were read must keep
    # their records (A9). Then the branch that more members have, so that less is to be merged and copied.
    if one.votes != other.votes:
        return one.votes > other.votes
    if one.holders != other.holders:
        return one.holders > other.holders
    if later(one.tip.holding, other.tip.holding):
        return True
    if later(other.tip.holding, one.tip.holding):
        return False
    return one.tip.node_id < other.tip.node_id


def _held(complete: list[_Copy], holding: Holding) -> bool:
    for copy in complete:
        if includes(copy.holding, holding) == YES:
            return True
    return False
