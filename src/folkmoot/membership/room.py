"""Whether this node's disk has been without room for so long that others should do what needs room.

Owns the patience in both directions, so that a disk at the border costs no view after the other: a node that has room
again is believed after a while, and after a longer while each time that it soon had none again. Before its first
view a node has none: nobody counts on it yet, and a disk that is full at a start was full before, most likely.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import SECOND

__all__ = ["Room"]

_HOLD_US_MAX: Final = 600 * SECOND
_SOON: Final = 10  # who is full again within so many times its last hold has to hold out for twice as long


class Room:
    """What one node tells others of the room on its disk; `lacks`: it should lead nothing, and be given no new copies.

    fresh: it has had no view since its start. wait_us: full for so long, it lacks room; hold_us: it has room again for
    so long, at least, it lacks none.
    """

    def __init__(self, wait_us: int, hold_us: int) -> None:
        self.lacks: bool = False
        self.full: bool = False
        self.fresh: bool = True
        self._wait_us = wait_us
        self._hold_us_min = hold_us
        self._hold_us: int = 0  # as long as it takes now; 0 before the first time
        self._since_us: int = -1  # since when the disk is other than `lacks` says
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
