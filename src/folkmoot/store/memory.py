"""A store in memory, for the durable half of the simulated disk and for tests. Applies batches atomically."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from typing import Final

from folkmoot.kernel.errors import SnapshotGone
from folkmoot.store.batch import DELETE, DELETE_RANGE, PUT, Batch
from folkmoot.store.reader import Reader, Snapshot

__all__ = ["MemoryStore"]

_LOG_BYTES: Final = 4 << 20


class MemoryStore(Reader):
    """Sorted keys and a dict of values; and the newest batches, as a commit log has them."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._values: dict[bytes, bytes] = {}
        self._log: deque[tuple[list[tuple[int, bytes, bytes]], int]] = deque()  # with their bytes
        self._log_bytes = 0

    def apply(self, batch: Batch) -> None:
        """Apply all operations of `batch`, in order."""
        self._note(batch)
        for kind, key, value in batch.ops:
            if kind == PUT:
                if key not in self._values:
                    insort(self._keys, key)
                self._values[key] = value
            elif kind == DELETE:
                if self._values.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]
            else:
                assert kind == DELETE_RANGE
                self._delete_range(key, value)

    def _note(self, batch: Batch) -> None:
        size = sum([len(key) + len(value) for _kind, key, value in batch.ops])
        self._log.append((batch.ops, size))
        self._log_bytes += size
        while self._log_bytes > _LOG_BYTES:
            self._log_bytes -= self._log.popleft()[1]

    def logged(self, bytes_max: int) -> Iterator[list[tuple[int, bytes, bytes]]]:
        """Yield the newest batches, see `Reader.logged`."""
        first = len(self._log)
        size = 0
        while first and size + self._log[first - 1][1] <= bytes_max:
            first -= 1
            size += self._log[first][1]
        return iter([self._log[number][0] for number in range(first, len(self._log))])

    def _delete_range(self, start: bytes, end: bytes) -> None:
        low = bisect_left(self._keys, start)
        high = bisect_left(self._keys, end)
        for key in self._keys[low:high]:
            del self._values[key]
        del self._keys[low:high]

    def get(self, key: bytes) -> bytes | None:
        """Return the value at `key`, or None."""
        return self._values.get(key)

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` rows with start <= key < end, in key order."""
        low = bisect_left(self._keys, start)
        rows: list[tuple[bytes, bytes]] = []
        while low < len(self._keys) and len(rows) < limit:
            key = self._keys[low]
            if key >= end:
                break
            rows.append((key, self._values[key]))
            low += 1
        return rows

    def bytes_between(self, start: bytes, end: bytes) -> int:
        """Return the bytes of the rows with start <= key < end."""
        keys = self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]
        return sum([len(key) + len(self._values[key]) for key in keys])

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the row with the greatest key in start <= key < end, or None."""
        position = bisect_left(self._keys, end) - 1
        if position < 0 or self._keys[position] < start:
            return None
        key = self._keys[position]
        return key, self._values[key]

    def snapshot(self) -> Snapshot:
        """Return a copy of the rows."""
        return _Copy(self.copy())

    def items(self) -> list[tuple[bytes, bytes]]:
        """Return all rows in key order."""
        return [(key, self._values[key]) for key in self._keys]

    def copy(self) -> MemoryStore:
        """Return an independent store with the same rows."""
        other = MemoryStore()
        other._keys = list(self._keys)
        other._values = dict(self._values)
        other._log = deque(self._log)
        other._log_bytes = self._log_bytes
        return other


class _Copy(Snapshot):
    """A copy of a store, which does not change."""

    def __init__(self, store: MemoryStore) -> None:
        self._store: MemoryStore | None = store

    def scan(self, start: bytes, end: bytes, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """Return rows of the copy."""
        if self._store is None:
            raise SnapshotGone("the snapshot is closed")
        rows = self._store.scan(start, end, rows_max)
        size = 0
        for number in range(len(rows)):
            if size >= bytes_max:
                return rows[:number]
            size += len(rows[number][0]) + len(rows[number][1])
        return rows

    def close(self) -> None:
        """Drop the copy."""
        self._store = None
