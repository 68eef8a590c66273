"""How long a device waits for acknowledgements. It has no clock: the caller passes times in seconds."""

from __future__ import annotations

from typing import Final

__all__ = ["Pauses"]

LEAST_S: Final = 0.02


class Pauses:
    """The waits of one device: from an acknowledgement (or, if nothing was unacknowledged, a publish) to the next one.

    While every message is acknowledged, the device does not wait. Waits below LEAST_S are not kept.
    """

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._waits: list[tuple[float, float]] = []

    def published(self, now_s: float) -> None:
        """A message was published."""
        if self._since_s is None:
            self._since_s = now_s

    def acknowledged(self, now_s: float, outstanding: int) -> None:
        """An acknowledgement arrived; `outstanding` messages have none yet."""
        if self._since_s is not None and now_s - self._since_s >= LEAST_S:
            self._waits.append((self._since_s, now_s))
        self._since_s = now_s if outstanding else None

    def longest_s(self, begin_s: float, end_s: float) -> float:
        """The longest wait that ended between the two times; 0 if all were below LEAST_S."""
        return max((end - begin for begin, end in self._waits if begin_s < end <= end_s), default=0.0)
