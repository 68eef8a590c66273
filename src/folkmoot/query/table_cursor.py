"""The start of the next page of a table: meaning and encoding. Readers of tables pass it on unread.

A malformed cursor raises ValueError: it comes from outside.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["TableCursor", "decode_cursor", "encode_cursor"]

_CARRY: Final = 16
_Packed = tuple[int, bytes, list[int]]


class TableCursor:
    """number: of the snapshot, at the node that keeps it; key: where to continue; carry: figures of unfinished rows."""

    def __init__(self, number: int, key: bytes, carry: list[int]) -> None:
        self.number = number
        self.key = key
        self.carry = carry

    def __repr__(self) -> str:
        return f"TableCursor({self.number} {self.key!r} {self.carry})"


def encode_cursor(cursor: TableCursor) -> bytes:
    """Return a cursor as bytes."""
    return msgspec.msgpack.encode((cursor.number, cursor.key, cursor.carry))


def decode_cursor(data: bytes) -> TableCursor:
    """Read a cursor; raises ValueError if it is malformed."""
    number, key, carry = msgspec.msgpack.decode(data, type=_Packed)
    if number < 0 or len(carry) > _CARRY or min(carry, default=0) < 0 or max(carry, default=0) >= 1 << 62:
        raise ValueError("the cursor of the table is invalid")
    return TableCursor(number, key, carry)
