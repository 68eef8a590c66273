"""The clocks of a machine: one that measures durations, and the wall clock, which anyone may set at any time.

Deadlines, load and silence are measured by the first one alone: no step of the wall clock closes a connection, looks
like lag, or makes another node silent. What the wall clock means for stored times is decided by
`folkmoot.kernel.node_clock`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

__all__ = ["Clock", "next_beat"]

# It goes on while the machine is suspended, so that the node notices; only Linux has it.
_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", None)
_STEP_US: Final = 1000
"""A smaller step of the wall clock is not worth a report."""


def next_beat(time_s: float, period_s: float) -> float:
    """Return the next multiple of a period; one that is a hundredth of it away, or less, has come.

    What is done periodically is done at such times, so that an idle process wakes up once for all of it.
    """
    return (math.floor(time_s / period_s + 0.01) + 1) * period_s


def _steady_ns() -> Callable[[], int]:
    """Return the function that reads the monotonic clock, the one that counts suspended time if there is one."""
    if _BOOTTIME is None:
        return time.monotonic_ns
    number = _BOOTTIME
    try:
        time.clock_gettime_ns(number)
    except OSError:  # a kernel that does not know it
        return time.monotonic_ns
    return lambda: time.clock_gettime_ns(number)


class Clock:
    """Microseconds: `read` begins at the wall clock of the start and is monotonic; `wall` is the time since 1970."""

    def __init__(self, wall_ns: Callable[[], int] | None = None, steady_ns: Callable[[], int] | None = None) -> None:
        self._wall_ns = time.time_ns if wall_ns is None else wall_ns
        self._steady_ns = _steady_ns() if steady_ns is None else steady_ns
        self._anchor_us = self._wall_ns() // 1000 - self._steady_ns() // 1000
        self._told_us = 0  # by how much the wall clock was ahead of `read` when that was reported

    def read(self) -> int:
        """Return the time for deadlines; it costs one system call."""
        return self._steady_ns() // 1000 + self._anchor_us

    def read_ns(self) -> int:
        """Return the same time in nanoseconds, for leases."""
        return self._steady_ns() + self._anchor_us * 1000

    def wall(self) -> int:
        """Return the wall clock."""
        return self._wall_ns() // 1000

    def has_stepped(self) -> bool:
        """Whether the wall clock was set since the last call that said so, or since the start.

        Of two readings that were interrupted in between nothing follows: the next call decides.
        """
        before = self.read()
        ahead_us = self.wall() - before
        if abs(ahead_us - self._told_us) < _STEP_US or self.read() - before >= _STEP_US:
            return False
        self._told_us = ahead_us
        return True
