"""The newest request of an origin that a partition has applied (row MARK), and of an app with transactions, when.

A row is the number (8 bytes), then for an app the time (8 bytes) at which its newest message was applied. Rows of apps
that an earlier version has written lack the time, and an earlier version reads the number alone.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import get_u64, u64
from folkmoot.store.writer import VERSION_BYTES

__all__ = ["encode_mark", "mark_number", "mark_used_us", "merge_marks"]

_USED_AT: Final = VERSION_BYTES + 8


def encode_mark(number: int, used_us: int) -> bytes:
    """Return the body of a row; used_us: 0 = no time is kept."""
    return u64(number) + u64(used_us) if used_us else u64(number)


def mark_number(value: bytes) -> int:
    """Return the number in a row, its version included."""
    return get_u64(value, VERSION_BYTES)


def mark_used_us(value: bytes) -> int:
    """Return the time in a row, its version included; 0: it has none."""
    return get_u64(value, _USED_AT) if len(value) > _USED_AT else 0


def merge_marks(one: bytes, other: bytes) -> bytes:
    """Return the body for a partition of which two sides have these rows: the greater number and the later time."""
    number = max(mark_number(one), mark_number(other))
    return encode_mark(number, max(mark_used_us(one), mark_used_us(other)))
