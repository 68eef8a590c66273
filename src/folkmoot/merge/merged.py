"""Rows MERGED: the branches that a partition has taken in, or how far it has come with one."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import get_u64, u64, varint
from folkmoot.membership.history import put_history, take_history
from folkmoot.membership.holding import COMPLETE, Holding
from folkmoot.peer.cursor import Cursor, put_bytes
from folkmoot.store.key import MERGED, kind_prefix
from folkmoot.store.writer import VERSION_BYTES

__all__ = ["TakenBranch", "decode_mark", "encode_mark", "mark_key"]

_LOGS_MAX: Final = 65_536  # stream logs of one partition


class TakenBranch:
    """A branch that was taken in up to `cursor`.

    ends: by stream log, the offset in the branch behind the last of its records. A longer copy of the branch may have
    rewritten their chunks together with later records.
    """

    def __init__(self, holding: Holding, cursor: bytes) -> None:
        self.holding = holding
        self.cursor = cursor
        self.ends: dict[bytes, int] = {}


def mark_key(partition: int, holding: Holding) -> bytes:
    """Return the key of the row for a branch that ends there."""
    return kind_prefix(partition, MERGED) + u64(holding.epoch) + u64(holding.seq)


def encode_mark(holding: Holding, cursor: bytes, ends: dict[bytes, int]) -> bytes:
    """Return the value of the row: the branch is taken in up to `cursor`; ends: see `TakenBranch`."""
    parts = [b"\2", put_bytes(cursor), put_history(holding.history), varint(len(ends))]
    for log, end in ends.items():
        parts += [put_bytes(log), varint(end)]
    return b"".join(parts)


def decode_mark(key: bytes, value: bytes) -> TakenBranch:
    """Read a row MERGED; raises ValueError."""
    form = value[VERSION_BYTES : VERSION_BYTES + 1]
    if len(key) != 19 or form not in (b"\1", b"\2"):
        raise ValueError("the row of a merged branch has a format that this version does not read")
    reading = Cursor(value[VERSION_BYTES + 1 :], "the row of a merged branch")
    cursor = reading.bytes_()
    taken = TakenBranch(Holding(COMPLETE, get_u64(key, 3), get_u64(key, 11), take_history(reading)), cursor)
    for _ in range(reading.count(_LOGS_MAX) if form == b"\2" else 0):  # an older build has noted no ends
        log = reading.bytes_()
        taken.ends[log] = reading.integer()
    return taken
