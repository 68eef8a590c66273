"""Rows that are in the commit log and not in the tables yet, in front of the tables: this is what a node reads.

The log makes a batch durable. When the batch is committed, its rows go to the tables with many others in one write:
most rows of queues are gone by then, and cost the tables a removal at most (CORE 2.3). Until then they are here.

So the tables hold nothing that is not committed, and what a change has overwritten is still there: `undo` returns it,
for a leader that has to take changes back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from typing import Final

from folkmoot.kernel.pack import U16
from folkmoot.store.batch import DELETE, DELETE_RANGE, PUT, Batch
from folkmoot.store.key import META, kind_of
from folkmoot.store.key_range import KeyRanges
from folkmoot.store.reader import Reader, Snapshot

__all__ = ["Overlay", "Undo"]

_NONE: Final = b""
"""The value of a row that was removed: every other value begins with its version."""

_ALL: Final = 1 << 62
_PAGE: Final = 256  # rows of the tables that are looked at together, where many have been changed


class _Part:
    """What a layer says of one partition: the newest operations on some keys; and ranges, which came before them.

    From the first range on, `keys` are those of the rows in order: so a further range finds what it removes.
    """

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []
        self.ranges: KeyRanges | None = None

    def set(self, key: bytes, value: bytes) -> None:
        """Lay a row, or the removal of one, over what is here."""
        if self.ranges is not None and key not in self.rows:
            insort(self.keys, key)
        self.rows[key] = value

    def remove(self, start: bytes, end: bytes) -> None:
        """Lay the removal of a range over what is here."""
        if self.ranges is None:
            self.ranges = KeyRanges()
            self.keys = sorted(self.rows)
        self.ranges.add(start, end)
        keys = self.keys
        first, behind = bisect_left(keys, start), bisect_left(keys, end)
        if first < behind:
            for key in keys[first:behind]:
                del self.rows[key]
            del keys[first:behind]

    def between(self, start: bytes, end: bytes) -> dict[bytes, bytes]:
        """Return the rows between two keys."""
        rows = self.rows
        if self.ranges is None:
            return {key: value for key, value in rows.items() if start <= key < end}
        keys = self.keys
        return {key: rows[key] for key in keys[bisect_left(keys, start) : bisect_left(keys, end)]}


class _Layer:
    """Operations by the partitions of their keys, which are the first two bytes. A range is of one partition."""

    def __init__(self) -> None:
        self.bytes = 0
        self.parts: dict[bytes, _Part] = {}
        self.has_ranges = False

    def add(self, batch: Batch) -> None:
        """Lay a batch over what is here."""
        self.bytes += batch.bytes
        self.apply(batch.ops)

    def apply(self, ops: list[tuple[int, bytes, bytes]]) -> None:
        """Lay operations over what is here."""
        parts = self.parts
        for kind, key, value in ops:
            prefix = key[:2]
            part = parts.get(prefix)
            if part is None:
                part = _Part()
                parts[prefix] = part
            if kind == DELETE_RANGE:
                assert value[:2] == prefix, "a range is of one partition"
                self.has_ranges = True
                part.remove(key, value)
                continue
            assert value or kind == DELETE, "a row has a version"
            part.set(key, value)

    def between(self, start: bytes, end: bytes) -> list[_Part]:
        """Return the partitions that a range of keys concerns."""
        first, last = start[:2], end[:2]
        if first == last:
            part = self.parts.get(first)
            return [] if part is None else [part]
        return [part for prefix, part in self.parts.items() if first <= prefix <= last]

    def around(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the range that has removed the key from what lies below, or None."""
        if not self.has_ranges:
            return None
        part = self.parts.get(key[:2])
        return None if part is None or part.ranges is None else part.ranges.around(key)

    def hides_any(self, start: bytes, end: bytes) -> bool:
        """Whether a range has removed keys between the two from what lies below."""
        if not self.has_ranges:
            return False
        for part in self.between(start, end):
            if part.ranges is not None and part.ranges.overlaps(start, end):
                return True
        return False

    def value(self, key: bytes) -> bytes | None:
        """Return what the layer says of a key: its value, b"" if it was removed, None if it says nothing."""
        part = self.parts.get(key[:2])
        if part is None:
            return None
        value = part.rows.get(key)
        if value is not None:
            return value
        return None if part.ranges is None or part.ranges.around(key) is None else _NONE

    def lay_over(self, rows: dict[bytes, bytes], start: bytes, end: bytes) -> None:
        """Change `rows`, which are of lower layers, as this one does between the two keys."""
        if rows and self.hides_any(start, end):
            for key in [key for key in rows if self.around(key) is not None]:
                rows[key] = _NONE
        for part in self.between(start, end):
            rows.update(part.between(start, end))

    def ops(self) -> list[tuple[int, bytes, bytes]]:
        """Return the operations that do the same to the tables."""
        ops: list[tuple[int, bytes, bytes]] = []
        for part in self.parts.values():
            if part.ranges is not None:
                ops.extend([(DELETE_RANGE, start, end) for start, end in part.ranges.pairs()])
        for part in self.parts.values():
            for key, value in part.rows.items():
                ops.append((PUT if value else DELETE, key, value))
        return ops


