"""Roles: which partitions a new view makes this node lead, follow and fill, and its reports to the leaders."""

from __future__ import annotations

from folkmoot.kernel.pack import u64
from folkmoot.membership.holding import COMPLETE, DAMAGED, NONE, PARTIAL
from folkmoot.membership.view import View
from folkmoot.peer.kind import READY
from folkmoot.replica.lead import Lead
from folkmoot.replica.notice import encode_report
from folkmoot.replica.replica_states import IDLE, LEADER, LEARNER, MERGING, NO_ROLE, OPEN, REPLICA, ReplicaStates
from folkmoot.replica.takeover import Takeover

__all__ = ["Roles"]


class Roles:
    """Changes of roles."""

    def __init__(self, replica_states: ReplicaStates, lead: Lead, takeover: Takeover) -> None:
        self.replica_states = replica_states
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

    def _unmerged(self, partition: int, previous: View | None, view: View) -> list[str]:
        """Return the branches of a partition that its leader may not have merged yet.

        The log lists a branch until its copy is in sync. With each new branch another leadership begins, also of the
        same node: one that serves has merged all that are listed. The broker begins anew by the same number.
        """
        if previous is not None and self.replica_states.phases[partition] == OPEN:
            if _leader_epoch(view, partition) == _leader_epoch(previous, partition):
                return []
        return view.branches.get(partition, [])

    def assign(self, partition: int, previous: View | None, view: View, kept: list[str]) -> None:
        """Take the role for one partition; kept: members that have not restarted since the view before."""
        replica_states = self.replica_states
        me = replica_states.node_id
        replicas = view.replicas[partition] if view.replicas else [me]
        learners = view.learners[partition] if view.replicas else []
        leader = replicas[0] if replicas else ""
        if previous is not None:
            self._begin_anew(partition, me in kept)
        branches = self._unmerged(partition, previous, view)
        before = replica_states.leaders[partition]
        if leader != before or leader not in kept or branches:
            replica_states.settled[partition] = False
            replica_states.opened[partition] = False
        elif previous is not None and _leader_epoch(view, partition) != _leader_epoch(previous, partition):
            replica_states.opened[partition] = False  # another one has led since, in a view that this node has skipped
        replica_states.leaders[partition] = leader
        replica_states.roles[partition] = _role_of(me, replicas, learners)
        phase = replica_states.phases[partition]
        if (
            me in replicas
            and replica_states.states[partition] == NONE
            and not replica_states.writer.sequence(partition)
        ):
            replica_states.states[partition] = COMPLETE  # the partition is empty everywhere
        if me in replicas:
            self._see_unfit(partition)
        if leader != me:
            if before == me:
                replica_states.reported.forget(partition)
            replica_states.phases[partition] = IDLE
            replica_states.recent.free(partition)
            self.lead.followers[partition] = []
            self.takeover.lost(partition)
            return
        replica_states.recent.lead(partition)
        self.lead.gather(partition, replicas, learners, kept)
        if phase == OPEN and not branches:
            if replica_states.pending.waits(partition):
                # Members of earlier views may not be needed to commit it any more: it belongs to this view.
                replica_states.write_history(partition, replica_states.writer.sequence(partition))
            replica_states.opened[partition] = True
            if not replica_states.solo:
                self.lead.opening.append(partition)
        elif partition not in self.takeover.ready or phase >= MERGING or branches:
            self.takeover.lost(partition)
            self.takeover.begin(partition, [*replicas, *view.branches.get(partition, [])])

    def _see_unfit(self, partition: int) -> None:
        """Report a copy that must not be in sync: one that is damaged, or has holes, so that it may lack a commit."""
        if self.replica_states.states[partition] in (DAMAGED, PARTIAL):
            self.replica_states.unfit.append(partition)

    def _begin_anew(self, partition: int, is_kept: bool) -> None:
        """Lead a partition no more if this node was away, and others may have led it: what it leads, it takes over."""
        if not is_kept and self.replica_states.phases[partition] >= MERGING:
            self.takeover.lost(partition)
            self.replica_states.phases[partition] = IDLE

    def interrupt(self) -> None:
        """Take partitions over from the beginning that do not serve yet: what their merges go on from is gone."""
        for partition, phase in enumerate(self.replica_states.phases):
            if MERGING <= phase < OPEN:
                self.takeover.lost(partition)
                self.replica_states.phases[partition] = IDLE

    def report(self) -> None:
        """Report to every leader what this node has of its partitions."""
        replica_states = self.replica_states
        parts: dict[str, list[bytes]] = {node_id: [u64(replica_states.epoch)] for node_id in replica_states.others}
        for partition in range(replica_states.partitions):
            leader = replica_states.leaders[partition]
            if leader in parts and (replica_states.holds(partition) or replica_states.roles[partition] != NO_ROLE):
                parts[leader].append(encode_report(replica_states.report(partition)))
        leading = dict.fromkeys(replica_states.leaders)
        for node_id in replica_states.others:
            if node_id in leading:
                replica_states.out.append((node_id, READY, b"".join(parts[node_id])))


def _leader_epoch(view: View, partition: int) -> int:
    """Return the number of a leadership; a node that was alone led by none."""
    return view.leader_epochs[partition] if view.replicas else 0


def _role_of(me: str, replicas: list[str], learners: list[str]) -> int:
    """Return the role of a node; the leader is the first of the replicas."""
    if me in replicas:
        return LEADER if replicas[0] == me else REPLICA
    return LEARNER if me in learners else NO_ROLE
