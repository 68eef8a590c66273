"""The newest changes of each partition in memory: a replica that lacks only these gets them instead of a copy."""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.replica.change import Change

__all__ = ["Recent"]

_CHANGE_BYTES: Final = 200  # overhead of a change beside its operations, approximately
_NOTHING_HELD: Final = 1 << 62


class Recent:
    """Changes in order, without gaps; above `bytes_max` the oldest of all partitions are evicted.

    Of led partitions, changes that a replica may lack are held beyond that (`hold`): without them a replica in sync
    would have to be filled again, and count for nothing meanwhile. The write backlog limits them; a merge waits while
    they take more than `bytes_max`.
    """

    def __init__(self, partitions: int, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.held_bytes = 0  # the part that is held only because a replica may lack it
        self._changes: list[deque[Change]] = [deque() for _ in range(partitions)]
        self._order: deque[tuple[int, Change]] = deque()
        self._overdue: list[deque[Change]] = [deque() for _ in range(partitions)]  # older than `_changes`, and held
        self._replicated_seqs: list[int] = [_NOTHING_HELD] * partitions

    def add(self, partition: int, change: Change) -> None:
        """Remember the newest change of a partition."""
        newest = self._newest(partition)
        assert newest is None or newest.seq == change.prev_seq, "changes are remembered without a gap"
        self._changes[partition].append(change)
        self._order.append((partition, change))
        self.bytes += _size_of(change)
        while self.bytes - self.held_bytes > self.bytes_max:
            self._evict()

    def _newest(self, partition: int) -> Change | None:
        changes = self._changes[partition] or self._overdue[partition]
        return changes[-1] if changes else None

    def _evict(self) -> None:
        partition, change = self._order.popleft()
        changes = self._changes[partition]
        if changes and changes[0] is change:  # else it was cleared
            changes.popleft()
            if change.seq > self._replicated_seqs[partition]:
                self._overdue[partition].append(change)
                self.held_bytes += _size_of(change)
                return
        self.bytes -= _size_of(change)

    def lead(self, partition: int) -> None:
        """Begin to hold changes of a partition that this node leads; the positions of new followers are unknown."""
        if self._replicated_seqs[partition] == _NOTHING_HELD:
            self._replicated_seqs[partition] = 0

    def hold(self, partition: int, seq: int) -> None:
        """Hold the changes of a led partition after `seq`; all replicas have those before."""
        if seq > self._replicated_seqs[partition]:
            self._replicated_seqs[partition] = seq
            self._release(partition, seq)

    def free(self, partition: int) -> None:
        """Stop holding changes: this node does not lead the partition any more."""
        self._replicated_seqs[partition] = _NOTHING_HELD
        self._release(partition, _NOTHING_HELD)

    def _release(self, partition: int, seq: int) -> None:
        overdue = self._overdue[partition]
        while overdue and overdue[0].seq <= seq:
            size = _size_of(overdue.popleft())
            self.bytes -= size
            self.held_bytes -= size

    def clear(self, partition: int) -> None:
        """Forget the changes of a partition: the next ones do not follow them."""
        self._release(partition, _NOTHING_HELD)
        self._changes[partition] = deque()

    def clear_all(self) -> None:
        """Forget all changes."""
        for partition in range(len(self._changes)):
            if self._changes[partition]:
                self._changes[partition] = deque()
            self._overdue[partition].clear()
        self._order.clear()
        self.bytes = self.held_bytes = 0

    def after(self, partition: int, seq: int) -> list[Change] | None:
        """Return the changes of a partition after sequence `seq`, at least one; None when some are missing."""
        newest = self._newest(partition)
        if newest is None or newest.seq <= seq:
            return None
        oldest = self._overdue[partition][0] if self._overdue[partition] else self._changes[partition][0]
        if oldest.prev_seq > seq:
            return None
        found: list[Change] = []
        for changes in (self._changes[partition], self._overdue[partition]):
            for change in reversed(changes):
                if change.seq <= seq:
                    break
                found.append(change)
        found.reverse()
        return found if found[0].prev_seq == seq else None


def _size_of(change: Change) -> int:
    return len(change.body) + _CHANGE_BYTES
