"""The end of a turn, and of its write: changes leave, and what is durable is reported.

The changes of a turn are sent to the followers in the same turn in which they go to the disk here, so that all disks
work at the same time. A node that is alone pays for one look at each changed partition, before the write and after it:
so `durable_seq` is exact there too, whatever view comes next.
"""

from __future__ import annotations

from collections import deque

from folkmoot.kernel.pack import u64
from folkmoot.peer.kind import DURABLE
from folkmoot.replica.change import Change
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.lead import Lead
from folkmoot.replica.notice import encode_sequences
from folkmoot.replica.pending import Uncommitted
from folkmoot.replica.phase import MERGING, OPEN
from folkmoot.replica.replica import Replica
from folkmoot.store.batch import DELETE, PUT, Batch, encode_ops
from folkmoot.store.key import HISTORY, RETAINED, STAMP, history_key
from folkmoot.store.outline import own_ops

__all__ = ["Turns"]


class _Flight:
    """A batch on its way to the disk: its changes, as (partition, sequence, generation).

    alone: those of them that wait for no replicas, because this node had no others when the turn ended.
    """

    def __init__(self, token: int, parts: list[tuple[int, int, int]], alone: list[tuple[int, int, int]]) -> None:
        self.token = token
        self.parts = parts
        self.alone = alone


class Turns:
    """Batches on their way to the disk."""

    def __init__(self, context: ReplicaContext, replicas: list[Replica], lead: Lead) -> None:
        self.context = context
        self.replicas = replicas
        self.lead = lead
        self._flight: deque[_Flight] = deque()

    def seal(self, batch: Batch | None) -> None:
        """End a turn: send its changes, and remember what to report when it is written."""
        context = self.context
        assert batch is not None or not context.outline, "a change is in a batch"
        if batch is not None:
            followed = context.followed
            context.followed = []
            if context.solo:
                self._seal_alone(batch, followed)
            else:
                self._seal_shared(batch, followed)
            context.outline.write(batch, context.writer.raw_ranges)
        if not context.solo:
            self.lead.flush()
            if context.planted.early_ack:
                self._ack_early()

    def written(self, token: int) -> None:
        """The batches up to `token` are on the disk here."""
        context = self.context
        context.pending.written_token = token
        flight = self._flight
        acks: dict[str, list[tuple[int, int]]] = {}
        while flight and flight[0].token <= token:
            for partition, seq, generation in flight.popleft().parts:
                replica = self.replicas[partition]
                if generation == replica.generation and seq > replica.durable_seq:
                    replica.durable_seq = seq
                    if replica.phase >= MERGING:
                        self.lead.advance(replica)
                    elif replica.follows() and not context.planted.early_ack:
                        acks.setdefault(replica.leader, []).append((partition, seq))
        for node_id, entries in acks.items():
            context.send(node_id, DURABLE, encode_sequences(context.epoch, entries))

    def join(self) -> None:
        """Make batches from before the view, when this node was alone, wait for the replicas of the new view too."""
        pending = self.context.pending
        for flight in self._flight:
            if flight.alone and flight.token > pending.committed_token:
                parts = [(self.replicas[partition].uncommitted, seq) for partition, seq, _generation in flight.alone]
                pending.add(flight.token, parts, self.context.now)
            flight.alone = []

    def _seal_alone(self, batch: Batch, followed: list[tuple[int, int, int]]) -> None:
        context = self.context
        epoch = context.epoch
        alone: list[tuple[int, int, int]] = []
        for partition in dict.fromkeys(context.writer.taken):
            replica = self.replicas[partition]
            history = replica.history
            if (not history or history[-1][0] != epoch) and replica.phase == OPEN:
                self._add_history(batch, replica)
            alone.append((partition, replica.sequence, replica.generation))
        followed.extend(alone)
        self._flight.append(_Flight(batch.token, followed, alone))

    def _stamp(self, batch: Batch, replica: Replica, ops: list[tuple[int, bytes, bytes]]) -> None:
        """Record when rows changed, for another side of a split that may have changed them too.

        A merge only learns when the other side has changed them, also if nobody is away any more: so it is forgotten.
        """
        context = self.context
        partition = replica.number
        if replica.phase >= MERGING and not context.planted.no_stamps:
            replica.stamps.learn(ops)
            if replica.phase == MERGING:
                return  # the time of a merge is not the time of the change, which comes with the row
            epoch, seq = context.writer.position(partition)
            version = u64(epoch) + u64(seq)
            ops.extend(replica.stamps.note(batch, version, ops, context.now + context.shift_us))

    def _add_history(self, batch: Batch, replica: Replica) -> None:
        history = replica.note_epoch()
        if history:
            epoch, seq = self.context.writer.position(replica.number)
            batch.put(history_key(replica.number), u64(epoch) + u64(seq) + history)

    def _seal_shared(self, batch: Batch, followed: list[tuple[int, int, int]]) -> None:
        context = self.context
        for partition in context.writer.taken:
            replica = self.replicas[partition]
            if replica.phase >= MERGING:
                self._add_history(batch, replica)
        parts: list[tuple[Uncommitted, int]] = []
        entries = followed
        away = context.is_away()
        for partition, ops in own_ops(batch.ops, context.writer.raw_ranges).items():
            replica = self.replicas[partition]
            if away or replica.phase == MERGING:
                self._stamp(batch, replica, ops)
            epoch, seq = context.writer.position(partition)
            parts.append((replica.uncommitted, seq))
            entries.append((partition, seq, replica.generation))
            head = replica.head_seq
            if seq == head:
                continue  # no follower had joined when the turn began: those that joined since have been told to copy
            if context.planted.clears_kept:
                ops = [op for op in ops if op[0] != DELETE or op[1][2] != RETAINED]
            if replica.phase < OPEN and _is_aside(ops):
                replica.note_aside((replica.head_epoch, head), (epoch, seq))
            change = Change(replica.head_epoch, head, epoch, seq, encode_ops(ops))
            replica.recent.add(change)
            context.outline.own(partition, (replica.head_epoch, head), (epoch, seq))
            replica.head_epoch = epoch
            replica.head_seq = seq
            if replica.phase >= MERGING:
                self.lead.ship(replica, change)
        if parts:
            context.pending.add(batch.token, parts, context.now)
        self._flight.append(_Flight(batch.token, entries, []))

    def _ack_early(self) -> None:
        context = self.context
        for partition, seq, _generation in self._flight[-1].parts if self._flight else []:
            replica = self.replicas[partition]
            if replica.follows():
                body = encode_sequences(context.epoch, [(partition, seq)])
                context.send(replica.leader, DURABLE, body)


def _is_aside(ops: list[tuple[int, bytes, bytes]]) -> bool:
    """Whether a change only says which leadership has begun, as each takeover does that commits what it has adopted."""
    for kind, key, _value in ops:
        if kind != PUT or key[2] not in (HISTORY, STAMP):
            return False
    return True
