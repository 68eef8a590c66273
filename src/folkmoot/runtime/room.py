"""Monitoring of free disk space: periodically, and after every few megabytes written.

Owns when to check, and when the store reclaims the space of deleted rows. The node decides what a full disk means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from folkmoot.runtime.commit import Committer
    from folkmoot.runtime.disk import Disk
    from folkmoot.runtime.loop import Turns

__all__ = ["LOOK_BYTES", "RoomWatch"]

LOOK_BYTES: Final = 4 << 20
# A flush costs up to one memtable of the space that is short, so it is rare; but it must follow a queue that drains.
RECLAIM_S: Final = 5.0


class RoomWatch:
    """Reports to the turns whether there is room; `look` costs one system call."""

    def __init__(self, disk: Disk, turns: Turns, committer: Committer, time: Callable[[], float]) -> None:
        self._disk = disk
        self._turns = turns
        self._committer = committer
        self._time = time
        self._bytes = 0
        self._reclaimed = 0  # the token of the newest batch whose deletions are followed up
        self._reclaim_s = 0.0
        self._low = False

    def add(self, size: int) -> None:
        """Count bytes that were submitted to the store."""
        self._bytes += size
        if self._bytes >= LOOK_BYTES:
            self.look()

    def look(self) -> None:
        """Compare the free space with the minimum; submitted batches count as written."""
        self._bytes = 0
        turns = self._turns
        waiting = turns.node.counters.commit_waiting_bytes
        low = self._disk.is_low(waiting)
        if low != self._low and not turns.halted:
            self._low = low
            turns.ask(turns.node.disk_low, low)
        why = self._disk.shortage(waiting)
        turns.storage("space", why)
        if why and turns.durable > self._reclaimed and self._time() >= self._reclaim_s:
            self._reclaimed = turns.durable
            self._reclaim_s = self._time() + RECLAIM_S
            self._committer.reclaim()
