"""The encoding of a change of a partition: leader and followers write the same bytes, and keep them for a while.

A change leads from one position (epoch, sequence) to the next. The leader encodes it once.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from folkmoot.kernel.pack import get_varint
from folkmoot.store.batch import DELETE, DELETE_RANGE, PUT
from folkmoot.store.key import META, partition_of_key
from folkmoot.store.writer import VERSION_BYTES

__all__ = ["Change", "decode_changes", "decode_ops", "encode_change", "size_of"]

_HEAD: Final = Struct(">HQQQQI")  # partition, the position before, the position after, length of the operations


class Change:
    """From position (prev_epoch, prev_seq) to (epoch, seq); `body`: the operations, encoded by `store/batch`."""

    def __init__(self, prev_epoch: int, prev_seq: int, epoch: int, seq: int, body: bytes) -> None:
        self.prev_epoch = prev_epoch
        self.prev_seq = prev_seq
        self.epoch = epoch
        self.seq = seq
        self.body = body

    def __repr__(self) -> str:
        return f"Change({self.prev_epoch}:{self.prev_seq} to {self.epoch}:{self.seq}, {len(self.body)} bytes)"


def decode_ops(partition: int, data: bytes) -> list[tuple[int, bytes, bytes]]:
    """Read what `batch.encode_ops` wrote; raises ValueError, also for a row of another partition."""
    ops: list[tuple[int, bytes, bytes]] = []
    pos = 0
    end = len(data)
    try:
        while pos < end:
            kind = data[pos]
            length, start = get_varint(data, pos + 1)
            pos = start + length
            key = data[start:pos]
            value = b""
            if kind == PUT or kind == DELETE_RANGE:
                length, start = get_varint(data, pos)
                pos = start + length
                value = data[start:pos]
            elif kind != DELETE:
                raise ValueError(f"a change has an operation {kind}")
            if pos > end or len(key) < 3 or partition_of_key(key) != partition or key[2] == META:
                raise ValueError("a change has a row of another partition, or one that ends too early")
            if kind == PUT and len(value) < VERSION_BYTES:
                raise ValueError("a change has a row without a version")
            if kind == DELETE_RANGE and (len(value) < 3 or partition_of_key(value) != partition or value < key):
                raise ValueError("a change has a range of another partition")
            ops.append((kind, key, value))
    except IndexError:
        raise ValueError("a change ends too early") from None
    return ops


def size_of(ops: list[tuple[int, bytes, bytes]]) -> int:
    """Return the bytes of keys and values."""
    size = 0
    for _kind, key, value in ops:
        size += len(key) + len(value)
    return size


def encode_change(partition: int, change: Change) -> bytes:
    """Return a change as SHIP and TAIL contain it: partition, positions, length, operations."""
    head = _HEAD.pack(partition, change.prev_epoch, change.prev_seq, change.epoch, change.seq, len(change.body))
    return head + change.body


def decode_changes(data: bytes, pos: int, partitions: int) -> list[tuple[int, Change]]:
    """Read changes up to the end of `data`, each with its partition; raises ValueError."""
    changes: list[tuple[int, Change]] = []
    end = len(data)
    while pos < end:
        start = pos + _HEAD.size
        if start > end:
            raise ValueError("a frame of changes ends too early")
        head: tuple[int, int, int, int, int, int] = _HEAD.unpack_from(data, pos)
        partition, prev_epoch, prev_seq, epoch, seq, length = head
        change_end = start + length
        if change_end > end or partition >= partitions:
            raise ValueError("a frame of changes ends too early, or names an unknown partition")
        if seq <= prev_seq:
            raise ValueError("a change does not lead forward")
        changes.append((partition, Change(prev_epoch, prev_seq, epoch, seq, data[start:change_end])))
        pos = change_end
    return changes
