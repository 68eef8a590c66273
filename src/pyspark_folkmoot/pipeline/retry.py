"""When to start a query again whose Python process did not start in time: with growing pauses, up to a limit."""

from __future__ import annotations

from typing import Final

__all__ = ["PATIENCE_S", "Retry"]

PATIENCE_S: Final = 600.0
"""Counted from the first failure: a machine may be busy for minutes. A completed batch resets it."""

_PAUSE_MAX_S: Final = 30.0


class Retry:
    """The starts of one query, at moments of a monotonic clock in seconds."""

    def __init__(self, now_s: float) -> None:
        self._until_s = now_s + PATIENCE_S
        self._next_s = now_s
        self._pause_s = 1.0

    def past(self, now_s: float) -> bool:
        """Whether it ran for so long since its start that another failure counts from zero."""
        return now_s >= self._next_s + PATIENCE_S

    def over(self, now_s: float) -> bool:
        """Whether it has failed for too long."""
        return now_s >= self._until_s

    def due(self, now_s: float) -> bool:
        """Whether it is due to be started."""
        return now_s >= self._next_s

    def started(self, now_s: float) -> None:
        """It was started: after another failure it waits twice as long as before."""
        self._next_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)
