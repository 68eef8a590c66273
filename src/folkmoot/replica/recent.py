"""The newest changes of a partition in memory: a replica that lacks only these gets them instead of a copy."""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.replica.change import Change

__all__ = ["Recent", "RecentBudget"]

_CHANGE_BYTES: Final = 200  # overhead of a change beside its operations, approximately
_NOTHING_HELD: Final = 1 << 62


class RecentBudget:
    """What the changes of all partitions take; above `bytes_max` the oldest are evicted, whichever partition has them.

    held_bytes: the part that is held only because a replica may lack it.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.held_bytes = 0
        self._order: deque[tuple[Recent, Change]] = deque()

    def add(self, recent: Recent, change: Change) -> None:
        """Count a change, and evict what is too much."""
        self._order.append((recent, change))
        self.bytes += _size_of(change)
        while self.bytes - self.held_bytes > self.bytes_max:
            oldest, evicted = self._order.popleft()
            oldest.evict(evicted)

    def clear(self) -> None:
        """Nothing is remembered any more."""
        self._order.clear()
        self.bytes = self.held_bytes = 0


class Recent:
    """Changes of one partition in order, without gaps.

    Where this node leads, changes that a replica may lack are held beyond the budget (`hold`): without them a replica
    in sync would have to be filled again, and count for nothing meanwhile. The write backlog limits them; a merge waits
    while they take more than the budget.
    """

    def __init__(self, budget: RecentBudget) -> None:
        self.budget = budget
        self._changes: deque[Change] = deque()
        self._overdue: deque[Change] = deque()  # older than `_changes`, and held
        self._replicated_seq = _NOTHING_HELD

    def add(self, change: Change) -> None:
        """Remember the newest change."""
        newest = self._newest()
        assert newest is None or newest.seq == change.prev_seq, "changes are remembered without a gap"
        self._changes.append(change)
        self.budget.add(self, change)

    def restore(self, change: Change) -> None:
        """Remember a change that an earlier process has written; what it does not follow is forgotten."""
        if not self.leads_to(change.prev_epoch, change.prev_seq):
            self.clear()
        self.add(change)

    def leads_to(self, epoch: int, seq: int) -> bool:
        """Whether the newest change led to this position, or there is none."""
        newest = self._newest()
        return newest is None or (newest.epoch, newest.seq) == (epoch, seq)

    def _newest(self) -> Change | None:
        changes = self._changes or self._overdue
        return changes[-1] if changes else None

    def evict(self, change: Change) -> None:
        """Forget a change, the oldest of all partitions; one that is held stays beyond the budget."""
        if self._changes and self._changes[0] is change:  # else it was cleared
            self._changes.popleft()
            if change.seq > self._replicated_seq:
                self._overdue.append(change)
                self.budget.held_bytes += _size_of(change)
                return
        self.budget.bytes -= _size_of(change)

    def lead(self) -> None:
        """Begin to hold changes: this node leads the partition, and the positions of new followers are unknown."""
        if self._replicated_seq == _NOTHING_HELD:
            self._replicated_seq = 0

    def hold(self, seq: int) -> None:
        """Hold the changes after `seq`; all replicas have those before."""
        if seq > self._replicated_seq:
            self._replicated_seq = seq
            self._release(seq)

    def free(self) -> None:
        """Stop holding changes: this node does not lead the partition any more."""
        self._replicated_seq = _NOTHING_HELD
        self._release(_NOTHING_HELD)

    def _release(self, seq: int) -> None:
        while self._overdue and self._overdue[0].seq <= seq:
            size = _size_of(self._overdue.popleft())
            self.budget.bytes -= size
            self.budget.held_bytes -= size

    def clear(self) -> None:
        """Forget all changes: the next ones do not follow them."""
        self._release(_NOTHING_HELD)
        self._changes = deque()

    def drop(self) -> None:
        """Forget all changes, with those of all partitions (`RecentBudget.clear`)."""
        self._changes = deque()
        self._overdue.clear()

    def after(self, seq: int) -> list[Change] | None:
        """Return the changes after sequence `seq`, at least one; None when some are missing."""
        newest = self._newest()
        if newest is None or newest.seq <= seq:
            return None
        oldest = self._overdue[0] if self._overdue else self._changes[0]
        if oldest.prev_seq > seq:
            return None
        found: list[Change] = []
        for changes in (self._changes, self._overdue):
            for change in reversed(changes):
                if change.seq <= seq:
                    break
                found.append(change)
        found.reverse()
        return found if found[0].prev_seq == seq else None


def _size_of(change: Change) -> int:
    return len(change.body) + _CHANGE_BYTES
