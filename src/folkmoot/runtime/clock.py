"""The clock of a node: the wall clock, except that it never stands still and never goes back.

If the wall clock is set back (after a boot with a wrong time, or when a virtual machine moves), no deadline of the node
would fall due until it has caught up, perhaps for hours: keep alive, delayed wills, expiry, retention. So the clock
then runs at half speed until the wall clock is ahead of it again. If the wall clock is set forward, it follows at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Clock"]


class Clock:
    """Microseconds since 1970; `read` costs one system call unless the wall clock was set back."""

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, steady_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall_ns = wall_ns
        self._steady_ns = steady_ns  # cannot be set
        self._now = 0
        self._behind = False
        self._from_us = 0  # where half speed began, and the steady clock at that moment
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
