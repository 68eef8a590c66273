"""Whether this node's disk or loop is slow but moves: a gray failure, of which heartbeats tell nothing.

Huang et al. (Gray Failure: The Achilles' Heel of Cloud-Scale Systems, HotOS 2017) call it differential observability:
clients suffer from a process that its monitor finds healthy. What clients wait for is the measure here: the share of
batches that became durable late. While it stays above a bound, the node should lead nothing that another one can lead
(`command.Strain`); when it has stayed well below for long, it may lead again. The delays are those of `room`, so a disk
that is slow again and again is trusted later each time.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.membership.room import Room

__all__ = ["Slowness"]

_WINDOW_US: Final = 10_000_000
_BATCHES_MIN: Final = 10  # in the window: fewer say nothing
_BEGIN_PERCENT: Final = 20  # late batches: the node is slow
_END_PERCENT: Final = 5


class Slowness:
    """The newest batches of one node; times are in microseconds.

    late_us: a batch that took longer is late. wait_us: for so long the share must be too high. hold_us: for so long, at
    least, it must be low again.
    """

    def __init__(self, late_us: int, wait_us: int, hold_us: int) -> None:
        assert late_us > 0, "a batch takes some time"
        self._late_us = late_us
        self._room = Room(wait_us, hold_us)
        self._room.fresh = False
        self._batches: deque[tuple[int, bool]] = deque()  # when each was durable, and whether it was late
        self._late: int = 0

    @property
    def is_slow(self) -> bool:
        """Whether this node should lead nothing that another one can lead."""
        return self._room.lacks

    def durable(self, took_us: int, now: int) -> None:
        """A batch has become durable, so long after it was given to the disk or could have been."""
        late = took_us > self._late_us
        self._batches.append((now, late))
        self._late += int(late)

    def look(self, now: int) -> bool:
        """Tell whether `is_slow` has changed; to be called a few times a second."""
        batches = self._batches
        while batches and now - batches[0][0] > _WINDOW_US:
            _at, late = batches.popleft()
            self._late -= int(late)
        assert 0 <= self._late <= len(batches), "late batches are batches"
        bound = _END_PERCENT if self._room.full else _BEGIN_PERCENT
        enough = len(batches) >= _BATCHES_MIN or self._room.full
        self._room.full = enough and self._late * 100 > bound * len(batches)
        return self._room.look(now)
