"""A leader and its followers: which have joined the stream of changes, what each is sent, what is committed.

A follower joins with a report of its position. It then gets the changes that it lacks and all later ones, in order; so
nothing is missing unless a node has failed. The leader counts what the follower reports as durable. A replica that has
not joined, or is being filled, counts as having nothing, so nothing is committed without it.
"""

from __future__ import annotations

from folkmoot.kernel.pack import u64
from folkmoot.membership.divergence import NO, YES, includes
from folkmoot.membership.holding import COMPLETE, DAMAGED, NONE, PARTIAL, Holding, knows_epoch
from folkmoot.peer.kind import COPY, OPENED, SETTLED, SHIP
from folkmoot.replica.change import Change, encode_change
from folkmoot.replica.notice import CopyNotice, Report, encode_copy, encode_sequences
from folkmoot.replica.replica_states import MERGING, ReplicaStates
from folkmoot.replica.suffix import frames_of, suffix_of
from folkmoot.store.key import partition_end, partition_start

__all__ = ["Follower", "Lead"]


class Follower:
    """Another node that is to have a partition; acked_seq: sequence up to which it is on its disk, -1 = unknown.

    streaming: it gets every change; complete: it has no gaps; copy_seq: position at which its copy began; filled_seq:
    position at which a learner counts as filled; counts: nothing is committed without it. That holds for replicas, and
    for learners before they are reported as filled: from then on any configuration may have them in sync.
    """

    def __init__(self, node_id: str, replica: bool) -> None:
        self.node_id = node_id
        self.replica = replica
        self.counts = replica
        self.streaming = False
        self.complete = False
        self.acked_seq = -1
        self.copy_seq = 0
        self.filled_seq = 0
        self.reported_filled = False


