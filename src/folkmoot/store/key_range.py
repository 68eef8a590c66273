"""Ranges of keys as a set: whether a key is in it is found by bisection.

`starts` and `ends` are sorted, and number n of one belongs to number n of the other: starts[n] < ends[n], and
ends[n] < starts[n + 1]. So at most one range can have a key, the last one that starts at or before it, and ranges that
touch are one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

__all__ = ["KeyRanges"]


class KeyRanges:
    """Sorted ranges, each from its start to before its end, that neither overlap nor touch."""

    def __init__(self) -> None:
        self.starts: list[bytes] = []
        self.ends: list[bytes] = []

    def add(self, start: bytes, end: bytes) -> None:
        """Add the keys with start <= key < end."""
        if start >= end:
            return
        starts, ends = self.starts, self.ends
        # Those that it overlaps or touches end at or behind its start, and start at or before its end
        first, behind = bisect_left(ends, start), bisect_right(starts, end)
        if first < behind:
            start, end = min(start, starts[first]), max(end, ends[behind - 1])
        starts[first:behind] = [start]
        ends[first:behind] = [end]

    def around(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the range that has the key, or None."""
        number = bisect_right(self.starts, key) - 1
        if number < 0 or key >= self.ends[number]:
            return None
        return self.starts[number], self.ends[number]

    def overlaps(self, start: bytes, end: bytes) -> bool:
        """Whether a key with start <= key < end is in the set."""
        number = bisect_right(self.ends, start)  # the first range that ends behind `start`
        return number < len(self.starts) and self.starts[number] < end and start < end

    def pairs(self) -> list[tuple[bytes, bytes]]:
        """Return start and end of every range, in order."""
        return list(zip(self.starts, self.ends, strict=True))
