"""Deadlines, one per (kind, subject). Reads no clock; a subject is a number or a name."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from folkmoot.kernel.clock import NEVER

__all__ = ["Timers"]

# With fewer stale entries than this, a sweep over the heap does not pay.
_IDLE_MIN: Final = 1024
# Entries that one call sweeps: a sweep of n entries ends after n / 8 calls, long before the next one can begin.
_SWEPT_PER_CALL: Final = 8
# Entries that one `pop` takes off the heap: a hundred thousand cancelled deadlines may have had the same time.
_POPPED_MAX: Final = 64


class _Slot:
    """The deadline of one subject; `queued_us`: the time of its earliest entry in the heap."""

    def __init__(self, due_us: int) -> None:
        self.due_us = due_us
        self.queued_us = due_us


class Timers:
    """A heap of deadlines. Those with equal times come out in the order in which they entered, so that runs reproduce.

    Postponing is the most frequent call (every reconnect postpones the end of a session), and it costs nothing: the
    entry leaves the heap at its old time and is inserted again. Stale entries are swept when they are the majority, so
    that the memory is proportional to the number of active deadlines. No call takes more than `_POPPED_MAX` steps of
    the heap: a sweep goes on in the calls that follow, and moves what is not stale into another heap, entry by entry
    from the end of the old one, which is a heap all the time.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int | str]] = []
        self._unswept: list[tuple[int, int, int, int | str]] = []  # the heap before the sweep that is not complete yet
        self._slots: dict[tuple[int, int | str], _Slot] = {}
        self._count = 0
        self._idle = 0
        self.steps = 0  # entries that were pushed, popped or swept so far

    def set(self, due_us: int, kind: int, subject: int | str) -> None:
        """Set the deadline of (kind, subject) to `due_us`; it replaces an earlier one."""
        if due_us >= NEVER:
            self.cancel(kind, subject)
            return
        slot = self._slots.get((kind, subject))
        if slot is None:
            self._slots[(kind, subject)] = _Slot(due_us)
            self._push(due_us, kind, subject)
            return
        if slot.due_us >= NEVER:
            self._idle -= 1
        slot.due_us = due_us
        if due_us < slot.queued_us:
            slot.queued_us = due_us
            self._push(due_us, kind, subject)
            # Each deadline that is brought forward leaves a stale entry.
            if not self._unswept and len(self._heap) >= 2 * len(self._slots) + _IDLE_MIN:
                self._begin_sweep()

    def cancel(self, kind: int, subject: int | str) -> None:
        """Remove the deadline of (kind, subject), if there is one."""
        slot = self._slots.get((kind, subject))
        if slot is not None and slot.due_us < NEVER:
            slot.due_us = NEVER
            self._idle += 1
            if self._unswept:
                self._sweep()
            elif self._idle >= _IDLE_MIN and 2 * self._idle >= len(self._slots):
                self._begin_sweep()

    def _push(self, due_us: int, kind: int, subject: int | str) -> None:
        self._count += 1
        self.steps += 1
        heappush(self._heap, (due_us, self._count, kind, subject))
        if self._unswept:
            self._sweep()

    def _begin_sweep(self) -> None:
        self._unswept = self._heap
        self._heap = []
        self._sweep()

    def _sweep(self) -> None:
        """Move some entries that are not stale into the new heap; drop the others, and slots without a deadline."""
        for _ in range(min(_SWEPT_PER_CALL, len(self._unswept))):
            entry = self._unswept.pop()
            self.steps += 1
            slot = self._slots.get((entry[2], entry[3]))
            if slot is None or slot.queued_us != entry[0]:
                continue
            if slot.due_us < NEVER:
                heappush(self._heap, entry)
            else:
                self._idle -= 1
                del self._slots[(entry[2], entry[3])]

    def next_due(self) -> int:
        """Return a time at or before the earliest deadline in microseconds, or NEVER."""
        due_us = self._heap[0][0] if self._heap else NEVER
        return min(due_us, self._unswept[0][0]) if self._unswept else due_us

    def _first(self) -> list[tuple[int, int, int, int | str]]:
        """Return the heap with the earliest entry."""
        if self._unswept and (not self._heap or self._unswept[0] < self._heap[0]):
            return self._unswept
        return self._heap

    def pop(self, now: int) -> tuple[int, int | str] | None:
        """Remove and return the earliest (kind, subject) that is due at `now`.

        None: there is none, or there are many stale entries before it; then `next_due` is not after `now`.
        """
        for _ in range(_POPPED_MAX):
            heap = self._first()
            if not heap or heap[0][0] > now:
                break
            self.steps += 1
            queued_us, _count, kind, subject = heappop(heap)
            slot = self._slots.get((kind, subject))
            if slot is None or slot.queued_us != queued_us:
                continue  # a stale entry
            if slot.due_us <= now:
                del self._slots[(kind, subject)]
                return kind, subject
            if slot.due_us >= NEVER:
                self._idle -= 1
                del self._slots[(kind, subject)]
            else:
                slot.queued_us = slot.due_us
                self._push(slot.due_us, kind, subject)
        return None

    def __len__(self) -> int:
        """Return the number of active deadlines."""
        return len(self._slots) - self._idle
