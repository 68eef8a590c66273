"""Records of the other branch of a healed split: appended again, behind the records of the branch that continues.

The merge of a partition stores the chunks that the other side has written since the fork in LEFTOVER rows. Small chunks
grow, so they may begin with records from before the fork. Those have the same offsets here and are skipped.

Offsets are given out by one lineage, the trunk. Where a fork goes on, because the members of the trunk have come over
to it, the records of the trunk keep their offsets and times: those of the fork have none yet, and go behind them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_u16, get_u64
from folkmoot.store.absorbed import Span, absorbed_key, encode_span, origin_at, origin_of_leftover, read_spans
from folkmoot.store.chunk import decode_chunk, fault
from folkmoot.store.key import LEFTOVER, end_of, is_of_trunk, kind_prefix, name_of
from folkmoot.store.reader import Reader
from folkmoot.store.record import Entry, is_same
from folkmoot.store.writer import VERSION_BYTES, Writer
from folkmoot.streams.log import StreamLog
from folkmoot.streams.table import Streams

__all__ = ["absorb"]

_ROWS: Final = 16


def absorb(streams: Streams, partition: int, reader: Reader, writer: Writer, now: int) -> int:
    """Append the records of a partition's LEFTOVER rows and remove the rows, in one turn; return the number of records.

    On CorruptStore, all rows stay. Rows of streams that are not configured here stay in any case.
    """
    appended = 0
    done: list[bytes] = []
    places: dict[bytes, _Place] = {}  # by log
    found: list[_Leftover] = []
    for key, value in _rows(reader, partition):
        log = _log_of(streams, key)
        if log is None:
            continue
        origin = origin_of_leftover(value)
        at = VERSION_BYTES + len(origin)
        why = fault(value, at)
        if why is not None:
            raise CorruptStore(f"{log}, left over at offset {get_u64(key, len(key) - 8)}: {why}")
        name = key[3 : 7 + len(name_of(key))]
        if name not in places:
            places[name] = _Place(log, read_spans(reader, partition, name))
        of_trunk = is_of_trunk(key)
        found.extend([_Leftover(name, key[:-8], of_trunk, entry, origin) for entry in decode_chunk(value, at)])
        done.append(key)
    behind: dict[bytes, bool] = {}  # branches that have other records than this log: whether they go behind
    for one in [*_in_order_of_trunk(found), *[one for one in found if not one.of_trunk]]:
        place = places[one.name]
        if one.branch not in behind:
            if place.has(one.entry):
                continue
            behind[one.branch] = not one.of_trunk
        if not behind[one.branch]:
            behind[one.branch] = not place.restore(one.entry)
        if behind[one.branch]:
            place.behind.append((one.entry, one.origin))
            appended += 1
    for name, place in places.items():  # only after all of them have been read
        done.extend(place.displaced)
        appended += place.restored
        for span in place.moved_spans():
            writer.delete(partition, absorbed_key(partition, name, span.first))
        for span in [*place.kept_spans(), *place.append(now)]:
            writer.put(partition, absorbed_key(partition, name, span.first), encode_span(span))
    for key in done:
        writer.delete(partition, key)
    return appended


class _Leftover:
    """A record that a branch has brought; name: of its log; branch: what the keys of its branch and log begin with."""

    def __init__(self, name: bytes, branch: bytes, of_trunk: bool, entry: Entry, origin: bytes) -> None:
        self.name = name
        self.branch = branch
        self.of_trunk = of_trunk
        self.entry = entry
        self.origin = origin


class _Place:
    """Where the records of other branches go in one log; spans: of the records that have come so earlier."""

    def __init__(self, log: StreamLog, spans: list[Span]) -> None:
        self.log = log
        self.restored = 0
        self.behind: list[tuple[Entry, bytes]] = []  # in their order, with their origins
        self.displaced: list[bytes] = []  # keys of rows whose records are appended again
        self._spans = spans
        self._end = log.next_offset
        self._at = -1  # of the first record that was restored
        self._entries: list[Entry] = []

    def has(self, entry: Entry) -> bool:
        """Whether a record is from before the fork: it is the same at this offset, or retention has removed it here."""
        log = self.log
        if entry.offset < log.oldest:
            oldest_us = log.oldest_time_us
            return oldest_us is not None and entry.time_us < oldest_us
        return entry.offset < self._end and is_same(log.stored(entry.offset), entry)

    def restore(self, entry: Entry) -> bool:
        """Put a record back to the offset that was given out, before those that have none; tell whether it is there.

        It is not if offsets were given out here as well, or if retention has removed records before it.
        """
        log = self.log
        if self._at < 0:
            if not log.given_end <= entry.offset <= self._end:
                return False
            if entry.offset < self._end:
                own, self.displaced = log.displace(entry.offset)
                self.behind = [*[(one, origin_at(self._spans, one.offset)) for one in own], *self.behind]
            self._at = entry.offset
        if self._at <= entry.offset < log.next_offset:  # another copy of the branch had it
            return is_same(self._entries[entry.offset - self._at], entry)
        if entry.offset != log.next_offset:
            return False
        log.append(entry.record, entry.time_us)
        self._entries.append(entry)
        self.restored += 1
        return True

    def moved_spans(self) -> list[Span]:
        """Return the spans with records that have been displaced: these get new offsets."""
        return [span for span in self._spans if 0 <= self._at < span.end]

    def kept_spans(self) -> list[Span]:
        """Return what stays of them where it was."""
        return [Span(span.first, self._at, span.origin) for span in self.moved_spans() if span.first < self._at]

    def append(self, now: int) -> list[Span]:
        """Append the records that go behind; return the spans of those that a branch had written."""
        found: list[Span] = []
        for entry, origin in self.behind:
            offset = self.log.append(entry.record, now)
            last = found[-1] if found else None
            if not origin:
                continue
            if last is not None and last.end == offset and last.origin == origin:
                last.end = offset + 1
            else:
                found.append(Span(offset, offset + 1, origin))
        return found


def _rows(reader: Reader, partition: int) -> Iterator[tuple[bytes, bytes]]:
    """Return the LEFTOVER rows of a partition, in their order."""
    prefix = kind_prefix(partition, LEFTOVER)
    start = prefix
    while start:
        rows = reader.scan(start, end_of(prefix), _ROWS)
        yield from rows
        start = rows[-1][0] + b"\0" if len(rows) == _ROWS else b""


def _in_order_of_trunk(found: list[_Leftover]) -> list[_Leftover]:
    """Return the records of the trunk by their offsets, whichever copies have brought them.

    Where copies differ, the trunk has gone on from the one with the newer change, which comes first: the end of the
    other one was not committed (`merge.merge`).
    """
    trunk = [one for one in found if one.of_trunk]
    trunk.sort(key=_version_of, reverse=True)
    trunk.sort(key=_offset_of)
    return trunk


def _version_of(one: _Leftover) -> bytes:
    """Return the version of the change that wrote a record, empty if that is not known."""
    return one.origin[:VERSION_BYTES]


def _offset_of(one: _Leftover) -> int:
    return one.entry.offset


def _log_of(streams: Streams, key: bytes) -> StreamLog | None:
    name = name_of(key)
    stream = streams.get(name.decode())
    index = get_u16(key, 5 + len(name))
    return None if stream is None or index >= len(stream.logs) else stream.logs[index]
