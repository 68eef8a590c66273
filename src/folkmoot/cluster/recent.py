"""The newest changes of each partition in memory: what a replica that lacks little is given, instead of a copy."""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.cluster.change import Change

__all__ = ["Recent"]

_CHANGE_BYTES: Final = 200  # what a change takes beside its operations, about


class Recent:
    """Changes in order, without gaps; the oldest of all partitions go first when they take more than `bytes_max`."""

    def __init__(self, partitions: int, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._changes: list[deque[Change]] = [deque() for _ in range(partitions)]
        self._order: deque[tuple[int, Change]] = deque()

    def add(self, partition: int, change: Change) -> None:
        """Remember the newest change of a partition."""
        changes = self._changes[partition]
        assert not changes or changes[-1].seq == change.prev_seq, "changes are remembered without a gap"
        changes.append(change)
        self._order.append((partition, change))
        self.bytes += len(change.body) + _CHANGE_BYTES
        while self.bytes > self.bytes_max:
            self._evict()

    def _evict(self) -> None:
        partition, change = self._order.popleft()
        self.bytes -= len(change.body) + _CHANGE_BYTES
        changes = self._changes[partition]
        if changes and changes[0] is change:  # else it was cleared
            changes.popleft()

    def clear(self, partition: int) -> None:
        """Forget the changes of a partition: what follows does not follow them."""
        self._changes[partition] = deque()

    def clear_all(self) -> None:
        """Forget all changes."""
        for partition in range(len(self._changes)):
            if self._changes[partition]:
                self._changes[partition] = deque()
        self._order.clear()
        self.bytes = 0

    def after(self, partition: int, seq: int) -> list[Change] | None:
        """Return the changes of a partition after sequence `seq`, at least one; None when they are not all here."""
        changes = self._changes[partition]
        if not changes or changes[0].prev_seq > seq or changes[-1].seq <= seq:
            return None
        found: list[Change] = []
        for change in reversed(changes):
            if change.seq <= seq:
                break
            found.append(change)
        found.reverse()
        return found if found[0].prev_seq == seq else None
