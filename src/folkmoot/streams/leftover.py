"""Records of the other branch of a healed split: appended again, behind the records of the branch that continues.

The merge of a partition stores the chunks that the other side has written since the fork in LEFTOVER rows, and the
bounds of the log there, by which it is known where the two logs part (`store/stream_row`). Small chunks grow, so they
may begin with records from before that: those are skipped, also where retention has removed them here.

Offsets are given out by one lineage, the trunk. Where a fork goes on, because the members of the trunk have come over
to it, its log becomes that of the trunk (`_Restoring`): what the fork has written has no offsets yet and goes behind,
the records of the trunk keep their offsets and times, and what retention has removed there is removed here. That is one
turn, before the partition opens. All other records are appended behind them, so that they come before what is published
from then on (A3); but if they are very many, only the first ones, and the rest a page per turn while the partition is
open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import u64
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
from folkmoot.store.key import (
    LEFTOVER,
    epoch_of_leftover,
    is_bounds,
    is_of_trunk,
    kind_prefix,
    sequence_of,
)
from folkmoot.store.reader import Reader
from folkmoot.store.record import Entry, is_same
from folkmoot.store.stream_row import UNKNOWN, StreamRow, decode_stream, parted
from folkmoot.store.writer import VERSION_BYTES, Writer, version_of
from folkmoot.streams.log import StreamLog
from folkmoot.streams.table import Streams

__all__ = ["Leftovers"]

_ROWS: Final = 4  # read at once: a record may have a megabyte
_TURN_BYTES: Final = 1 << 20  # of chunks that are appended in one turn, approximately
_OPENING_BYTES: Final = 4 << 20  # in the turn in which their partition opens
_BOUNDS: Final = b"\xff" * 8
_OF_TRUNK: Final = 1 << 63


class Leftovers:
    """What is to be appended to the logs of the partitions that are led here. fault: what could not be read."""

    def __init__(self, streams: Streams, reader: Reader) -> None:
        self.fault = ""  # the caller clears it
        self._streams = streams
        self._reader = reader
        self._waiting: list[_Rest] = []
        self._failed: list[_Rest] = []
        self._token = 0  # of the newest turn with such records: they are on the disk before the next one

    def open(self, partition: int, writer: Writer, now: int) -> None:
        """Put back the records of the trunk, after the logs of a partition were opened, and append the others.

        Those that are beyond `_OPENING_BYTES` follow in later turns. Raises CorruptStore if the records of the trunk
        cannot be read; then no row has changed. Rows of streams that are not configured here stay in any case.
        """
        opened: list[_Restoring] = []
        found: list[_Rest] = []
        for log in self._streams.logs_in(partition):
            branches = _branches(self._reader, log)
            if branches:
                opened.append(_Restoring(log, branches, self._reader, now))
                found.append(_Rest(log, branches, self._reader))
        for restoring in opened:
            restoring.write(writer)
        self._token = writer.token
        for rest in found:
            while rest.bytes < _OPENING_BYTES and self._step(rest, writer, now):
                pass
        self._waiting.extend([rest for rest in found if not rest.is_done() and rest not in self._failed])

    def leave(self, partition: int) -> None:
        """Another node leads the partition, and goes on there."""
        self._waiting = [rest for rest in self._waiting if rest.log.store_partition != partition]
        self._failed = [rest for rest in self._failed if rest.log.store_partition != partition]

    def retry(self) -> None:
        """Try again what could not be read: it may be repaired by now."""
        self._waiting.extend(self._failed)
        self._failed = []

    def runnable(self, durable_token: int) -> bool:
        """Whether there is something to append."""
        return bool(self._waiting) and self._token <= durable_token

    def step(self, writer: Writer, now: int, durable_token: int) -> None:
        """Append a page of records and remove their rows; the turn must end with `flush` of the streams."""
        if not self.runnable(durable_token):
            return
        rest = self._waiting.pop(0)
        if self._step(rest, writer, now):
            self._waiting.insert(0, rest)
        self._token = writer.token

    def _step(self, rest: _Rest, writer: Writer, now: int) -> bool:
        """Append a page; tell whether there is more, and it can be read."""
        try:
            return rest.step(writer, now)
        except CorruptStore as damage:
            self.fault = str(damage)
            self._failed.append(rest)
            return False


class _Branch:
    """What one branch has brought for a log; start: the first of its records that this log does not have."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.bounds: StreamRow | None = None
        self.start = UNKNOWN
        self.has_trunk = False
        self.seq = 0  # of the merge that brought the first of its records; 0: it has brought none without an offset

    def has(self, log: StreamLog, entry: Entry, end: int) -> bool:
        """Whether the log, which ended at `end`, has a record or had it: it is from before the fork."""
        if self.start != UNKNOWN:
            return entry.offset < self.start
        if entry.offset < log.oldest:
            oldest_us = log.oldest_time_us
            return oldest_us is not None and entry.time_us < oldest_us
        return entry.offset < end and is_same(log.stored(entry.offset), entry)


