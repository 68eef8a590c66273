"""Roles: what a new view gives this node to lead, follow and fill, and the reports that it owes to the leaders."""

from __future__ import annotations

from folkmoot.kernel.event import ERROR
from folkmoot.kernel.pack import u64
from folkmoot.membership.holding import COMPLETE, DAMAGED, NONE
from folkmoot.membership.view import View
from folkmoot.peer.kind import READY
from folkmoot.replica.lead import Lead
from folkmoot.replica.notice import encode_report
from folkmoot.replica.replica_states import IDLE, LEADER, LEARNER, MERGING, NOBODY, OPEN, REPLICA, Standing
from folkmoot.replica.takeover import Takeover

__all__ = ["Roles"]


class Roles:
    """Changes of roles; `closed`: partitions that this node served and leads no more."""

    def __init__(self, standing: Standing, lead: Lead, takeover: Takeover) -> None:
        self.standing = standing
        self.lead = lead
        self.takeover = takeover
        self.closed: list[int] = []

    def kept(self, previous: View | None, view: View) -> list[str]:
        """Return the members that were not started again since the view before."""
        if previous is None:
            return []
        kept: list[str] = []
        for member in view.members:
            before = previous.member(member.node_id)
            if before is not None and before.incarnation == member.incarnation:
                kept.append(member.node_id)
        return kept

    def assign(self, partition: int, previous: View | None, view: View, kept: list[str]) -> None:
        """Take up the role for one partition; kept: members that were not started again since the view before."""
        standing = self.standing
        me = standing.node_id
        replicas = view.replicas[partition] if view.replicas else [me]
        learners = view.learners[partition] if view.replicas else []
        leader = replicas[0] if replicas else ""
        if previous is not None:
            self.takeover.remember(partition, previous.replicas[partition] if previous.replicas else [me])
        branches = view.branches.get(partition, [])
        if not leader and standing.states[partition] == DAMAGED and (previous is None or standing.leaders[partition]):
            why = "no member has a copy that can be read; see what replica_damaged has said, and the documentation"
            standing.event(ERROR, "cannot_lead", partition, why)
        if leader != standing.leaders[partition] or leader not in kept or branches:
            standing.settled[partition] = False
            standing.opened[partition] = False
        standing.leaders[partition] = leader
        if leader == me:
            standing.roles[partition] = LEADER
        elif me in replicas:
            standing.roles[partition] = REPLICA
        else:
            standing.roles[partition] = LEARNER if me in learners else NOBODY
        phase = standing.phases[partition]
        if me in replicas and standing.states[partition] == NONE and not standing.writer.sequence(partition):
            standing.states[partition] = COMPLETE  # nobody has anything
        if me in replicas and standing.states[partition] == DAMAGED:
            standing.unfit.append(partition)  # found since it promised this view: the next has it filled
        if leader != me:
            standing.phases[partition] = IDLE
            standing.recent.free(partition)
            self.lead.followers[partition] = []
            self.takeover.lost(partition)
            if phase == OPEN:
                self.closed.append(partition)
            return
        standing.recent.lead(partition)
        self.lead.gather(partition, replicas, learners, kept)
        if phase == OPEN and not branches:
            if standing.pending.waits(partition):
                # From now on others may not be needed to commit it: it is this view's, see `assign.is_branch`.
                standing.write_history(partition, standing.writer.sequence(partition))
            if not standing.solo:
                self.lead.opening.append(partition)
        elif partition not in self.takeover.ready or phase >= MERGING or branches:
            if phase == OPEN:
                self.closed.append(partition)
            self.takeover.lost(partition)
            self.takeover.begin(partition, [*replicas, *branches])

    def report(self) -> None:
        """Tell every leader what this node has of its partitions."""
        standing = self.standing
        parts: dict[str, list[bytes]] = {node_id: [u64(standing.epoch)] for node_id in standing.others}
        for partition in range(standing.partitions):
            leader = standing.leaders[partition]
            if leader in parts and (standing.holds(partition) or standing.roles[partition] != NOBODY):
                parts[leader].append(encode_report(standing.report(partition)))
        leading = dict.fromkeys(standing.leaders)
        for node_id in standing.others:
            if node_id in leading:
                standing.out.append((node_id, READY, b"".join(parts[node_id])))
