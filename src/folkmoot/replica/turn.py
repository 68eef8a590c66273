"""The end of a turn and what follows when the disk has it: changes leave, and what is durable is told.

What a turn changed is sent to the followers in the same turn in which it goes to the disk here, so that all disks work
at once. A node that is alone pays for one look at each partition that it touched.
"""

from __future__ import annotations

from collections import deque

from folkmoot.kernel.pack import u64
from folkmoot.peer.kind import DURABLE
from folkmoot.replica.change import Change, encode_ops
from folkmoot.replica.lead import Lead
from folkmoot.replica.notice import encode_sequences
from folkmoot.replica.replica_states import MERGING, OPEN, Standing
from folkmoot.store.batch import DELETE, Batch
from folkmoot.store.key import META, RETAINED, history_key, partition_of_key

__all__ = ["Turns"]


class _Flight:
    """A batch on its way to the disk: what it changed, as (partition, sequence, generation)."""

    def __init__(self, token: int, touched: list[int], parts: list[tuple[int, int, int]]) -> None:
        self.token = token
        self.touched = touched  # of a turn without others to tell
        self.parts = parts


class Turns:
    """Batches on their way to the disk."""

    def __init__(self, standing: Standing, lead: Lead) -> None:
        self.standing = standing
        self.lead = lead
        self._flight: deque[_Flight] = deque()

    def seal(self, batch: Batch | None) -> None:
        """End a turn: send what it changed, and remember what is to be told when it is written."""
        standing = self.standing
        if batch is not None:
            followed = standing.followed
            standing.followed = []
            if standing.solo:
                self._seal_alone(batch, followed)
            else:
                self._seal_shared(batch, followed)
        if not standing.solo:
            self.lead.flush()
            if standing.planted.early_ack:
                self._ack_early()

    def written(self, token: int) -> None:
        """The batches up to `token` are on the disk here."""
        standing = self.standing
        standing.pending.written = token
        flight = self._flight
        acks: dict[str, list[tuple[int, int]]] = {}
        while flight and flight[0].token <= token:
            for partition, seq, generation in flight.popleft().parts:
                if generation == standing.generations[partition] and seq > standing.durable[partition]:
                    standing.durable[partition] = seq
                    if standing.phases[partition] >= MERGING:
                        self.lead.advance(partition)
                    elif standing.follows(partition) and not standing.planted.early_ack:
                        acks.setdefault(standing.leaders[partition], []).append((partition, seq))
        for node_id, entries in acks.items():
            standing.out.append((node_id, DURABLE, encode_sequences(standing.epoch, entries)))

    def join(self) -> None:
        """Batches that left when this node was alone have to be at the replicas of the new view as well."""
        standing = self.standing
        for flight in self._flight:
            parts = [(partition, standing.head_seqs[partition]) for partition in dict.fromkeys(flight.touched)]
            if parts and flight.token > standing.pending.committed:
                standing.pending.add(flight.token, parts, standing.now)
        newest: dict[int, bool] = {}
        for flight in reversed(self._flight):
            for partition, _seq, _generation in flight.parts:
                newest[partition] = True  # it left in a view before, and is known exactly
            for partition in flight.touched:
                if partition not in newest:
                    newest[partition] = True
                    head = standing.head_seqs[partition]
                    flight.parts.append((partition, head, standing.generations[partition]))
            flight.touched = []
        for partition in list(standing.writer.touched):
            newest[partition] = True
        for partition in range(standing.partitions):
            if partition not in newest and standing.phases[partition] == OPEN:
                standing.durable[partition] = standing.head_seqs[partition]

    def _seal_alone(self, batch: Batch, followed: list[tuple[int, int, int]]) -> None:
        standing = self.standing
        touched = standing.writer.taken
        epoch = standing.epoch
        for partition in touched:
            history = standing.histories[partition]
            if (not history or history[-1][0] != epoch) and standing.phases[partition] == OPEN:
                self._add_history(batch, partition)
        parts = followed
        if standing.away():
            for partition, ops in self._own_ops(batch).items():
                self._stamp(batch, partition, ops)
            # What begins anew as a side of a split is read from the store: it has to be there.
            parts = followed + [(p, standing.writer.sequence(p), standing.generations[p]) for p in touched]
        self._flight.append(_Flight(batch.token, touched, parts))

    def _stamp(self, batch: Batch, partition: int, ops: list[tuple[int, bytes, bytes]]) -> None:
        """Note when things changed, for a side of a split that may have changed them too."""
        standing = self.standing
        if standing.phases[partition] >= MERGING and not standing.planted.no_stamps:
            standing.stamps.learn(partition, ops)
            if standing.phases[partition] == MERGING:
                return  # when a merge writes a row says nothing of when it was changed: that comes with it
            epoch, seq = standing.writer.position(partition)
            version = u64(epoch) + u64(seq)
            ops.extend(standing.stamps.note(batch, version, partition, ops, standing.now))

    def _add_history(self, batch: Batch, partition: int) -> None:
        standing = self.standing
        history = standing.note_epoch(partition)
        if history:
            epoch, seq = standing.writer.position(partition)
            batch.put(history_key(partition), u64(epoch) + u64(seq) + history)

    def _seal_shared(self, batch: Batch, followed: list[tuple[int, int, int]]) -> None:
        standing = self.standing
        for partition in standing.writer.taken:
            if standing.phases[partition] >= MERGING:
                self._add_history(batch, partition)
        parts: list[tuple[int, int]] = []
        entries = followed
        away = standing.away()
        for partition, ops in self._own_ops(batch).items():
            if away:
                self._stamp(batch, partition, ops)
            epoch, seq = standing.writer.position(partition)
            parts.append((partition, seq))
            entries.append((partition, seq, standing.generations[partition]))
            head = standing.head_seqs[partition]
            if seq == head:
                continue  # it was this node's alone when the turn began: who joined since has been told to copy
            if standing.planted.clears_kept:
                ops = [op for op in ops if op[0] != DELETE or op[1][2] != RETAINED]
            change = Change(standing.head_epochs[partition], head, epoch, seq, encode_ops(ops))
            standing.recent.add(partition, change)
            standing.head_epochs[partition] = epoch
            standing.head_seqs[partition] = seq
            if standing.phases[partition] >= MERGING:
                self.lead.ship(partition, change)
        if parts:
            standing.pending.add(batch.token, parts, standing.now)
        self._flight.append(_Flight(batch.token, [], entries))

    def _own_ops(self, batch: Batch) -> dict[int, list[tuple[int, bytes, bytes]]]:
        """Return the operations of this node's own changes by partition, in order."""
        own: dict[int, list[tuple[int, bytes, bytes]]] = {}
        ops = batch.ops
        bounds = [0, *self.standing.writer.foreign, len(ops)]
        for number in range(0, len(bounds), 2):
            for index in range(bounds[number], bounds[number + 1]):
                key = ops[index][1]
                if key[2] == META:
                    continue
                partition = partition_of_key(key)
                group = own.get(partition)
                if group is None:
                    own[partition] = [ops[index]]
                else:
                    group.append(ops[index])
        return own

    def _ack_early(self) -> None:
        standing = self.standing
        for partition, seq, _generation in self._flight[-1].parts if self._flight else []:
            if standing.follows(partition):
                body = encode_sequences(standing.epoch, [(partition, seq)])
                standing.out.append((standing.leaders[partition], DURABLE, body))
