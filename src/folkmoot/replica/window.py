"""What was changed between two positions of a partition: the rows that a comparison of two copies leaves out.

Two copies that are written all the time are never read at the same position. Each is read somewhere between a common
position and its own newest one. So rows that no change between the two has touched are, in both, as they were at the
common position. Owns nothing; `recent` remembers the changes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from folkmoot.kernel.pack import u32
from folkmoot.replica.change import decode_ops
from folkmoot.replica.recent import Recent
from folkmoot.store.batch import DELETE_RANGE

__all__ = ["Window", "page_sum", "row_sum", "sum_bytes", "window_of"]

_MASK: Final = (1 << 128) - 1


class Window:
    """Keys and ranges of keys that were changed."""

    def __init__(self) -> None:
        self.keys: dict[bytes, bool] = {}
        self.ranges: list[tuple[bytes, bytes]] = []

    def has(self, key: bytes) -> bool:
        """Whether a row was changed."""
        if key in self.keys:
            return True
        for start, end in self.ranges:
            if start <= key < end:
                return True
        return False

    def empty(self) -> bool:
        """Whether nothing was changed."""
        return not self.keys and not self.ranges


def window_of(recent: Recent, partition: int, after_seq: int, upto_seq: int) -> Window | None:
    """Return what was changed after one sequence and up to another; None when these changes are not remembered."""
    window = Window()
    if upto_seq <= after_seq:
        return window
    reached = after_seq
    for change in recent.after(after_seq) or []:
        if change.seq > upto_seq:
            break
        reached = change.seq
        for kind, key, value in decode_ops(partition, change.body):
            if kind == DELETE_RANGE:
                window.ranges.append((key, value))
            else:
                window.keys[key] = True
    return window if reached == upto_seq else None


def row_sum(key: bytes, value: bytes) -> int:
    """Return 128 bits that stand for a row, its version included."""
    return int.from_bytes(blake2b(u32(len(key)) + key + value, digest_size=16).digest(), "little")


def page_sum(rows: list[tuple[bytes, bytes]], window: Window) -> int:
    """Return the sum of the rows that are not in the window, modulo 2**128, so that rows can be subtracted later."""
    total: int = 0
    for key, value in rows:
        if not window.has(key):
            total += row_sum(key, value)
    return total & _MASK


def sum_bytes(total: int) -> bytes:
    """Return a sum as 16 bytes."""
    return (total & _MASK).to_bytes(16, "little")