def _prefix_of(log: StreamLog) -> bytes:
    return kind_prefix(log.store_partition, LEFTOVER) + log.name


def _branches(reader: Reader, log: StreamLog) -> list[_Branch]:
    """Return the branches with rows for a log; raises CorruptStore."""
    prefix = _prefix_of(log)
    found: dict[int, _Branch] = {}
    start = prefix
    while True:
        rows = reader.scan(start, prefix + b"\xff" * 17, 1)
        if not rows:
            break
        key, value = rows[0]
        epoch = epoch_of_leftover(key)
        branch = found.get(epoch)
        if branch is None:
            branch = found[epoch] = _Branch(epoch)
            bounds = reader.get(prefix + u64(epoch) + _BOUNDS)
            if bounds is not None:
                branch.bounds = decode_stream(bounds)
                branch.start = parted(log.epochs, log.next_offset, branch.bounds.epochs)
        if is_of_trunk(key):
            branch.has_trunk = True
        elif not is_bounds(key):
            branch.seq = version_of(value)[1]
        start = key[:-8] + _BOUNDS + b"\0"
    return list(found.values())


class _Row:
    """A row LEFTOVER with a chunk; raises CorruptStore if it cannot be read."""

    def __init__(self, log: StreamLog, key: bytes, value: bytes) -> None:
        why = fault(value, LEFTOVER_CHUNK_AT)
        if why is not None:
            raise CorruptStore(f"{log}, left over at offset {sequence_of(key)}: {why}")
        self.key = key
        self.origin = decode_origin(value, VERSION_BYTES)
        self.entries = decode_chunk(value, LEFTOVER_CHUNK_AT)
        self.size = len(value)


def _chunks(reader: Reader, log: StreamLog, start: bytes) -> Iterator[_Row]:
    """Return the rows with chunks of one branch from `start` on, trunk or not."""
    end = start[: len(_prefix_of(log)) + 8] + _BOUNDS
    while start:
        rows = reader.scan(start, end, _ROWS)
        for key, value in rows:
            yield _Row(log, key, value)
        start = rows[-1][0] + b"\0" if len(rows) == _ROWS else b""


# -- records without offsets ------------------------------------------------------------------------------------------


