"""How fast this node is filled, and how much is left: figures that it sends to others."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import SECOND
from folkmoot.replica.copy import Copies

__all__ = ["Pace"]

_WINDOW_US: Final = SECOND


class Pace:
    """The progress of one node's copies."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._since_us: int = 0
        self._seen: int = 0
        self._rate: int = 0

    def figures(self, now: int) -> dict[str, int]:
        """Return copy_left (bytes) and copy_rate (bytes per second, equal or copied); empty if nothing is missing."""
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