class Lead:
    """The partitions that this node leads, and their followers in the installed view."""

    def __init__(self, replica_states: ReplicaStates) -> None:
        self.replica_states = replica_states
        self.followers: list[list[Follower]] = [[] for _ in range(replica_states.partitions)]
        self.reports: dict[str, dict[int, Report]] = {}  # of this view, by node and partition
        self.opening: list[int] = []  # to be announced to all members
        self.filled: list[tuple[int, str]] = []
        self.opening_seqs: list[int] = [0] * replica_states.partitions
        self.taken: list[list[Holding]] = [[] for _ in range(replica_states.partitions)]  # branches that were merged
        self._settlements: dict[str, list[tuple[int, int]]] = {}
        self._ships: dict[str, list[bytes]] = {}

    def installed(self) -> None:
        """A new view: followers join anew."""
        self.reports.clear()
        self.opening.clear()
        self.filled.clear()
        self._settlements.clear()

    def gather(self, partition: int, replicas: list[str], learners: list[str], kept: list[str]) -> None:
        """Set the followers of a partition; they join when their reports come.

        kept: nodes that have not restarted since the view before: of these, learners that counted still count. One that
        was in sync and is not any more has left the ISR: nothing waits for it.
        """
        before = self.followers[partition]
        counted = [f.node_id for f in before if f.counts and not f.replica and f.node_id in kept]
        me = self.replica_states.node_id
        followers = [Follower(node_id, True) for node_id in replicas if node_id != me]
        for node_id in learners:
            if node_id != me:
                follower = Follower(node_id, False)
                follower.counts = node_id in counted
                followers.append(follower)
        self.followers[partition] = followers

    def follower(self, partition: int, node_id: str) -> Follower | None:
        """Return a follower of a partition that this node has opened, or merges; else None."""
        if self.replica_states.phases[partition] >= MERGING:
            for follower in self.followers[partition]:
                if follower.node_id == node_id:
                    return follower
        return None

    def report(self, node_id: str, report: Report) -> None:
        """Handle a node's report on a partition that this node leads."""
        partition = report.partition
        self.reports.setdefault(node_id, {})[partition] = report
        follower = self.follower(partition, node_id)
        if follower is not None:
            self.join(partition, follower, report)
        if self.replica_states.phases[partition] >= MERGING and self.replica_states.settled[partition]:
            self._settle_with(partition, node_id, report)

    def join_known(self, partition: int) -> None:
        """Let followers with a report join: the partition was opened, or a branch was merged."""
        for follower in self.followers[partition]:
            if follower.streaming:
                continue
            report = self.reports.get(follower.node_id, {}).get(partition)
            if report is not None:
                self.join(partition, follower, report)

    def join(self, partition: int, follower: Follower, report: Report) -> None:
        """Send a follower the changes that it lacks, or have it copy the partition; then all later changes."""
        replica_states = self.replica_states
        holding = report.holding
        if self._is_merging(partition, follower, report):
            return  # `_settle` has it join
        if self.keeps_out(partition, report):
            return  # it is merged first
        follower.streaming = True
        follower.complete = False
        follower.reported_filled = False
        follower.filled_seq = replica_states.head_seqs[partition]
        changes = self._lacking(partition, report) if holding.state != DAMAGED else None
        if changes is None:
            follower.acked_seq = -1
            follower.copy_seq = replica_states.head_seqs[partition]
            self._start_copy(partition, follower, False, self._has(partition, holding))
            return
        self.send_changes(follower.node_id, partition, changes)
        follower.acked_seq = report.durable_seq
        if holding.state == PARTIAL:
            follower.copy_seq = holding.seq
            self._start_copy(partition, follower, True)
        else:
            follower.complete = True
            if holding.state == NONE and not changes:
                self._start_copy(partition, follower, True)  # the partition is empty, so it is complete
        self.advance(partition)
        self._check_filled(partition, follower)

    def _is_merging(self, partition: int, follower: Follower, report: Report) -> bool:
        """Whether a branch has been merged here, and not at all replicas: this leader may end.

        Until then the branch is needed. One that counts was overwritten long ago.
        """
        view = self.replica_states.view
        if view is None or self.replica_states.settled[partition] or follower.counts:
            return False
        return report.may_diverge and report.holding.state == COMPLETE

    def keeps_out(self, partition: int, report: Report) -> bool:
        """Whether a copy has changes that must be merged before it may be overwritten."""
        holding = report.holding
        if holding.state != COMPLETE or not report.may_diverge:
            return False
        mine = self.replica_states.holding(partition)
        new = includes(mine, holding) == NO and not self._has(partition, holding)
        return new and not knows_epoch(mine, holding.epoch)

    def _has(self, partition: int, holding: Holding) -> bool:
        """Whether the changes of a copy are here, in their order or merged from a branch."""
        for known in [self.replica_states.holding(partition), *self.taken[partition]]:
            if includes(known, holding) == YES:
                return True
        return False

    def _lacking(self, partition: int, report: Report) -> list[Change] | None:
        """Return the changes that follow a report's position; None when that position is not one of this history."""
        replica_states = self.replica_states
        holding = report.holding
        seq = replica_states.head_seqs[partition]
        if holding.seq == seq and holding.epoch == replica_states.head_epochs[partition]:
            return []
        if holding.state == NONE and holding.seq:
            return None
        return suffix_of(replica_states, partition, holding)

    def _start_copy(self, partition: int, follower: Follower, resume: bool, taken: bool = True) -> None:
        replica_states = self.replica_states
        epoch = replica_states.head_epochs[partition]
        history = replica_states.histories[partition]
        notice = CopyNotice(partition, resume, epoch, replica_states.head_seqs[partition], history)
        notice.taken = taken
        notice.left = replica_states.reader.bytes_between(partition_start(partition), partition_end(partition))
        replica_states.out.append((follower.node_id, COPY, encode_copy(replica_states.epoch, notice)))

    def send_changes(self, node_id: str, partition: int, changes: list[Change]) -> None:
        """Send changes to one node, in frames of limited size."""
        head = u64(self.replica_states.epoch)
        for parts in frames_of(partition, changes):
            self.replica_states.out.append((node_id, SHIP, b"".join([head, *parts])))

    def ship(self, partition: int, change: Change) -> None:
        """Add a change of this turn to the frames for the followers; `flush` sends them."""
        encoded = b""
        for follower in self.followers[partition]:
            if follower.streaming:
                if not encoded:
                    encoded = encode_change(partition, change)
                ships = self._ships.get(follower.node_id)
                if ships is None:
                    self._ships[follower.node_id] = [u64(self.replica_states.epoch), encoded]
                else:
                    ships.append(encoded)

    def flush(self) -> None:
        """End of turn: send one frame of changes per node, then what was opened and settled."""
        replica_states = self.replica_states
        if self._ships:
            for node_id, parts in self._ships.items():
                replica_states.out.append((node_id, SHIP, b"".join(parts)))
            self._ships.clear()
        if self.opening:
            body = encode_sequences(
                replica_states.epoch, [(p, replica_states.writer.sequence(p)) for p in self.opening]
            )
            self.opening.clear()
            for node_id in replica_states.others:
                replica_states.out.append((node_id, OPENED, body))
        if self._settlements:
            for node_id, entries in self._settlements.items():
                replica_states.out.append((node_id, SETTLED, encode_sequences(replica_states.epoch, entries)))
            self._settlements.clear()

    def acknowledge(self, node_id: str, entries: list[tuple[int, int]]) -> None:
        """A follower has these partitions on its disk up to these sequences."""
        for partition, seq in entries:
            follower = self.follower(partition, node_id)
            if follower is None or not follower.streaming:
                # It joins later, with its report, and says this only once: what waits for it would wait for ever.
                report = self.reports.get(node_id, {}).get(partition)
                if report is not None and seq > report.durable_seq >= 0:
                    report.durable_seq = seq
            elif seq > follower.acked_seq:
                follower.acked_seq = seq
                self.advance(partition)
                if not follower.replica and not follower.reported_filled:
                    self._check_filled(partition, follower)

    def completed(self, node_id: str, entries: list[tuple[int, int]]) -> None:
        """A follower's copy is complete, and on its disk up to these sequences."""
        for partition, seq in entries:
            follower = self.follower(partition, node_id)
            if follower is not None and follower.streaming:
                follower.complete = True
                follower.acked_seq = seq
                self.advance(partition)
                self._check_filled(partition, follower)

    def _check_filled(self, partition: int, follower: Follower) -> None:
        """Count a complete learner from now on; report it as filled when it has all changes from before."""
        if not follower.complete or follower.replica or follower.reported_filled:
            return
        if not follower.counts:
            follower.counts = not self.replica_states.planted.uncounted
            follower.filled_seq = self.replica_states.head_seqs[partition]
        if follower.acked_seq >= follower.filled_seq:
            follower.reported_filled = True
            self.filled.append((partition, follower.node_id))

    def committed_seq(self, partition: int) -> int:
        """Return the sequence up to which a partition is on the disks of all its replicas."""
        low = self.replica_states.durable_seqs[partition]
        if self.replica_states.planted.leader_alone:
            return low
        for follower in self.followers[partition]:
            if follower.counts:
                acked_seq = follower.acked_seq if follower.complete else -1
                if acked_seq < low:
                    low = acked_seq
        return low

    def lacking(self, partition: int, seq: int) -> list[str]:
        """Return the nodes for which a commit of a partition that this node leads waits."""
        return [
            follower.node_id
            for follower in self.followers[partition]
            if follower.counts and (not follower.complete or follower.acked_seq < seq)
        ]

    def copies_of(self, partition: int, seq: int) -> int:
        """Return how many nodes have what was committed up to `seq` on their disks, whichever node leads."""
        replica_states = self.replica_states
        if replica_states.solo:
            return 1
        if replica_states.phases[partition] < MERGING or replica_states.durable_seqs[partition] < seq:
            view = replica_states.view
            return 1 if view is None or not view.replicas else len(view.replicas[partition])
        count = 1
        for follower in self.followers[partition]:
            if follower.complete and follower.acked_seq >= seq:
                count += 1
        return count

    def advance(self, partition: int) -> None:
        """Commit what can be committed, after more has become durable.

        A leader whose copy is damaged commits nothing: the ISR goes on without it, or the partition is closed.
        """
        replica_states = self.replica_states
        if replica_states.phases[partition] < MERGING or replica_states.fresh:
            return
        if replica_states.states[partition] == DAMAGED:
            return
        low = self.committed_seq(partition)
        replica_states.pending.replicated(partition, low)
        replica_states.recent.hold(partition, low)
        if not replica_states.settled[partition] and low >= self.opening_seqs[partition]:
            self._settle(partition)

    def _settle(self, partition: int) -> None:
        self.replica_states.settled[partition] = True
        for node_id in self.replica_states.others:
            report = self.reports.get(node_id, {}).get(partition)
            if report is not None:
                self._settle_with(partition, node_id, report)
        self.join_known(partition)

    def _settle_with(self, partition: int, node_id: str, report: Report) -> None:
        """Tell a node whether its changes of a partition are part of what all replicas have now."""
        taken = self._has(partition, report.holding) or self.replica_states.planted.own_tail
        self._settlements.setdefault(node_id, []).append((partition, 1 if taken else 0))

    def missing(self, partition: int) -> int:
        """Return how many replicas of a partition are not complete."""
        count = 0
        for follower in self.followers[partition]:
            if follower.replica and not (follower.streaming and follower.complete):
                count += 1
        return count

    def healthy(self, partition: int) -> list[str]:
        """Return the replicas of a partition that can be compared with this one."""
        return [f.node_id for f in self.followers[partition] if f.replica and f.streaming and f.complete]