class _Rest:
    """The records of branches that have no offsets yet, and go behind those of a log.

    They are appended in the order of the merges: a later one may bring the rest of what an earlier one has brought.
    """

    def __init__(self, log: StreamLog, branches: list[_Branch], reader: Reader) -> None:
        self.log = log
        self._end = log.next_offset
        self._reader = reader
        self._prefix = _prefix_of(log)
        self._branches = sorted(branches, key=_seq_of)
        self._at = b""  # the next row
        self.bytes = 0  # of the chunks that were appended

    def is_done(self) -> bool:
        """Tell whether all are appended."""
        return not self._branches

    def step(self, writer: Writer, now: int) -> bool:
        """Append a page; tell whether there is more. Raises CorruptStore; then nothing of this page has changed."""
        if not self._branches:
            return False
        branch = self._branches[0]
        at = self._at or self._prefix + u64(branch.epoch)
        page: list[_Row] = []
        size = 0
        whole = True
        for row in _chunks(self._reader, self.log, at):
            if page and size + row.size > _TURN_BYTES:
                whole = False
                break
            page.append(row)
            size += row.size
        self.bytes += size
        log = self.log
        partition = log.store_partition
        records: list[tuple[Entry, Origin]] = []
        for row in page:
            for count, entry in enumerate(row.entries):
                if not branch.has(log, entry, self._end):
                    records.append((entry, row.origin.behind(count)))
        written = _Written()
        for entry, origin in records:
            written.add(log.append(entry.record, now), origin.given_by(b""))
        for span in written.spans:
            writer.put(partition, absorbed_key(partition, log.name, span.first), encode_span(span))
        for row in page:
            writer.delete(partition, row.key)
        self._at = page[-1].key + b"\0" if page else at
        if whole:
            writer.delete(partition, self._prefix + u64(branch.epoch) + _BOUNDS)
            self._branches.pop(0)
            self._at = b""
        return bool(self._branches)


