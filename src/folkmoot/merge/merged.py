"""Rows MERGED: the branches that a partition has taken in, or how far it has come with one."""

from __future__ import annotations

from folkmoot.kernel.pack import get_u64, u64
from folkmoot.membership.history import put_history, take_history
from folkmoot.membership.holding import COMPLETE, Holding
from folkmoot.peer.cursor import Cursor, put_bytes
from folkmoot.store.key import MERGED, kind_prefix
from folkmoot.store.writer import VERSION_BYTES

__all__ = ["decode_mark", "encode_mark", "mark_key"]


def mark_key(partition: int, holding: Holding) -> bytes:
    """Return the key of the row for a branch that ends there."""
    return kind_prefix(partition, MERGED) + u64(holding.epoch) + u64(holding.seq)


def encode_mark(holding: Holding, cursor: bytes) -> bytes:
    """Return the value of the row: the branch is taken in up to `cursor`."""
    return b"\1" + put_bytes(cursor) + put_history(holding.history)


def decode_mark(key: bytes, value: bytes) -> tuple[Holding, bytes]:
    """Read a row MERGED: the branch, and how far it has been taken in; raises ValueError."""
    if len(key) != 19 or value[VERSION_BYTES : VERSION_BYTES + 1] != b"\1":
        raise ValueError("the row of a merged branch has a format that this version does not read")
    reading = Cursor(value[VERSION_BYTES + 1 :], "the row of a merged branch")
    cursor = reading.bytes_()
    return Holding(COMPLETE, get_u64(key, 3), get_u64(key, 11), take_history(reading)), cursor
