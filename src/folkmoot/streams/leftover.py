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
from folkmoot.store.absorbed import (
    LEFTOVER_CHUNK_AT,
    Origin,
    Span,
    absorbed_key,
    decode_origin,
    encode_span,
    origin_at,
    read_spans,
)
from folkmoot.store.chunk import decode_chunk, fault
from folkmoot.store.key import LEFTOVER, end_of, is_of_trunk, kind_prefix, log_of_leftover, name_of
from folkmoot.store.reader import Reader
from folkmoot.store.record import Entry, is_same
from folkmoot.store.writer import VERSION_BYTES, Writer, version_of
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
        why = fault(value, LEFTOVER_CHUNK_AT)
        if why is not None:
            raise CorruptStore(f"{log}, left over at offset {get_u64(key, len(key) - 8)}: {why}")
        name = log_of_leftover(key)
        if name not in places:
            places[name] = _Place(log, read_spans(reader, partition, name))
        of_trunk = is_of_trunk(key)
        origin = decode_origin(value, VERSION_BYTES)
        for count, entry in enumerate(decode_chunk(value, LEFTOVER_CHUNK_AT)):
            found.append(_Leftover(name, key[:-8], of_trunk, entry, origin.behind(count), version_of(value)[1]))
        done.append(key)
    behind: dict[bytes, bool] = {}  # branches that have other records than this log: whether they go behind
    for one in [*_in_order_of_trunk(found), *_in_order_of_merges(found)]:
        place = places[one.name]
        if one.branch not in behind:
            if place.has(one.entry):
                continue
            behind[one.branch] = not one.of_trunk
        if not behind[one.branch]:
            behind[one.branch] = not place.restore(one.entry, one.origin)
        if behind[one.branch]:
            place.behind.append((one.entry, one.origin))
            appended += 1
    for name, place in places.items():  # only after all of them have been read
        done.extend(place.displaced)
        appended += place.restored
        for span in place.moved_spans():
            writer.delete(partition, absorbed_key(partition, name, span.first))
        place.append(now)
        for span in [*place.kept_spans(), *place.new_spans()]:
            writer.put(partition, absorbed_key(partition, name, span.first), encode_span(span))
    for key in done:
        writer.delete(partition, key)
    return appended


class _Leftover:
    """A record that a branch has brought; name: of its log; branch: what the keys of its branch and log begin with."""

    def __init__(self, name: bytes, branch: bytes, of_trunk: bool, entry: Entry, origin: Origin, seq: int) -> None:
        self.name = name
        self.branch = branch
        self.of_trunk = of_trunk
        self.entry = entry
        self.origin = origin
        self.seq = seq  # of the merge that brought it


class _Place:
    """Where the records of other branches go in one log; spans: what is known of records that are not where they were.

    Of each record that is appended, put back or rewritten, it is noted where it came from.
    """

    def __init__(self, log: StreamLog, spans: list[Span]) -> None:
        self.log = log
        self.restored = 0
        self.behind: list[tuple[Entry, Origin]] = []  # in their order
        self.displaced: list[bytes] = []  # keys of rows whose records are appended again
        self._spans = spans
        self._end = log.next_offset
        self._at = -1  # of the first record that was restored
        self._entries: list[Entry] = []
        self._origins: list[tuple[int, Origin]] = []  # of what is written in this turn, by offset

    def has(self, entry: Entry) -> bool:
        """Whether a record is from before the fork: it is the same at this offset, or retention has removed it here."""
        log = self.log
        if entry.offset < log.oldest:
            oldest_us = log.oldest_time_us
            return oldest_us is not None and entry.time_us < oldest_us
        return entry.offset < self._end and is_same(log.stored(entry.offset), entry)

    def restore(self, entry: Entry, origin: Origin) -> bool:
        """Put a record back to the offset that was given out, before those that have none; tell whether it is there.

        It is not if offsets were given out here as well, or if retention has removed records before it.
        """
        log = self.log
        if self._at < 0:
            if not log.given_end <= entry.offset <= self._end:
                return False
            if entry.offset < self._end:
                self._displace(entry.offset)
            self._at = entry.offset
        if self._at <= entry.offset < log.next_offset:  # another copy of the branch had it
            return is_same(self._entries[entry.offset - self._at], entry)
        if entry.offset != log.next_offset:
            return False
        log.append(entry.record, entry.time_us)
        self._entries.append(entry)
        self._origins.append((entry.offset, origin))
        self.restored += 1
        return True

    def _displace(self, offset: int) -> None:
        """Make place from `offset` on; the records before it that are in the same chunk are rewritten as well."""
        rewritten, self.displaced = self.log.displace(offset)
        moved: list[tuple[Entry, Origin]] = []
        for entry, version in rewritten:
            origin = origin_at(self._spans, entry.offset) or Origin(version, version, entry.offset, version)
            if entry.offset < offset:
                self._origins.append((entry.offset, origin.given_by(origin.given or version)))
            else:
                moved.append((entry, origin))
        self.behind = [*moved, *self.behind]

    def append(self, now: int) -> None:
        """Append the records that go behind: this change gives them their offsets."""
        for entry, origin in self.behind:
            self._origins.append((self.log.append(entry.record, now), origin.given_by(b"")))

    def moved_spans(self) -> list[Span]:
        """Return the former spans with records that are written in this turn."""
        first = self._first()
        return [span for span in self._spans if span.end > first]

    def kept_spans(self) -> list[Span]:
        """Return what stays of them as it was."""
        first = self._first()
        return [Span(span.first, first, span.origin) for span in self.moved_spans() if span.first < first]

    def _first(self) -> int:
        """Return the offset from which on records are written in this turn."""
        return self._origins[0][0] if self._origins else self._end

    def new_spans(self) -> list[Span]:
        """Return the spans of what is written in this turn."""
        found: list[Span] = []
        for offset, origin in self._origins:
            last = found[-1] if found else None
            if last is not None and last.end == offset and origin.is_behind(last.origin, offset - last.first):
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


def _in_order_of_merges(found: list[_Leftover]) -> list[_Leftover]:
    """Return the records without offsets: a later merge may bring the rest of what an earlier one has brought."""
    return sorted([one for one in found if not one.of_trunk], key=_seq_of)


def _seq_of(one: _Leftover) -> int:
    return one.seq


def _version_of(one: _Leftover) -> bytes:
    """Return the version of the change that gave a record its offset."""
    return one.origin.given


def _offset_of(one: _Leftover) -> int:
    return one.entry.offset


def _log_of(streams: Streams, key: bytes) -> StreamLog | None:
    name = name_of(key)
    stream = streams.get(name.decode())
    index = get_u16(key, 5 + len(name))
    return None if stream is None or index >= len(stream.logs) else stream.logs[index]
