"""Reading stream partitions from copies: what another node leads and this one has whole is read from its own disk.

Only the leader knows what is committed, so its bounds are asked for once; what lies within them is on the disks of all
replicas and never changes (A9), so it is read here without asking again. Bounds count in the view in which they were
told: in that view this node is a replica, and has nothing else at these offsets.
"""

from __future__ import annotations

from folkmoot.kernel.errors import CorruptStore
from folkmoot.streams.log import StreamLog
from folkmoot.streams.page import Page
from folkmoot.turn.fabric import Fabric

__all__ = ["Copies"]


class _Bounds:
    """What the leader has told in a view: the records [oldest, end) can be read."""

    def __init__(self, epoch: int, oldest: int, end: int) -> None:
        self.epoch = epoch
        self.oldest = oldest
        self.end = end


class Copies:
    """The copies of one node, and what is known of their bounds: one note per stream partition."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._known: dict[tuple[str, int], _Bounds] = {}

    def holds(self, log: StreamLog) -> bool:
        """Whether this node is a replica of a stream partition."""
        return self.fabric.holds[log.store_partition]

    def learn(self, log: StreamLog, numbers: list[int]) -> bool:
        """Take the leader's answer to BOUNDS; return False when it is of another view, or of a node of before."""
        if len(numbers) < 6 or numbers[5] != self.fabric.epoch:
            return False
        self._known[_key(log)] = _Bounds(numbers[5], numbers[0], numbers[1])
        return True

    def covers(self, log: StreamLog, end: int) -> bool:
        """Whether it is known that all records before `end` can be read."""
        bounds = self._bounds(log)
        return bounds is not None and end <= bounds.end

    def read(self, log: StreamLog, start: int, end: int, bytes_max: int) -> Page | None:
        """Return a page, see `StreamLog.read`, up to what is known to be readable; None when the leader is to be asked.

        It says what is wrong with an offset, and has what this copy lacks.
        """
        bounds = self._bounds(log)
        if bounds is None or not self.holds(log) or not bounds.oldest <= start <= bounds.end:
            return None
        try:
            return log.read_copy(start, end, bounds.oldest, bounds.end, bytes_max)
        except CorruptStore:
            return None

    def _bounds(self, log: StreamLog) -> _Bounds | None:
        """Return what the leader has told in this view."""
        known = self._known.get(_key(log))
        return known if known is not None and known.epoch == self.fabric.epoch else None


def _key(log: StreamLog) -> tuple[str, int]:
    return log.config.name, log.index
