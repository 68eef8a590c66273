"""The state of each partition at this node: what it has, its role in the installed view, messages to send.

The parts of replication share it. It applies changes of other nodes, and never decides which.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR, Event
from folkmoot.kernel.hash import hash64
from folkmoot.kernel.planted import Planted
from folkmoot.membership.divergence import YES, has_change
from folkmoot.membership.history import decode_history, encode_history, extended, read_history, trimmed
from folkmoot.membership.holding import COMPLETE, DAMAGED, FORGOTTEN, HISTORY_MAX, NONE, PARTIAL, Holding
from folkmoot.membership.view import View
from folkmoot.merge.stamp import Stamps
from folkmoot.peer.config import ClusterConfig
from folkmoot.replica.change import Change, decode_ops, size_of
from folkmoot.replica.notice import Report
from folkmoot.replica.pending import Pending
from folkmoot.replica.recent import Recent
from folkmoot.replica.reported import Reported
from folkmoot.store.batch import PUT
from folkmoot.store.epoch import tag_of
from folkmoot.store.key import HISTORY, history_key, partition_end, partition_start
from folkmoot.store.overlay import Overlay
from folkmoot.store.position import Positions, read_positions
from folkmoot.store.reader import Reader
from folkmoot.store.writer import Writer, version_of

__all__ = [
    "ADOPTED",
    "IDLE",
    "LEADER",
    "LEARNER",
    "SHARED",
    "MERGING",
    "NO_ROLE",
    "OPEN",
    "REPLICA",
    "TAKING",
    "ReplicaStates",
]

_WHOLE_MAX: Final = HISTORY_MAX // 8  # entries of a history that are kept as long as somebody away has not reported

# Roles in the installed view
NO_ROLE: Final = 0
LEARNER: Final = 1
REPLICA: Final = 2
LEADER: Final = 3

# Phases of a leader
IDLE: Final = 0  # does not lead
TAKING: Final = 1  # collects what other nodes have and this one lacks
ADOPTED: Final = 2  # everything is on the disk; the broker may start
MERGING: Final = 3  # merges other branches; from here on its changes go to its followers
SHARED: Final = 4  # what was taken over or merged has gone to the followers; when it is committed, the broker may start
OPEN: Final = 5  # serves


class ReplicaStates:
    """State of all partitions at one node, in lists indexed by partition.

    head_epochs, head_seqs: position up to the last sealed turn; durable_seqs: sequence up to which rows are on the
    disk; generations: count the restarts of a copy, so that writes from before a restart do not count for it.
    """

    def __init__(self, node_id: str, partitions: int, config: ClusterConfig, reader: Reader, writer: Writer) -> None:
        self.node_id = node_id
        self.partitions = partitions
        self.config = config
        self.reader = reader
        self.writer = writer
        self.now = 0
        self.shift_us = 0  # the time of this node less `now`
        self.view: View | None = None
        self.lived: View | None = None  # the newest view that took effect here, in this or an earlier process
        self.lives: bool = False  # in this one
        self.epoch = 0
        self.fresh = False  # a view is installed that has not taken effect yet
        self.solo = True  # there is no other member, and none is away
        self.others: list[str] = []  # the other members of the view
        self.leaders: list[str] = [""] * partitions
        self.roles: list[int] = [NO_ROLE] * partitions
        self.phases: list[int] = [IDLE] * partitions
        self.opened: list[bool] = [False] * partitions  # its leader serves in this view
        self.settled: list[bool] = [True] * partitions  # all replicas have what its leader has taken over
        self.states: list[int] = writer.states
        self.head_epochs: list[int] = [0] * partitions
        self.head_seqs: list[int] = [0] * partitions
        self.durable_seqs: list[int] = [0] * partitions
        self.generations: list[int] = [0] * partitions
        self.histories: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
        self.base_seqs: list[int] = [0] * partitions  # last sequence before the epoch of the view
        self.recent = Recent(partitions, config.recent_bytes_max)
        self.reported = Reported()
        self.pending = Pending(partitions)
        self.stamps = Stamps(partitions, reader)
        self.followed: list[tuple[int, int, int]] = []  # in this turn: partition, sequence, generation
        self.copying: dict[int, bool] = {}  # partitions whose copy here is being filled, with all live changes
        self.unfit: list[int] = []
        self.renew = False
        self.out: list[tuple[str, int, bytes]] = []
        self.events: list[Event] = []
        self.planted = Planted(config.planted)

    def open(self) -> None:
        """Read positions and histories; raises CorruptStore."""
        positions = read_positions(self.reader, self.partitions)
        if not positions.found:
            self._date(positions)
        self.writer.restore(positions)
        for partition in range(self.partitions):
            if positions.sequences[partition] and positions.found:
                self._open_history(partition)
            elif positions.sequences[partition]:
                self.histories[partition] = [(positions.epochs[partition], 0)]
            self.durable_seqs[partition] = positions.sequences[partition]
        self.sync_heads()

    def _open_history(self, partition: int) -> None:
        """Read a history; a copy whose history cannot be read is filled anew, without effect on the others."""
        try:
            self.histories[partition] = read_history(self.reader, partition)
        except CorruptStore as fault:
            self.spoil(partition, str(fault))

    def doubt(self) -> None:
        """Mark all copies partial until they are filled: acknowledged changes may be missing at their ends.

        A disk that becomes another one need not: nobody counts on its copies.
        """
        for partition in range(self.partitions):
            if self.states[partition] == COMPLETE:
                epoch, seq = self.writer.position(partition)
                self.writer.adopt(partition, epoch, seq, PARTIAL)

    def _date(self, positions: Positions) -> None:
        """Give partitions filled by an older version a position that only this node has."""
        epoch = hash64(self.node_id.encode()) & 0xFFFFFF
        for partition in range(self.partitions):
            if self.reader.scan(partition_start(partition), partition_end(partition), 1):
                positions.states[partition] = COMPLETE
                positions.epochs[partition] = epoch
                positions.sequences[partition] = 1

    def sync_heads(self) -> None:
        """Take the positions of the Writer as those of the last sealed turn."""
        for partition in range(self.partitions):
            epoch, seq = self.writer.position(partition)
            self.head_epochs[partition] = epoch
            self.head_seqs[partition] = seq

    def holding(self, partition: int) -> Holding:
        """Return what this node has of a partition, this turn's changes included."""
        epoch, seq = self.writer.position(partition)
        state = self.states[partition]
        if self.planted.partial_counts and state == PARTIAL:
            state = COMPLETE
        return Holding(state, epoch, seq, self.histories[partition])

    def report(self, partition: int) -> Report:
        """Return what a leader has to know of the copy here.

        A copy that is being filled is partial until its last page is on the disk; one whose filling was interrupted
        counts as damaged.
        """
        holding = self.holding(partition)
        if partition in self.copying:
            holding.state = PARTIAL
            return Report(partition, holding, -1)
        if holding.state == PARTIAL:
            holding.state = DAMAGED
        report = Report(partition, holding, self.durable_seqs[partition])
        report.may_diverge = holding.seq > 0 and self._may_diverge(partition)
        return report

    def _may_diverge(self, partition: int) -> bool:
        """Whether changes of its epoch that the leader lacks may have been committed.

        That is so if the copy was changed in another lineage: this node said so when it came from there. Those of this
        lineage are in the copies in sync, or were told to nobody.
        """
        return self.view is None or self.node_id in self.view.branches.get(partition, [])

    def is_written(self, partitions: list[int]) -> bool:
        """Whether the store shows all that was written to these partitions."""
        for partition in partitions:
            if self.durable_seqs[partition] < self.writer.sequence(partition):
                return False
        return True

    def is_readable(self, partition: int) -> bool:
        """Whether this side of a split gives out valid stream offsets (promise A9); True without a split.

        It does so in the trunk, except in a partition that was begun empty, or has no leader, while somebody is away.
        """
        view = self.view
        if view is None:
            return True
        if not view.is_whole() and (view.losses.holders(partition) or self.stamps.began_empty(partition)):
            return False
        return view.is_trunk

    def away(self) -> bool:
        """Whether a known node is absent, and may return with changes of its own."""
        return self.view is not None and not self.view.is_whole()

    def holds(self, partition: int) -> bool:
        """Whether this node has anything of a partition."""
        return self.states[partition] != NONE or self.writer.sequence(partition) > 0

    def note_epoch(self, partition: int) -> bytes:
        """Return a new value of the HISTORY row, if this turn's change is the first in its epoch, else nothing."""
        history = self.histories[partition]
        if history and history[-1][0] == self.epoch:
            return b""
        if self.writer.sequence(partition) <= self.base_seqs[partition]:
            return b""
        self._extend(partition)
        return encode_history(self.histories[partition])

    def write_history(self, partition: int, base: int) -> None:
        """Begin the epoch with a change that records it."""
        self.base_seqs[partition] = base
        self._extend(partition)
        self.writer.put(partition, history_key(partition), encode_history(self.histories[partition]))

    def has(self, partition: int, change: Change) -> bool:
        """Whether a change is certainly here."""
        return has_change(self.holding(partition), change.epoch, change.seq) == YES

    def _extend(self, partition: int) -> None:
        """Add the epoch to the history; trim what no other copy needs, but nothing while a learner is filled."""
        history = extended(self.histories[partition], self.epoch, self.base_seqs[partition])
        view = self.view
        if view is None or not view.replicas:
            history = trimmed(history, self.config.history_epochs, [], [])
        elif not view.learners[partition]:
            history = self._trimmed(partition, history, view)
        self.histories[partition] = history

    def _trimmed(self, partition: int, history: list[tuple[int, int]], view: View) -> list[tuple[int, int]]:
        """Return what other copies need of a history; all of it until every known node has reported to this leader.

        Who is away may have been back for a moment, so that its copy ends long before it went away last.
        """
        anchors = view.anchors()
        if not view.is_whole():  # who is away may have been on another side with somebody who is here
            own = tag_of(view.epoch)
            anchors.extend([epoch for epoch, _ in history if epoch != FORGOTTEN and tag_of(epoch) != own])
        since: list[int] = []
        for node_id in view.known:
            if node_id == self.node_id:
                continue
            epoch = self.reported.epoch_of(node_id, partition)
            if epoch < 0 and (len(history) <= _WHOLE_MAX or view.member(node_id) is not None):
                return history
            if epoch > 0:
                if node_id in view.replicas[partition]:
                    since.append(epoch)
                else:
                    anchors.append(epoch)
        return trimmed(history, self.config.history_epochs, anchors, since)

    def is_next(self, partition: int, change: Change) -> bool:
        """Whether a change follows the newest one here."""
        return change.prev_seq == self.head_seqs[partition] and change.prev_epoch == self.head_epochs[partition]

    def apply(self, partition: int, change: Change) -> list[tuple[int, bytes, bytes]]:
        """Write a change that follows the head into this turn's batch; raises ValueError and writes nothing of it."""
        ops = decode_ops(partition, change.body)
        history = self.histories[partition]
        for kind, key, value in ops:
            if kind == PUT and key[2] == HISTORY:
                history = decode_history(value)
        self.histories[partition] = history
        if self.states[partition] == NONE:
            self.states[partition] = COMPLETE  # it has every change since the first
        self.writer.raw(ops, size_of(ops))
        self.writer.adopt(partition, change.epoch, change.seq, self.states[partition])
        if not self.planted.gaps:
            self.recent.add(partition, change)
        self.head_epochs[partition] = change.epoch
        self.head_seqs[partition] = change.seq
        self.followed.append((partition, change.seq, self.generations[partition]))
        return ops

    def cut(self, partition: int, epoch: int, seq: int, history: list[tuple[int, int]]) -> None:
        """Begin a copy: live changes follow this position, and the rows here count for nothing until it is filled."""
        self.durable_seqs[partition] = -1
        self._move(partition, epoch, seq, history, PARTIAL)

    def _move(self, partition: int, epoch: int, seq: int, history: list[tuple[int, int]], state: int) -> None:
        """Set the position of a copy, forward or back: earlier writes of it do not count."""
        self.generations[partition] += 1
        self.recent.clear(partition)
        self.head_epochs[partition] = epoch
        self.head_seqs[partition] = seq
        self.histories[partition] = history
        self.writer.adopt(partition, epoch, seq, state)

    def truncate(self, rows: Overlay) -> None:
        """Truncate what this node leads to what is committed; nobody was told of the rest.

        Its rows are restored, and its position: where this copy is compared with another one, it never had the rest.
        """
        writer = self.writer
        led = {partition: True for partition in range(self.partitions) if self.phases[partition] >= MERGING}
        changed = dict.fromkeys([partition for partition in writer.touched if partition in led])
        writer.drop(led)
        for partition in led:
            token = self.pending.first_token(partition)
            undo = rows.undo(partition, token) if token else None
            self.pending.abandon(partition)
            if undo is not None:
                writer.raw(undo.ops, size_of(undo.ops))
                self._truncate(partition, version_of(undo.version), undo.ops)
            elif partition in changed:
                self._truncate(partition, writer.position(partition), [])

    def _truncate(self, partition: int, position: tuple[int, int], ops: list[tuple[int, bytes, bytes]]) -> None:
        """The newest change of a copy is this one again. Of its writes only this turn's counts."""
        epoch, seq = position
        self.durable_seqs[partition] = min(self.durable_seqs[partition], seq - 1)  # its rows are not restored yet
        history = [entry for entry in self.histories[partition] if entry[1] < seq]
        for kind, key, value in ops:
            if key[2] == HISTORY:
                history = decode_history(value) if kind == PUT else []
        self._move(partition, epoch, seq, history, self.states[partition])
        self.followed.append((partition, seq, self.generations[partition]))

    def spoil(self, partition: int, why: str) -> None:
        """Mark the copy as damaged: it must not lead, and is to be filled anew."""
        if self.states[partition] == DAMAGED:
            return
        epoch, seq = self.writer.position(partition)
        self.writer.adopt(partition, epoch, seq, DAMAGED)
        self.unfit.append(partition)
        self.event(ERROR, "replica_damaged", partition, why)

    def count(self, state: int) -> int:
        """Return how many copies here are in a state."""
        return len([partition for partition in range(len(self.states)) if self.states[partition] == state])

    def event(self, level: str, kind: str, partition: int, why: str) -> None:
        """Put a fact about a partition into the log."""
        self.events.append(Event(level, kind, {"partition": partition, "epoch": self.epoch, "why": why}))

    def leads(self, partition: int) -> bool:
        """Whether this node is the leader of a partition in the installed view."""
        return self.roles[partition] == LEADER

    def is_in_sync(self, partition: int) -> bool:
        """Whether this node is in the ISR of a partition that another one leads."""
        return self.view is not None and self.roles[partition] == REPLICA

    def follows(self, partition: int) -> bool:
        """Whether this node gets the changes of a partition from its leader."""
        return self.roles[partition] == LEARNER or self.roles[partition] == REPLICA
