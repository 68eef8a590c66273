"""Deadlines, one per (kind, subject). Reads no clock; a subject is a number or a name."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from folkmoot.kernel.clock import NEVER

__all__ = ["Timers"]

# With fewer stale entries than this, a sweep over the heap does not pay.
_IDLE_MIN: Final = 1024


class _Slot:
    """The deadline of one subject; `queued_us`: the time of its earliest entry in the heap."""

    def __init__(self, due_us: int) -> None:
        self.due_us = due_us
        self.queued_us = due_us


class Timers:
    """A heap of deadlines. Those with equal times come out in the order in which they entered, so that runs reproduce.

    Postponing is the most frequent call (every reconnect postpones the end of a session), and it costs nothing: the
    entry leaves the heap at its old time and is inserted again. Stale entries are swept when they are the majority, so
    that the memory is proportional to the number of active deadlines.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int | str]] = []
        self._slots: dict[tuple[int, int | str], _Slot] = {}
        self._count = 0
        self._idle = 0

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
            if len(self._heap) >= 2 * len(self._slots) + _IDLE_MIN:  # each advanced deadline leaves a stale entry
                self._sweep()

    def cancel(self, kind: int, subject: int | str) -> None:
        """Remove the deadline of (kind, subject), if there is one."""
        slot = self._slots.get((kind, subject))
        if slot is not None and slot.due_us < NEVER:
            slot.due_us = NEVER
            self._idle += 1
            if self._idle >= _IDLE_MIN and 2 * self._idle >= len(self._slots):
                self._sweep()

    def _push(self, due_us: int, kind: int, subject: int | str) -> None:
        self._count += 1
        heappush(self._heap, (due_us, self._count, kind, subject))

    def _sweep(self) -> None:
        kept: list[tuple[int, int, int, int | str]] = []
        for entry in self._heap:
            slot = self._slots.get((entry[2], entry[3]))
            if slot is not None and slot.due_us < NEVER and slot.queued_us == entry[0]:
                kept.append(entry)
        self._slots = {key: slot for key, slot in self._slots.items() if slot.due_us < NEVER}
        heapify(kept)
        self._heap = kept
        self._idle = 0

    def next_due(self) -> int:
        """Return a time at or before the earliest deadline in microseconds, or NEVER."""
        return self._heap[0][0] if self._heap else NEVER

    def pop(self, now: int) -> tuple[int, int | str] | None:
        """Remove and return the earliest (kind, subject) that is due at `now`; None if there is none."""
        while self._heap and self._heap[0][0] <= now:
            queued_us, _count, kind, subject = heappop(self._heap)
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
