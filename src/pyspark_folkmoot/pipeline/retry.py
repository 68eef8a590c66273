"""When a query is started again whose Python process did not come up: later each time, and not for ever."""

from __future__ import annotations

from typing import Final

__all__ = ["PATIENCE_S", "Retry"]

PATIENCE_S: Final = 600.0
"""From the first failure: a machine may be busy for minutes. A batch that goes well ends the count."""

_PAUSE_MAX_S: Final = 30.0


class Retry:
    """The starts of one query, at moments of a monotonic clock in seconds."""

    def __init__(self, now_s: float) -> None:
        self._until_s = now_s + PATIENCE_S
        self._next_s = now_s
        self._pause_s = 1.0

    def past(self, now_s: float) -> bool:
        """Whether it ran for so long since it was started that another failure is a new story."""
        return now_s >= self._next_s + PATIENCE_S

    def over(self, now_s: float) -> bool:
        """Whether it has failed for too long."""
        return now_s >= self._until_s

    def due(self, now_s: float) -> bool:
        """Whether it is to be started now."""
        return now_s >= self._next_s

    def started(self, now_s: float) -> None:
        """It was: should it fail again, it has to wait, twice as long as the last time."""
        self._next_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)
