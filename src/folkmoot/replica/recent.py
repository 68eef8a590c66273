"""The newest changes of each partition in memory: what a replica that lacks little is given, instead of a copy."""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.replica.change import Change

__all__ = ["Recent"]

_CHANGE_BYTES: Final = 200  # what a change takes beside its operations, about
_NOTHING_HELD: Final = 1 << 62


class Recent:
    """Changes in order, without gaps; the oldest of all partitions go first when they take more than `bytes_max`.

    Where this node leads, those that a replica may lack stay beyond that (`hold`): a replica in sync that could not be
    given them would have to be filled anew, and count for nothing meanwhile. They are as many as may wait for disks; a
    merge waits for them when they take more than `bytes_max` themselves.
    """

    def __init__(self, partitions: int, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.held_bytes = 0  # of these, what only stays because a replica may lack it
        self._changes: list[deque[Change]] = [deque() for _ in range(partitions)]
        self._order: deque[tuple[int, Change]] = deque()
        self._overdue: list[deque[Change]] = [deque() for _ in range(partitions)]  # before `_changes`, and held
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
        """This node leads a partition in a new view; if it did not before, what its replicas have is not known."""
        if self._replicated_seqs[partition] == _NOTHING_HELD:
            self._replicated_seqs[partition] = 0

    def hold(self, partition: int, seq: int) -> None:
        """All replicas of a partition that this node leads have its changes up to `seq`; later ones stay."""
        if seq > self._replicated_seqs[partition]:
            self._replicated_seqs[partition] = seq
            self._release(partition, seq)

    def free(self, partition: int) -> None:
        """This node leads the partition no more."""
        self._replicated_seqs[partition] = _NOTHING_HELD
        self._release(partition, _NOTHING_HELD)

    def _release(self, partition: int, seq: int) -> None:
        overdue = self._overdue[partition]
        while overdue and overdue[0].seq <= seq:
            size = _size_of(overdue.popleft())
            self.bytes -= size
            self.held_bytes -= size

    def clear(self, partition: int) -> None:
        """Forget the changes of a partition: what follows does not follow them."""
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
        """Return the changes of a partition after sequence `seq`, at least one; None when they are not all here."""
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
