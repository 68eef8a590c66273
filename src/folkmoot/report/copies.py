"""Reading stream partitions from replicas: a partition that another node leads is read from this node's complete copy.

Only the leader knows what is committed, so this node asks once for its bounds. The records within them are on the disks
of all replicas and never change (A9), so it reads them here without asking again. Bounds are valid in the view in which
they were given: in that view this node is a replica, and has no other records at these offsets.
"""

from __future__ import annotations

from folkmoot.kernel.errors import CorruptStore
from folkmoot.streams.log import StreamLog
from folkmoot.streams.page import Page
from folkmoot.turn.fabric import Fabric

__all__ = ["Copies"]


class _Bounds:
    """Bounds from the leader in a view: the records [oldest, end) can be read."""

    def __init__(self, epoch: int, oldest: int, end: int) -> None:
        self.epoch = epoch
        self.oldest = oldest
        self.end = end


class Copies:
    """The copies of one node, and their known bounds: one entry per stream partition."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._known: dict[tuple[str, int], _Bounds] = {}

    def holds(self, log: StreamLog) -> bool:
        """Whether this node is a replica of a stream partition."""
        return self.fabric.holds[log.store_partition]

    def learn(self, log: StreamLog, numbers: list[int]) -> bool:
        """Take the leader's answer to BOUNDS; return False when it is of another view, or of an earlier leader."""
        if len(numbers) < 6 or numbers[5] != self.fabric.epoch:
            return False
        self._known[_key(log)] = _Bounds(numbers[5], numbers[0], numbers[1])
        return True

    def covers(self, log: StreamLog, end: int) -> bool:
        """Whether all records before `end` are known to be readable."""
        bounds = self._bounds(log)
        return bounds is not None and end <= bounds.end

    def read(self, log: StreamLog, start: int, end: int, bytes_max: int) -> Page | None:
        """Return a page, see `StreamLog.read`, up to the known bounds; None when the leader must be asked.

        The leader reports wrong offsets, and has the records that this copy lacks.
        """
        bounds = self._bounds(log)
        if bounds is None or not self.holds(log) or not bounds.oldest <= start <= bounds.end:
            return None
        try:
            return log.read_copy(start, end, bounds.oldest, bounds.end, bytes_max)
        except CorruptStore:
            return None

    def _bounds(self, log: StreamLog) -> _Bounds | None:
        """Return the bounds from the leader of this view."""
        known = self._known.get(_key(log))
        return known if known is not None and known.epoch == self.fabric.epoch else None


def _key(log: StreamLog) -> tuple[str, int]:
    return log.config.name, log.index