class _Written:
    """The spans of records that are written, in their order."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def add(self, offset: int, origin: Origin) -> None:
        last = self.spans[-1] if self.spans else None
        if last is not None and last.end == offset and origin.is_behind(last.origin, offset - last.first):
            last.end = offset + 1
        else:
            self.spans.append(Span(offset, offset + 1, origin))


# -- records of the trunk ---------------------------------------------------------------------------------------------


class _Restoring:
    """The records of the trunk go back to the offsets that it has given out, before those that have none.

    They do not if offsets were given out here as well: then they go behind. Of each record that is put back, appended
    or rewritten, it is noted where it came from.
    """

    def __init__(self, log: StreamLog, branches: list[_Branch], reader: Reader, now: int) -> None:
        self._log = log
        self._end = log.next_offset
        self._keys: list[bytes] = []  # of rows that are removed
        self._range: tuple[bytes, bytes] | None = None  # all rows of the log
        self._spans: list[Span] = []  # what is known of records that are not where they were
        self._origins: list[tuple[int, Origin]] = []  # of what is written in this turn, by offset
        self._behind: list[tuple[Entry, Origin]] = []  # in their order
        self._at = -1  # of the first record that was put back
        self._entries: list[Entry] = []
        self._run: tuple[_Branch, int] | None = None  # what was put back last came from there, beginning with
        found: list[_Found] = []
        for branch in branches:
            if branch.has_trunk:
                for row in _chunks(reader, log, _prefix_of(log) + u64(branch.epoch | _OF_TRUNK)):
                    self._keys.append(row.key)
                    for count, entry in enumerate(row.entries):
                        if not branch.has(log, entry, self._end):
                            found.append(_Found(branch, entry, row.origin.behind(count)))
        # Where copies differ, the trunk has gone on from the one with the newer change, which comes first: the end of
        # the other one was not committed (`merge.merge`).
        found.sort(key=_given_of, reverse=True)
        found.sort(key=_offset_of)
        self._restore(found, branches, reader)
        for entry, origin in self._behind:
            self._origins.append((log.append(entry.record, now), origin.given_by(b"")))

    def _restore(self, found: list[_Found], branches: list[_Branch], reader: Reader) -> None:
        log = self._log
        starts = [one.entry.offset for one in found]
        removing: _Branch | None = None  # retention has removed most where this one comes from
        for branch in branches:
            bounds = branch.bounds
            if bounds is not None and branch.start != UNKNOWN and bounds.oldest > branch.start:
                starts.append(branch.start)
                if removing is None or removing.bounds is None or removing.bounds.oldest < bounds.oldest:
                    removing = branch
        start = min(starts, default=-1)
        oldest = 0
        if log.given_end <= start <= self._end:
            self._spans = read_spans(reader, log.store_partition, log.name)
            if start < self._end:
                self._displace(start)
            if removing is not None and removing.bounds is not None and removing.bounds.oldest > start:
                oldest = removing.bounds.oldest
                self._range = log.restart(oldest)
                self._origins = []
                log.take_epochs(removing.bounds.epochs, start, oldest)
            self._at = oldest or start
        others: dict[_Branch, bool] = {}  # branches with other records than this log
        for one in found:
            if one.entry.offset < oldest:
                continue  # retention has removed it where it was given out
            if one.branch in others or not self._put_back(one):
                others[one.branch] = True
                self._behind.append((one.entry, one.origin))
        self._end_run()
        if oldest and removing is not None and removing.bounds is not None:
            log.not_before(removing.bounds.clock_us)

    def _put_back(self, one: _Found) -> bool:
        """Put a record back to its offset; tell whether it is there."""
        log = self._log
        entry = one.entry
        if self._at < 0:
            return False
        if self._at <= entry.offset < log.next_offset:  # another copy of the branch had it
            return is_same(self._entries[entry.offset - self._at], entry)
        if entry.offset != log.next_offset:
            return False
        if self._run is None or self._run[0] is not one.branch:
            self._end_run()
            self._run = (one.branch, entry.offset)
        log.append(entry.record, entry.time_us)
        self._entries.append(entry)
        self._origins.append((entry.offset, one.origin))
        return True

    def _end_run(self) -> None:
        if self._run is not None:
            branch, first = self._run
            epochs = [(branch.epoch, 0)] if branch.bounds is None else branch.bounds.epochs
            self._log.take_epochs(epochs, first, self._log.next_offset)
            self._run = None

    def _displace(self, offset: int) -> None:
        """Make place from `offset` on; the records before it that are in the same chunk are rewritten as well."""
        rewritten, keys = self._log.displace(offset)
        self._keys.extend(keys)
        for entry, version in rewritten:
            origin = origin_at(self._spans, entry.offset) or Origin(version, version, entry.offset, version)
            if entry.offset < offset:
                self._origins.append((entry.offset, origin.given_by(origin.given or version)))
            else:
                self._behind.append((entry, origin))

    def write(self, writer: Writer) -> None:
        """Remove the rows, and note where records came from; the records themselves follow with `flush`."""
        log = self._log
        partition = log.store_partition
        if self._range is not None:
            writer.delete_range(partition, self._range[0], self._range[1])
        for key in self._keys:
            writer.delete(partition, key)
        first = self._origins[0][0] if self._origins else self._end
        for span in self._spans:
            if span.end > first or self._range is not None:
                writer.delete(partition, absorbed_key(partition, log.name, span.first))
            if span.first < first < span.end and self._range is None:
                self._put(writer, Span(span.first, first, span.origin))
        written = _Written()
        for offset, origin in self._origins:
            written.add(offset, origin)
        for span in written.spans:
            self._put(writer, span)

    def _put(self, writer: Writer, span: Span) -> None:
        log = self._log
        writer.put(log.store_partition, absorbed_key(log.store_partition, log.name, span.first), encode_span(span))


class _Found:
    """A record of the trunk that a branch has brought."""

    def __init__(self, branch: _Branch, entry: Entry, origin: Origin) -> None:
        self.branch = branch
        self.entry = entry
        self.origin = origin


def _given_of(one: _Found) -> bytes:
    """Return the version of the change that gave a record its offset."""
    return one.origin.given


def _offset_of(one: _Found) -> int:
    return one.entry.offset


def _seq_of(branch: _Branch) -> int:
    return branch.seq
