"""The time that a node is given: the wall clock, but one that never stands still and never goes back.

A wall clock that is set back (a wrong one after a boot, a virtual machine that moved) would stop every deadline of the
node until it has caught up, for hours perhaps: dead connections, delayed wills, expiries, retention. So time then goes
on at half its speed until the wall clock is ahead again. A wall clock that is set forward is followed at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Clock"]


class Clock:
    """Microseconds since 1970; `read` costs one call of the system unless the wall clock was set back."""

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, steady_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall_ns = wall_ns
        self._steady_ns = steady_ns  # cannot be set
        self._now = 0
        self._behind = False
        self._from_us = 0  # where the time at half speed began, and when by the steady clock
        self._from_ns = 0

    def read(self) -> int:
        """Return the time in microseconds."""
        wall = self._wall_ns() // 1000
        if not self._behind:
            if wall >= self._now:
                self._now = wall
                return wall
            self._behind = True
            self._from_us = self._now
            self._from_ns = self._steady_ns()
        slow = self._from_us + (self._steady_ns() - self._from_ns) // 2000
        self._behind = slow > wall
        self._now = max(slow, wall)
        return self._now
