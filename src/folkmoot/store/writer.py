"""The rows of the current turn: gives each the version of its change, and collects them in one batch.

A change is what one turn does to one partition: (partition, epoch, sequence, rows). It is the unit of replication.
Rows from another node already have their versions and go into the same batch unchanged.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import U16, get_u64, u64
from folkmoot.store.batch import Batch
from folkmoot.store.key import META, kind_of, partition_of_key, position_key
from folkmoot.store.position import SLOTS, Positions, encode_head, is_full

__all__ = ["VERSION_BYTES", "Writer", "body_of", "version_of"]

VERSION_BYTES: Final = 16
"""Every row value starts with the epoch and sequence of the change that wrote it, 8 bytes each."""

_NO_VERSION: Final = b"\0" * VERSION_BYTES
_STATES: Final[list[bytes]] = [bytes([n]) for n in range(256)]


def version_of(value: bytes) -> tuple[int, int]:
    """Return (epoch, sequence) of the change that wrote the row."""
    return get_u64(value, 0), get_u64(value, 8)


def body_of(value: bytes) -> bytes:
    """Return the row value without its version."""
    return value[VERSION_BYTES:]


class Writer:
    """Collects the rows of a turn; `take` ends the turn.

    After `restore`, sequences continue across starts and epochs, and every batch holds the positions of the partitions
    that it changes. Without it, sequences start at 1, and the caller must begin a new epoch at every start so that
    versions only grow.
    """

    def __init__(self, partitions: int, epoch: int) -> None:
        self.epoch = epoch
        self.batch = Batch(1)
        self.rows = 0  # added in this turn; whoever ends turns sets it to 0
        self.states: list[int] = [0] * partitions  # stored with the positions; the cluster defines the numbers
        self.touched: list[int] = []  # partitions that this turn has changed; may contain duplicates
        self.taken: list[int] = []  # the partitions that the last batch has changed
        self.raw_ranges: list[int] = []  # ranges of `raw` rows in the last batch: start, end, start, ...
        self._raw_ranges: list[int] = []
        self._epoch_bytes = u64(epoch)
        self._sequences: list[int] = [0] * partitions
        self._versions: list[bytes] = [b""] * partitions
        self._newest: list[bytes] = [_NO_VERSION] * partitions
        self._split = 0
        self._counter = -1
        self._marked = False

    @property
    def token(self) -> int:
        """The token of the batch that the current turn fills."""
        return self.batch.token

    @property
    def dirty(self) -> bool:
        """Whether the current turn has changed a row."""
        return bool(self.batch.ops)

    def restore(self, positions: Positions) -> None:
        """Continue from these positions, and store positions from now on; call it before the first change."""
        assert not self.batch.ops, "positions must be restored before the first change"
        self._counter = positions.counter
        for partition in range(len(self._sequences)):
            self.states[partition] = positions.states[partition]
            self._sequences[partition] = positions.sequences[partition]
            self._newest[partition] = u64(positions.epochs[partition]) + u64(positions.sequences[partition])

    def enter(self, epoch: int) -> None:
        """Begin `epoch`: later changes belong to it."""
        self.split()
        self.epoch = epoch
        self._epoch_bytes = u64(epoch)

    def sequence(self, partition: int) -> int:
        """Return the sequence of the newest change of `partition`, including that of the current turn."""
        return self._sequences[partition]

    def position(self, partition: int) -> tuple[int, int]:
        """Return (epoch, sequence) of the newest change of `partition`, including that of the current turn."""
        return version_of(self._newest[partition])

    def version(self, partition: int) -> bytes:
        """Return the version of this turn's change of `partition`; begins the change if there is none yet."""
        version = self._versions[partition]
        if not version:
            sequence = self._sequences[partition] + 1
            self._sequences[partition] = sequence
            version = self._epoch_bytes + u64(sequence)
            self._versions[partition] = version
            self.batch.begins.append((partition, self._newest[partition], len(self.batch.ops)))
            self._newest[partition] = version
            self.touched.append(partition)
        return version

    def put(self, partition: int, key: bytes, body: bytes) -> None:
        """Set the row at `key` of `partition` to the change's version followed by `body`."""
        self.rows += 1
        self.batch.put(key, self.version(partition) + body)

    def delete(self, partition: int, key: bytes) -> None:
        """Remove the row at `key` of `partition`."""
        self.rows += 1
        self.version(partition)
        self.batch.delete(key)

    def expire(self, partition: int, key: bytes) -> None:
        """Remove the row at `key` of `partition` because its time is over: nobody has changed it (`merge/stamp`)."""
        self.delete_range(partition, key, key + b"\0")

    def delete_range(self, partition: int, start: bytes, end: bytes) -> None:
        """Remove the rows of `partition` with start <= key < end."""
        self.rows += 1
        self.version(partition)
        self.batch.delete_range(start, end)

    def private(self, key: bytes, body: bytes) -> None:
        """Set a row of the node itself (kind META): it belongs to no partition and to no change."""
        self.batch.put(key, self._epoch_bytes + bytes(8) + body)

    def private_delete(self, key: bytes) -> None:
        """Remove a row of the node itself."""
        assert kind_of(key) == META, "rows of partitions are removed by `delete`"
        self.batch.delete(key)

    def private_delete_range(self, start: bytes, end: bytes) -> None:
        """Remove the rows of the node itself with start <= key < end."""
        assert kind_of(start) == META, "rows of partitions are removed by `delete_range`"
        self.batch.delete_range(start, end)

    def raw(self, ops: list[tuple[int, bytes, bytes]], size: int) -> int:
        """Append operations from another node, unchanged; `size`: bytes of their keys and values.

        Returns the number of their range among those of the turn (`raw_ranges`).
        """
        start = len(self.batch.ops)
        self.batch.ops.extend(ops)
        self.batch.bytes += size
        self.batch.copied_bytes += size
        self._raw_ranges.append(start)
        self._raw_ranges.append(len(self.batch.ops))
        return len(self._raw_ranges) // 2 - 1

    def adopt(self, partition: int, epoch: int, sequence: int, state: int) -> None:
        """Set the position of `partition` to one that another node assigned; it holds with this batch."""
        self._sequences[partition] = sequence
        self._newest[partition] = u64(epoch) + u64(sequence)
        self._versions[partition] = b""
        self.states[partition] = state
        self.touched.append(partition)
        self._marked = True

    def drop(self, partitions: dict[int, bool]) -> None:
        """Forget the changes that this turn has made to these partitions; operations from other nodes stay."""
        batch = self.batch
        ops: list[tuple[int, bytes, bytes]] = []
        ranges: list[int] = []
        moved: list[int] = []  # by index of an operation, or behind the last one: its new index
        for index in range(len(batch.ops) + 1):
            moved.append(len(ops))
            while len(ranges) < len(self._raw_ranges) and self._raw_ranges[len(ranges)] == index:
                ranges.append(len(ops))
            if index == len(batch.ops):
                break
            op = batch.ops[index]
            raw = len(ranges) % 2 == 1
            if raw or kind_of(op[1]) == META or partition_of_key(op[1]) not in partitions:
                ops.append(op)
            else:
                batch.bytes -= len(op[1]) + len(op[2])
        batch.ops = ops
        self._raw_ranges = ranges
        begins: list[tuple[int, bytes, int]] = []
        for partition, before, index in reversed(batch.begins):
            if partition in partitions:
                self._newest[partition] = before
                self._sequences[partition] = get_u64(before, 8)
                self._versions[partition] = b""
            else:
                begins.append((partition, before, moved[index]))
        begins.reverse()
        batch.begins = begins
        self._split -= sum([1 for partition in self.touched[: self._split] if partition in partitions])
        self.touched = [partition for partition in self.touched if partition not in partitions]

    def split(self) -> None:
        """End the changes so far: rows that come later in this turn belong to later changes."""
        touched = self.touched
        for number in range(self._split, len(touched)):
            self._versions[touched[number]] = b""
        self._split = len(touched)

    def take(self) -> Batch | None:
        """End the turn: return its batch, or None if it changed nothing; the next turn then has the same token."""
        if not self.batch.ops and not self._marked:
            return None
        batch = self.batch
        self.split()
        if self._counter >= 0 and self.touched:
            self._tell_positions()
        self.taken = self.touched
        self.touched = []
        self.raw_ranges = self._raw_ranges
        self._raw_ranges = []
        self._split = 0
        self._marked = False
        self.batch = Batch(batch.token + 1)
        return batch

    def skip(self) -> None:
        """End a turn without rows that needs a token of its own."""
        assert not self.batch.ops, "a turn with rows must end with `take`"
        assert not self._marked, "a turn with positions must end with `take`"
        self.batch = Batch(self.batch.token + 1)

    def _tell_positions(self) -> None:
        counter = self._counter
        self._counter = counter + 1
        parts: list[bytes] = [encode_head(counter)]
        if is_full(counter):
            parts.extend(
                [
                    U16[partition] + _STATES[self.states[partition]] + self._newest[partition]
                    for partition in range(len(self._newest))
                    if self.states[partition] or self._newest[partition] != _NO_VERSION
                ]
            )
        else:
            states = self.states
            newest = self._newest
            for partition in self.touched:
                parts.append(U16[partition])
                parts.append(_STATES[states[partition]])
                parts.append(newest[partition])
        self.batch.put(position_key(counter % SLOTS), b"".join(parts))
