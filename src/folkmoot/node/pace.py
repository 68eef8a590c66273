"""How fast copies come to this node, and how much is left of them: figures that it tells others of itself."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import SECOND
from folkmoot.replica.copy import Copies

__all__ = ["Pace"]

_WINDOW_US: Final = SECOND


class Pace:
    """The copies of one node, second by second."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._since_us: int = 0
        self._seen: int = 0
        self._rate: int = 0

    def figures(self, now: int) -> dict[str, int]:
        """Return copy_left (bytes), copy_rate (bytes per second, found equal or copied); nothing when all is here."""
        copies = self._copies
        if not copies.active:
            self._since_us = 0
            self._rate = 0
            return {}
        if not self._since_us:
            self._since_us = now
            self._seen = copies.bytes_seen
        elif now - self._since_us >= _WINDOW_US:
            self._rate = (copies.bytes_seen - self._seen) * SECOND // (now - self._since_us)
            self._since_us = now
            self._seen = copies.bytes_seen
        return {"copy_left": copies.bytes_left(), "copy_rate": self._rate}
