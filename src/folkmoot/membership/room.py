"""Whether this node's disk has been full for so long that others should do what needs room.

Owns the delays in both directions, so that a disk near its limit does not move leaderships again and again: a node with
room again counts as such after a delay, which doubles each time that the disk is soon full again. Before a node is
up for the first time there is no delay: no node counts on it yet, and a disk that is full at the start was most likely
full before.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import SECOND

__all__ = ["Room"]

_HOLD_US_MAX: Final = 600 * SECOND
_SOON: Final = 10  # if it is full again within so many times the last delay, the next one is doubled


class Room:
    """What one node reports of the room on its disk; `lacks`: it should lead nothing, and get no new copies.

    fresh: it was not up since its start. wait_us: a disk that is full for this long lacks room; hold_us: one that
    has room again for this long, at least, does not.
    """

    def __init__(self, wait_us: int, hold_us: int) -> None:
        self.lacks: bool = False
        self.full: bool = False
        self.fresh: bool = True
        self._wait_us = wait_us
        self._hold_us_min = hold_us
        self._hold_us: int = 0  # the present delay; 0 before the first time
        self._since_us: int = -1  # since when the disk contradicts `lacks`
        self._ended_us: int = 0

    def look(self, now: int) -> bool:
        """Tell whether `lacks` has changed; to be called a few times a second."""
        if self.full == self.lacks:
            self._since_us = -1
            return False
        if self._since_us < 0:
            self._since_us = now
        patience_us = self._hold_us if self.lacks else self._wait_us
        if self.fresh and not self.lacks:
            patience_us = 0
        if now - self._since_us < patience_us:
            return False
        self.lacks = self.full
        self._since_us = -1
        if not self.lacks:
            self._ended_us = now
        elif self._hold_us and now - self._ended_us < _SOON * self._hold_us:
            self._hold_us = min(2 * self._hold_us, max(_HOLD_US_MAX, self._hold_us_min))
        else:
            self._hold_us = self._hold_us_min
        return True
