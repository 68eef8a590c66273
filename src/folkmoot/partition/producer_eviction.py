"""Eviction of idempotent producers: the rows of those that were silent for the longest time are deleted.

Names are free to choose, so without a limit anybody could fill the disk with them. When a partition has more than
`producers_max`, or more of one owner than its quota allows, a walk over these rows, a page per turn, finds the oldest
by their versions; then they are deleted, a page per turn.
"""

from __future__ import annotations

from folkmoot.store.key import PRODUCER, end_of, kind_prefix
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.turn.state import State

__all__ = ["ProducerEviction"]


class ProducerEviction:
    """One walk over the PRODUCER rows of a partition, and the old rows that it found.

    owner: only rows whose names begin so, empty: all; count_max: how many there may be.
    """

    def __init__(self, state: State, partition: int, owner: bytes, count_max: int) -> None:
        self.state = state
        self.partition = partition
        self.owner = owner
        self._count_max = count_max
        self._next = kind_prefix(partition, PRODUCER) + owner
        self._end = end_of(self._next)
        self._rows: list[tuple[bytes, bytes]] = []  # version, key
        self._complete = False

    def walk(self) -> bool:
        """Read a page of rows; True when all were read and `take` can be called."""
        if self._complete:
            return True
        page_rows = self.state.limits.page_rows
        rows = self.state.reader.scan(self._next, self._end, page_rows)
        for key, value in rows:
            self._rows.append((value[:VERSION_BYTES], key))
        if len(rows) == page_rows:
            self._next = rows[-1][0] + b"\0"
            return False
        self._complete = True
        # Delete a quarter more than necessary, so that the next walk is far away.
        surplus = len(self._rows) - max(self._count_max * 3 // 4, 1)
        self._rows.sort(reverse=True)
        del self._rows[: len(self._rows) - max(surplus, 0)]
        return True

    def take(self) -> list[bytes]:
        """Return the keys of a page of old rows that have not changed since; empty when none are left."""
        keys: list[bytes] = []
        while self._rows and len(keys) < self.state.limits.page_rows:
            version, key = self._rows.pop()
            value = self.state.reader.get(key)
            if value is not None and value[:VERSION_BYTES] == version:
                keys.append(key)
        return keys
