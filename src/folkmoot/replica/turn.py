"""The end of a turn, and of its write: changes leave, and what is durable is reported.

The changes of a turn are sent to the followers in the same turn in which they go to the disk here, so that all disks
work at the same time. A node that is alone pays for one look at each changed partition.
"""

from __future__ import annotations

from collections import deque

from folkmoot.kernel.pack import u64
from folkmoot.peer.kind import DURABLE
from folkmoot.replica.change import Change
from folkmoot.replica.lead import Lead
from folkmoot.replica.notice import encode_sequences
from folkmoot.replica.replica_states import MERGING, OPEN, ReplicaStates
from folkmoot.store.batch import DELETE, Batch, encode_ops
from folkmoot.store.key import META, RETAINED, history_key, partition_of_key

__all__ = ["Turns"]


class _Flight:
    """A batch on its way to the disk: its changes, as (partition, sequence, generation)."""

    def __init__(self, token: int, touched: list[int], parts: list[tuple[int, int, int]]) -> None:
        self.token = token
        self.touched = touched  # of a turn without followers
        self.parts = parts


class Turns:
    """Batches on their way to the disk."""

    def __init__(self, replica_states: ReplicaStates, lead: Lead) -> None:
        self.replica_states = replica_states
        self.lead = lead
        self._flight: deque[_Flight] = deque()

    def seal(self, batch: Batch | None) -> None:
        """End a turn: send its changes, and remember what to report when it is written."""
        replica_states = self.replica_states
        if batch is not None:
            followed = replica_states.followed
            replica_states.followed = []
            if replica_states.solo:
                self._seal_alone(batch, followed)
            else:
                self._seal_shared(batch, followed)
        if not replica_states.solo:
            self.lead.flush()
            if replica_states.planted.early_ack:
                self._ack_early()

    def written(self, token: int) -> None:
        """The batches up to `token` are on the disk here."""
        replica_states = self.replica_states
        replica_states.pending.written_token = token
        flight = self._flight
        acks: dict[str, list[tuple[int, int]]] = {}
        while flight and flight[0].token <= token:
            for partition, seq, generation in flight.popleft().parts:
                if generation == replica_states.generations[partition] and seq > replica_states.durable_seqs[partition]:
                    replica_states.durable_seqs[partition] = seq
                    if replica_states.phases[partition] >= MERGING:
                        self.lead.advance(partition)
                    elif replica_states.follows(partition) and not replica_states.planted.early_ack:
                        acks.setdefault(replica_states.leaders[partition], []).append((partition, seq))
        for node_id, entries in acks.items():
            replica_states.out.append((node_id, DURABLE, encode_sequences(replica_states.epoch, entries)))

    def join(self) -> None:
        """Make batches from before the view, when this node was alone, wait for the replicas of the new view too."""
        replica_states = self.replica_states
        for flight in self._flight:
            parts = [(partition, replica_states.head_seqs[partition]) for partition in dict.fromkeys(flight.touched)]
            if parts and flight.token > replica_states.pending.committed_token:
                replica_states.pending.add(flight.token, parts, replica_states.now)
        newest: dict[int, bool] = {}
        for flight in reversed(self._flight):
            for partition, _seq, _generation in flight.parts:
                newest[partition] = True  # written in an earlier view, its position is known exactly
            for partition in flight.touched:
                if partition not in newest:
                    newest[partition] = True
                    head = replica_states.head_seqs[partition]
                    flight.parts.append((partition, head, replica_states.generations[partition]))
            flight.touched = []
        for partition in list(replica_states.writer.touched):
            newest[partition] = True
        for partition in range(replica_states.partitions):
            if partition not in newest and replica_states.phases[partition] == OPEN:
                replica_states.durable_seqs[partition] = replica_states.head_seqs[partition]

    def _seal_alone(self, batch: Batch, followed: list[tuple[int, int, int]]) -> None:
        replica_states = self.replica_states
        touched = replica_states.writer.taken
        epoch = replica_states.epoch
        for partition in touched:
            history = replica_states.histories[partition]
            if (not history or history[-1][0] != epoch) and replica_states.phases[partition] == OPEN:
                self._add_history(batch, partition)
        self._flight.append(_Flight(batch.token, touched, followed))

    def _stamp(self, batch: Batch, partition: int, ops: list[tuple[int, bytes, bytes]]) -> None:
        """Record when rows changed, for another side of a split that may have changed them too."""
        replica_states = self.replica_states
        if replica_states.phases[partition] >= MERGING and not replica_states.planted.no_stamps:
            replica_states.stamps.learn(partition, ops)
            if replica_states.phases[partition] == MERGING:
                return  # the time of a merge is not the time of the change, which comes with the row
            epoch, seq = replica_states.writer.position(partition)
            version = u64(epoch) + u64(seq)
            ops.extend(
                replica_states.stamps.note(batch, version, partition, ops, replica_states.now + replica_states.shift_us)
            )

    def _add_history(self, batch: Batch, partition: int) -> None:
        replica_states = self.replica_states
        history = replica_states.note_epoch(partition)
        if history:
            epoch, seq = replica_states.writer.position(partition)
            batch.put(history_key(partition), u64(epoch) + u64(seq) + history)

    def _seal_shared(self, batch: Batch, followed: list[tuple[int, int, int]]) -> None:
        replica_states = self.replica_states
        for partition in replica_states.writer.taken:
            if replica_states.phases[partition] >= MERGING:
                self._add_history(batch, partition)
        parts: list[tuple[int, int]] = []
        entries = followed
        away = replica_states.away()
        for partition, ops in self._own_ops(batch).items():
            if away:
                self._stamp(batch, partition, ops)
            epoch, seq = replica_states.writer.position(partition)
            parts.append((partition, seq))
            entries.append((partition, seq, replica_states.generations[partition]))
            head = replica_states.head_seqs[partition]
            if seq == head:
                continue  # no follower had joined when the turn began: those that joined since have been told to copy
            if replica_states.planted.clears_kept:
                ops = [op for op in ops if op[0] != DELETE or op[1][2] != RETAINED]
            change = Change(replica_states.head_epochs[partition], head, epoch, seq, encode_ops(ops))
            replica_states.recent.add(partition, change)
            replica_states.head_epochs[partition] = epoch
            replica_states.head_seqs[partition] = seq
            if replica_states.phases[partition] >= MERGING:
                self.lead.ship(partition, change)
        if parts:
            replica_states.pending.add(batch.token, parts, replica_states.now)
        self._flight.append(_Flight(batch.token, [], entries))

    def _own_ops(self, batch: Batch) -> dict[int, list[tuple[int, bytes, bytes]]]:
        """Return the operations of this node's own changes by partition, in order."""
        own: dict[int, list[tuple[int, bytes, bytes]]] = {}
        ops = batch.ops
        bounds = [0, *self.replica_states.writer.raw_ranges, len(ops)]
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
        replica_states = self.replica_states
        for partition, seq, _generation in self._flight[-1].parts if self._flight else []:
            if replica_states.follows(partition):
                body = encode_sequences(replica_states.epoch, [(partition, seq)])
                replica_states.out.append((replica_states.leaders[partition], DURABLE, body))
