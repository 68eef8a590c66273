"""Deadlines in a heap. Owns nothing but (time, kind, subject).

A deadline that no longer holds is skipped by whoever set it.
"""

from __future__ import annotations

from heapq import heappop, heappush

from folkmoot.kernel.clock import NEVER

__all__ = ["Timers"]


class Timers:
    """A heap of deadlines: equal times come out in the order in which they were set, so that runs reproduce.

    Nothing is cancelled. The subject carries the time that it waits for, and a deadline that comes at another
    time is stale: that costs an integer per subject instead of a search in the heap.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, object]] = []
        self._count = 0

    def set(self, due_us: int, kind: int, subject: object) -> None:
        """Ask for (due_us, kind, subject) to come out of `pop` at `due_us` or later; NEVER is ignored."""
        if due_us < NEVER:
            self._count += 1
            heappush(self._heap, (due_us, self._count, kind, subject))

    def next_due(self) -> int:
        """Return the earliest deadline in microseconds, or NEVER."""
        return self._heap[0][0] if self._heap else NEVER

    def pop(self, now: int) -> tuple[int, int, object] | None:
        """Return the earliest (due_us, kind, subject) that is due at `now`, or None."""
        if not self._heap or self._heap[0][0] > now:
            return None
        entry = heappop(self._heap)
        return entry[0], entry[2], entry[3]

    def __len__(self) -> int:
        return len(self._heap)
