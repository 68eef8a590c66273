"""Roles: which partitions a new view makes this node lead, follow and fill, and its reports to the leaders."""

from __future__ import annotations

from folkmoot.kernel.pack import u64
from folkmoot.membership.holding import COMPLETE, DAMAGED, NONE, PARTIAL
from folkmoot.membership.view import View
from folkmoot.peer.kind import READY
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.lead import Lead
from folkmoot.replica.notice import encode_report
from folkmoot.replica.phase import LOSES, MERGING, OPEN
from folkmoot.replica.replica import LEADER, LEARNER, NO_ROLE, REPLICA, Replica
from folkmoot.replica.takeover import Takeover

__all__ = ["Roles"]


class Roles:
    """Changes of roles."""

    def __init__(self, context: ReplicaContext, lead: Lead, takeover: Takeover) -> None:
        self.context = context
        self.lead = lead
        self.takeover = takeover

    def kept(self, previous: View | None, view: View) -> list[str]:
        """Return the members that have not come up again since the view before."""
        if previous is None:
            return []
        kept: list[str] = []
        for member in view.members:
            node_id = member.node_id
            before = previous.member(node_id)
            if before is None or before.incarnation != member.incarnation:
                continue
            if view.bases[node_id] == previous.bases.get(node_id, 0):
                kept.append(node_id)
        return kept

    def _unmerged(self, replica: Replica, previous: View | None, view: View) -> list[str]:
        """Return the branches of a partition that its leader may not have merged yet.

        The log lists a branch until its copy is in sync. With each new branch another leadership begins, also of the
        same node: one that serves has merged all that are listed. The broker begins anew by the same number.
        """
        if previous is not None and replica.phase == OPEN:
            if _leader_epoch(view, replica) == _leader_epoch(previous, replica):
                return []
        return view.branches.get(replica.number, [])

    def assign(self, replica: Replica, previous: View | None, view: View, kept: list[str]) -> None:
        """Take the role for one partition; kept: members that have not restarted since the view before."""
        context = self.context
        partition = replica.number
        me = context.node_id
        replica.reports.clear()
        replicas = view.replicas[partition] if view.replicas else [me]
        learners = view.learners[partition] if view.replicas else []
        leader = replicas[0] if replicas else ""
        if previous is not None:
            self._begin_anew(replica, me in kept)
        branches = self._unmerged(replica, previous, view)
        before = replica.leader
        if leader != before or leader not in kept or branches:
            replica.settled = False
            replica.included = False
            replica.opened = False
        elif previous is not None and _leader_epoch(view, replica) != _leader_epoch(previous, replica):
            replica.opened = False  # another one has led since, in a view that this node has skipped
        replica.leader = leader
        replica.role = _role_of(me, replicas, learners)
        phase = replica.phase
        if me in replicas and replica.state == NONE and not replica.sequence:
            if partition in view.recovering:
                replica.withdraw()  # it was never filled, and another one may have been
            else:
                replica.state = COMPLETE  # the partition is empty everywhere
        if me in replicas:
            self._see_unfit(replica)
        if leader != me:
            if before == me:
                replica.reported.forget()
            replica.go(LOSES)
            replica.recent.free()
            replica.followers = []
            self.takeover.lost(replica)
            return
        replica.recent.lead()
        self.lead.gather(replica, replicas, learners, kept)
        if phase == OPEN and not branches:
            if replica.uncommitted:
                # Members of earlier views may not be needed to commit it any more: it belongs to this view.
                replica.write_history(replica.sequence)
            replica.opened = True
            if not context.solo:
                self.lead.opening.append(replica)
        elif partition not in self.takeover.ready or phase >= MERGING or branches:
            self.takeover.lost(replica)
            self.takeover.begin(replica, [*replicas, *view.branches.get(partition, [])])

    def _see_unfit(self, replica: Replica) -> None:
        """Report a copy that must not be in sync: one that is damaged, or has holes, so that it may lack a commit."""
        if replica.state in (DAMAGED, PARTIAL):
            replica.withdraw()

    def _begin_anew(self, replica: Replica, is_kept: bool) -> None:
        """Lead a partition no more if this node was away, and others may have led it: what it leads, it takes over."""
        if not is_kept and replica.phase >= MERGING:
            self.takeover.lost(replica)
            replica.go(LOSES)

    def interrupt(self, replicas: list[Replica]) -> None:
        """Take partitions over from the beginning that do not serve yet: what their merges go on from is gone."""
        for replica in replicas:
            if MERGING <= replica.phase < OPEN:
                self.takeover.lost(replica)
                replica.go(LOSES)

    def report(self, replicas: list[Replica]) -> None:
        """Report to every leader what this node has of its partitions."""
        context = self.context
        parts: dict[str, list[bytes]] = {node_id: [u64(context.epoch)] for node_id in context.others}
        for replica in replicas:
            leader = replica.leader
            if leader in parts and (replica.holds() or replica.role != NO_ROLE):
                parts[leader].append(encode_report(replica.report()))
        leading = dict.fromkeys([replica.leader for replica in replicas])
        for node_id in context.others:
            if node_id in leading:
                context.send(node_id, READY, b"".join(parts[node_id]))


def _leader_epoch(view: View, replica: Replica) -> int:
    """Return the number of a leadership; a node that was alone led by none."""
    return view.leader_epochs[replica.number] if view.replicas else 0


def _role_of(me: str, replicas: list[str], learners: list[str]) -> int:
    """Return the role of a node; the leader is the first of the replicas."""
    if me in replicas:
        return LEADER if replicas[0] == me else REPLICA
    return LEARNER if me in learners else NO_ROLE