class Undo:
    """Operations that restore the rows of a partition as they were; version: of its newest change then."""

    def __init__(self, ops: list[tuple[int, bytes, bytes]], version: bytes) -> None:
        self.ops = ops
        self.version = version


class Overlay(Reader):
    """The rows of `base`, the tables, and of the batches that they lack. Batches come in the order of their tokens.

    A batch is `submitted`, then `written` (in the log, and visible), then on its way to the tables with all before it
    (`hand_over`), one such way at a time, and gone from here when the tables have it (`applied`).
    """

    def __init__(self, base: Reader) -> None:
        self.base = base
        self.applying_token = 0  # the newest batch on its way to the tables; 0: there is none
        self._submitted: deque[Batch] = deque()  # not in the log yet
        self._written: deque[Batch] = deque()  # in the log, and not on their way to the tables
        self._bounds: deque[int] = deque()  # of these, the last batch of each write
        self._upper = _Layer()  # of `_written`
        self._lower = _Layer()  # on its way to the tables
        self._since_us = 0  # when the oldest of `_written` was

    # Batches

    def submitted(self, batch: Batch) -> None:
        """A batch is on its way to the log."""
        self._submitted.append(batch)

    def written(self, token: int, now: int) -> None:
        """The batches up to `token` are in the log, the last ones by one write: their rows are visible from now on."""
        submitted, written = self._submitted, self._written
        self._bounds.append(token)
        while submitted and submitted[0].token <= token:
            batch = submitted.popleft()
            if not written:
                self._since_us = now
            written.append(batch)
            self._upper.add(batch)

    def is_due(self, now: int, bytes_max: int, age_us: int) -> bool:
        """Whether rows should go to the tables: so many bytes, or of this age, and none are on their way."""
        if self.applying_token or not self._written:
            return False
        return self._upper.bytes >= bytes_max or now - self._since_us >= age_us

    def hand_over(self, token: int, now: int) -> list[tuple[int, bytes, bytes]]:
        """Return the operations for the tables of the batches in the log up to `token`; they are on their way then.

        Writes are not divided: the tables know up to which one of them they are complete.
        """
        assert not self.applying_token, "one way at a time"
        written, bounds = self._written, self._bounds
        self._since_us = now
        while bounds and bounds[0] <= token:
            self.applying_token = bounds.popleft()
        if not self.applying_token:
            return []
        while written and written[0].token <= self.applying_token:
            self._lower.add(written.popleft())
        self._upper = _Layer()
        for batch in written:
            self._upper.add(batch)
        return self._lower.ops()

    def applied(self) -> None:
        """The tables have what was on its way."""
        assert self.applying_token, "something was on its way"
        self.applying_token = 0
        self._lower = _Layer()

    def undo(self, partition: int, token: int) -> Undo | None:
        """Return what takes back the changes that this node has made to a partition from batch `token` on, or None.

        Ranges count like removals of all their rows. What other nodes have changed before, in the same batch, stays.
        """
        before, after = _Layer(), _Layer()
        version: bytes | None = None
        for batch in [*self._written, *self._submitted]:
            if version is not None:
                after.apply(batch.ops)
                continue
            place = len(batch.ops)
            if batch.token >= token:
                for number, newest, index in batch.begins:
                    if number == partition:
                        version, place = newest, index
                        break
            before.apply(batch.ops[:place])
            after.apply(batch.ops[place:])
        if version is None:
            return None
        prefix = U16[partition]
        part = after.parts.get(prefix)
        keys: dict[bytes, None] = {} if part is None else dict.fromkeys(part.rows)
        if part is not None and part.ranges is not None:
            for start, end in part.ranges.pairs():
                found: dict[bytes, bytes] = dict(self.base.scan(start, end, _ALL))
                self._lower.lay_over(found, start, end)
                before.lay_over(found, start, end)
                keys.update(dict.fromkeys(found))
        ops: list[tuple[int, bytes, bytes]] = []
        for key in keys:
            if kind_of(key) != META:
                value = self._read(before, key)
                ops.append((PUT, key, value) if value else (DELETE, key, _NONE))
        return Undo(ops, version)

    # Reading

    def get(self, key: bytes) -> bytes | None:
        """Return the value at `key`, or None."""
        return self._read(self._upper, key)

    def _read(self, newest: _Layer, key: bytes) -> bytes | None:
        """Return the value at `key` as it is where `newest` lies over the rows on their way and the tables, or None."""
        value = newest.value(key)
        if value is None:
            value = self._lower.value(key)
            if value is None:
                return self.base.get(key)
        return value or None

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` rows with start <= key < end, in key order."""
        changed = self._changed(start, end)
        hides = self._upper.hides_any(start, end) or self._lower.hides_any(start, end)
        if not changed and not hides:
            return self.base.scan(start, end, limit)
        rows: list[tuple[bytes, bytes]] = []
        at, count = start, limit + min(len(changed), _PAGE)
        while at < end:
            page = self.base.scan(at, end, count)
            rows.extend([row for row in page if row[0] not in changed and not (hides and self._is_hidden(row[0]))])
            if len(page) < count or len(rows) >= limit:
                break
            at, count = page[-1][0] + b"\0", max(count, _PAGE)
            around = self._around(page[-1][0]) if hides else None
            if around is not None:
                at = around[1]
        rows.extend([row for row in changed.items() if row[1]])
        rows.sort()
        return rows[:limit]

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the row with the greatest key in start <= key < end, or None."""
        changed = self._changed(start, end)
        row = self.base.last(start, end)
        while row is not None:
            around = self._around(row[0])
            if around is None and row[0] not in changed:
                break
            below = row[0] if around is None else around[0]
            row = self.base.last(start, below) if below > start else None
        newest = max([key for key, value in changed.items() if value], default=b"")
        return (newest, changed[newest]) if newest and (row is None or newest > row[0]) else row

    def logged(self, bytes_max: int) -> Iterator[list[tuple[int, bytes, bytes]]]:
        """Yield what the newest writes of an earlier process have done, see `Reader.logged`."""
        return self.base.logged(bytes_max)

    def bytes_between(self, start: bytes, end: bytes) -> int:
        """Return a cheap estimate of the bytes of the rows with start <= key < end; 0 = unknown."""
        changed = self._changed(start, end)
        return self.base.bytes_between(start, end) + sum([len(key) + len(changed[key]) for key in changed])

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the current rows; the caller closes it soon."""
        changed = self._changed(b"\0\0", b"\xff\xff\xff")
        pairs: list[tuple[bytes, bytes]] = []
        for layer in (self._lower, self._upper):
            for part in layer.parts.values():
                if part.ranges is not None:
                    pairs.extend(part.ranges.pairs())
        ranges = KeyRanges()
        for start, end in sorted(pairs):
            ranges.add(start, end)
        return _OverlaySnapshot(self.base.snapshot(), changed, ranges)

    def _changed(self, start: bytes, end: bytes) -> dict[bytes, bytes]:
        changed: dict[bytes, bytes] = {}
        self._lower.lay_over(changed, start, end)
        self._upper.lay_over(changed, start, end)
        return changed

    def _is_hidden(self, key: bytes) -> bool:
        return self._upper.around(key) is not None or self._lower.around(key) is not None

    def _around(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return a range that hides the key of the tables, or None."""
        return self._upper.around(key) or self._lower.around(key)


class _OverlaySnapshot(Snapshot):
    """A snapshot of the tables with the rows that they lacked then. `ranges` hide rows of the tables."""

    def __init__(self, base: Snapshot, changed: dict[bytes, bytes], ranges: KeyRanges) -> None:
        self._base = base
        self._changed = changed
        self._keys = sorted(changed)
        self._ranges = ranges

    def scan(self, start: bytes, end: bytes, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """Return rows of that moment, see `Snapshot.scan`."""
        rows: list[tuple[bytes, bytes]] = []
        size = 0
        at = start
        while True:
            page = self._base.scan(at, end, rows_max, bytes_max)
            through = end
            if page:
                around = self._ranges.around(page[-1][0])
                through = page[-1][0] + b"\0" if around is None else min(around[1], end)
            found = [row for row in page if row[0] not in self._changed and self._ranges.around(row[0]) is None]
            found.extend(self._changed_between(at, through))
            found.sort()
            for row in found:
                rows.append(row)
                size += len(row[0]) + len(row[1])
                if len(rows) >= rows_max or size >= bytes_max:
                    return rows
            if not page:
                return rows
            at = through

    def _changed_between(self, start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        keys = self._keys
        found: list[tuple[bytes, bytes]] = []
        for number in range(bisect_left(keys, start), bisect_left(keys, end)):
            value = self._changed[keys[number]]
            if value:
                found.append((keys[number], value))
        return found

    def close(self) -> None:
        """Release the snapshot; idempotent."""
        self._base.close()
