"""A leader and its followers: which have joined the stream of changes, what each is sent, what is committed.

A follower joins with a report of its position. It then gets the changes that it lacks and all later ones, in order; so
nothing is missing unless a node has failed. The leader counts what the follower reports as durable. A replica that has
not joined, or is being filled, counts as having nothing, so nothing is committed without it.
"""

from __future__ import annotations

from folkmoot.kernel.pack import u64
from folkmoot.membership.divergence import NO, includes
from folkmoot.membership.holding import COMPLETE, DAMAGED, NONE, PARTIAL, knows_epoch
from folkmoot.peer.kind import COPY, OPENED, SETTLED, SHIP
from folkmoot.replica.change import Change, encode_change
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.follower import Follower
from folkmoot.replica.notice import CopyNotice, Report, encode_copy, encode_sequences
from folkmoot.replica.phase import MERGING
from folkmoot.replica.replica import Replica
from folkmoot.replica.suffix import frames_of, suffix_of
from folkmoot.store.key import partition_end, partition_start

__all__ = ["Lead"]


class Lead:
    """The partitions that this node leads, and their followers in the installed view."""

    def __init__(self, context: ReplicaContext) -> None:
        self.context = context
        self.opening: list[Replica] = []  # to be announced to all members
        self.filled: list[tuple[int, str]] = []
        self._settlements: dict[str, list[tuple[int, int]]] = {}
        self._ships: dict[str, list[bytes]] = {}

    def installed(self) -> None:
        """A new view: followers join anew."""
        self.opening.clear()
        self.filled.clear()
        self._settlements.clear()

    def gather(self, replica: Replica, replicas: list[str], learners: list[str], kept: list[str]) -> None:
        """Set the followers of a partition; they join when their reports come.

        kept: nodes that have not restarted since the view before: of these, learners that counted still count. One that
        was in sync and is not any more has left the ISR: nothing waits for it.
        """
        before = replica.followers
        counted = [f.node_id for f in before if f.counts and not f.in_sync and f.node_id in kept]
        me = self.context.node_id
        followers = [Follower(node_id, True) for node_id in replicas if node_id != me]
        for node_id in learners:
            if node_id != me:
                follower = Follower(node_id, False)
                follower.counts = node_id in counted
                followers.append(follower)
        replica.followers = followers

    def report(self, replica: Replica, node_id: str, report: Report) -> None:
        """Handle a node's report on a partition that this node leads."""
        replica.reports[node_id] = report
        follower = replica.follower(node_id)
        if follower is not None:
            self.join(replica, follower, report)
        if replica.phase >= MERGING and replica.settled:
            self._settle_with(replica, node_id, report)

    def join_known(self, replica: Replica) -> None:
        """Let followers with a report join: the partition was opened, or a branch was merged."""
        for follower in replica.followers:
            if follower.streaming:
                continue
            report = replica.reports.get(follower.node_id)
            if report is not None:
                self.join(replica, follower, report)

    def join(self, replica: Replica, follower: Follower, report: Report) -> None:
        """Send a follower the changes that it lacks, or have it copy the partition; then all later changes."""
        holding = report.holding
        if self._is_merging(replica, follower, report):
            return  # `_settle` has it join
        if self.keeps_out(replica, follower.node_id, report):
            return  # it is merged first
        follower.streaming = True
        follower.complete = False
        follower.reported_filled = False
        follower.filled_seq = replica.head_seq
        changes = self._lacking(replica, report) if holding.state != DAMAGED else None
        if changes is None:
            follower.acked_seq = -1
            follower.copy_seq = replica.head_seq
            self._start_copy(replica, follower, False, replica.knows(holding))
            return
        self._send_changes(follower.node_id, replica, changes)
        follower.acked_seq = report.durable_seq
        if holding.state == PARTIAL:
            follower.copy_seq = holding.seq
            self._start_copy(replica, follower, True)
        else:
            follower.complete = True
            if holding.state == NONE and not changes:
                self._start_copy(replica, follower, True)  # the partition is empty, so it is complete
        self.advance(replica)
        self._check_filled(replica, follower)

    def _is_merging(self, replica: Replica, follower: Follower, report: Report) -> bool:
        """Whether a branch has been merged here, and not at all replicas: this leader may end.

        Until then the branch is needed. One that counts was overwritten long ago.
        """
        view = self.context.view
        if view is None or replica.settled or follower.counts:
            return False
        return report.may_diverge and report.holding.state == COMPLETE

    def keeps_out(self, replica: Replica, node_id: str, report: Report) -> bool:
        """Whether a copy has changes that must be merged before it may be overwritten; not if they cannot be read."""
        holding = report.holding
        if holding.state != COMPLETE or not report.may_diverge:
            return False
        if replica.lost.get(node_id) == (holding.epoch, holding.seq):
            return False
        mine = replica.holding()
        new = includes(mine, holding) == NO and not replica.knows(holding)
        return new and not knows_epoch(mine, holding.epoch)

    def _lacking(self, replica: Replica, report: Report) -> list[Change] | None:
        """Return the changes that follow a report's position; None when that position is not one of this history."""
        holding = report.holding
        seq = replica.head_seq
        if holding.seq == seq and holding.epoch == replica.head_epoch:
            return []
        if holding.state == NONE and holding.seq:
            return None
        return suffix_of(replica, holding)

    def _start_copy(self, replica: Replica, follower: Follower, resume: bool, taken: bool = True) -> None:
        context = self.context
        partition = replica.number
        notice = CopyNotice(partition, resume, replica.head_epoch, replica.head_seq, replica.history)
        notice.taken = taken
        notice.left = context.reader.bytes_between(partition_start(partition), partition_end(partition))
        context.send(follower.node_id, COPY, encode_copy(context.epoch, notice))

    def _send_changes(self, node_id: str, replica: Replica, changes: list[Change]) -> None:
        """Send changes to one node, in frames of limited size."""
        head = u64(self.context.epoch)
        for parts in frames_of(replica.number, changes):
            self.context.send(node_id, SHIP, b"".join([head, *parts]))

    def ship(self, replica: Replica, change: Change) -> None:
        """Add a change of this turn to the frames for the followers; `flush` sends them."""
        encoded = b""
        for follower in replica.followers:
            if follower.streaming:
                if not encoded:
                    encoded = encode_change(replica.number, change)
                ships = self._ships.get(follower.node_id)
                if ships is None:
                    self._ships[follower.node_id] = [u64(self.context.epoch), encoded]
                else:
                    ships.append(encoded)

    def flush(self) -> None:
        """End of turn: send one frame of changes per node, then what was opened and settled."""
        context = self.context
        if self._ships:
            for node_id, parts in self._ships.items():
                context.send(node_id, SHIP, b"".join(parts))
            self._ships.clear()
        if self.opening:
            opened = [(replica.number, replica.sequence) for replica in self.opening]
            body = encode_sequences(context.epoch, opened)
            self.opening.clear()
            for node_id in context.others:
                context.send(node_id, OPENED, body)
        if self._settlements:
            for node_id, entries in self._settlements.items():
                context.send(node_id, SETTLED, encode_sequences(context.epoch, entries))
            self._settlements.clear()

    def acknowledge(self, node_id: str, entries: list[tuple[Replica, int]]) -> None:
        """A follower has these partitions on its disk up to these sequences."""
        for replica, seq in entries:
            follower = replica.follower(node_id)
            if follower is None or not follower.streaming:
                # It joins later, with its report, and says this only once: what waits for it would wait for ever.
                report = replica.reports.get(node_id)
                if report is not None and seq > report.durable_seq >= 0:
                    report.durable_seq = seq
            elif seq > follower.acked_seq:
                follower.acked_seq = seq
                self.advance(replica)
                if not follower.in_sync and not follower.reported_filled:
                    self._check_filled(replica, follower)

    def completed(self, node_id: str, entries: list[tuple[Replica, int]]) -> None:
        """A follower's copy is complete, and on its disk up to these sequences."""
        for replica, seq in entries:
            follower = replica.follower(node_id)
            if follower is not None and follower.streaming:
                follower.complete = True
                follower.acked_seq = seq
                self.advance(replica)
                self._check_filled(replica, follower)

    def _check_filled(self, replica: Replica, follower: Follower) -> None:
        """Count a complete learner from now on; report it as filled when it has all changes from before."""
        if not follower.complete or follower.in_sync or follower.reported_filled:
            return
        if not follower.counts:
            follower.counts = not self.context.planted.uncounted
            follower.filled_seq = replica.head_seq
        if follower.acked_seq >= follower.filled_seq:
            follower.reported_filled = True
            self.filled.append((replica.number, follower.node_id))

    def advance(self, replica: Replica) -> None:
        """Commit what can be committed, after more has become durable.

        A leader whose copy is damaged commits nothing: the ISR goes on without it, or the partition is closed.
        """
        context = self.context
        if replica.phase < MERGING or context.fresh:
            return
        if replica.state == DAMAGED:
            return
        low = replica.advance()
        replica.uncommitted.replicated(low)
        replica.recent.hold(low)
        if not replica.settled and low >= replica.opening_seq:
            self._settle(replica)

    def _settle(self, replica: Replica) -> None:
        replica.settled = True
        for node_id in self.context.others:
            report = replica.reports.get(node_id)
            if report is not None:
                self._settle_with(replica, node_id, report)
        self.join_known(replica)

    def _settle_with(self, replica: Replica, node_id: str, report: Report) -> None:
        """Tell a node whether its changes of a partition are part of what all replicas have now."""
        taken = replica.knows(report.holding) or self.context.planted.own_tail
        self._settlements.setdefault(node_id, []).append((replica.number, 1 if taken else 0))
