"""One stream partition on one node: appending in turns, the range of readable offsets, retention, reading.

Owns the CHUNK rows and the STREAM row of its stream partition. Offsets are dense and never used twice: the newest chunk
tells the next one, or the STREAM row once retention has removed all chunks. Records become readable only when
`committed` reports that they are durable on all nodes that must have them (promise A9). While the log is `held`, in a
fork, nothing becomes readable: the trunk assigns the same offsets.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore, StoreError
from folkmoot.kernel.pack import u16, u64
from folkmoot.store.chunk import HEAD_BYTES, Head, cut_chunk, decode_chunk, decode_head, encode_chunk, fault
from folkmoot.store.key import CHUNK, STREAM, name_prefix, sequence_of
from folkmoot.store.reader import Reader
from folkmoot.store.record import Entry, Record, is_same
from folkmoot.store.stream_row import EPOCHS_MAX, StreamRow, decode_stream, encode_stream, epochs_in
from folkmoot.store.writer import VERSION_BYTES, Writer
from folkmoot.streams.block import MERGE_BYTES_MAX, Block
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.page import OffsetAhead, OffsetGone, Page

__all__ = ["StreamLog"]

TRIM_ROWS: Final = 8
"""Chunks examined per call of `trim`: at most 2 MiB of chunks of ordinary size."""

MARK_FLUSHES: Final = 16
"""The STREAM row is updated with the readable end after this many turns with records."""

SCAN_ROWS_MAX: Final = 32
"""Chunks that a read fetches from the store at once."""


class Pending:
    """The effect of a batch that is not yet durable: records before `next_offset`, rows from `first` on."""

    def __init__(self, next_offset: int, first: int, latest_time_us: int) -> None:
        self.next_offset = next_offset
        self.first = first
        self.latest_time_us = latest_time_us


class StreamLog:
    """The records [oldest, next_offset) of stream partition `index`; those before `readable_end` can be read."""

    def __init__(self, config: StreamConfig, index: int, store_partition: int, reader: Reader) -> None:
        self.config = config
        self.index = index
        self.store_partition = store_partition
        self.oldest = 0
        self.next_offset = 0
        self.readable_end = 0
        self.bytes = 0
        self.latest_time_us: int | None = None
        self.changed: list[StreamLog] = []  # a log with something to flush adds itself; shared by all logs of a node
        self.epochs: list[tuple[int, int]] = []  # which leaderships have given out its offsets (`store/stream_row`)
        self._reader = reader
        name = config.name.encode()
        self._prefix = name_prefix(store_partition, CHUNK, name) + u16(index)
        self._end = self._prefix + b"\xff" * 9  # offsets stay below 2**63, so this sorts after every chunk
        self.name = self._prefix[3:]  # in keys of rows (`log_of_chunk`)
        self._row_key = name_prefix(store_partition, STREAM, name) + u16(index)
        self._row_partitions = 0  # from the STREAM row; 0: there is no row
        self.held = False
        self.known: Entry | None = None  # the newest record that was readable here; None: it is open, or none was
        self.given_end = 0  # when it was opened: records before it were certainly readable
        self._committed_end = 0
        self._changes = False  # it is in `changed`
        self._gives_from = 0  # this leadership gives out the offsets from here on; -1: that is in `epochs`
        self._row_stale = False  # the STREAM row must be updated with the next turn
        self._mark = 0  # the readable end in the STREAM row
        self._unmarked = 0  # turns with records since the STREAM row was updated
        self._clock_us = 0
        self._oldest_time_us: int | None = None
        self._begin = 0  # bytes removed since the beginning of the stream partition
        self._position = 0  # bytes appended since then
        self._open: list[Block] = []
        self._tail: list[Block] = []  # small blocks at the end that may still grow, each more than twice the next
        self._pending: list[Pending] = []

    @property
    def oldest_time_us(self) -> int | None:
        """The time of the oldest record, None if nothing is readable; looked up again after retention."""
        if self.oldest >= self.readable_end:
            return None
        if self._oldest_time_us is None:
            self._oldest_time_us = self._head(self._seek(self.oldest), self.oldest).base_us
        return self._oldest_time_us

    # Opening

    def open(self) -> None:
        """Read the bounds from the store; raises CorruptStore if the newest chunk is damaged or records are missing."""
        row = self._reader.get(self._row_key)
        floor = 0
        if row is not None:
            floor = self._open_row(row)
        newest = self._reader.last(self._prefix, self._end)
        if newest is None:
            self.oldest = floor
            self.next_offset = floor
            self._begin = self._position
        else:
            self._open_chunks(newest[0], newest[1], floor)
        self._committed_end = self.next_offset
        self._gives_from = self.next_offset
        # In a fork it is unknown which of the newest records the other side has, too. What was readable has its offsets
        # for ever. But a copy that was filled in a fork may have others there, until it takes in those of the trunk.
        self.given_end = max(self.oldest, min(max(self._mark, self._known_end()), self.next_offset))
        self.readable_end = self.given_end if self.held else self.next_offset
        self.known = None

    def _known_end(self) -> int:
        """Return up to where this copy has the records that were readable when this node had it open before."""
        known = self.known
        mine = None if known is None else self.entry(known.offset)
        return known.offset + 1 if known is not None and mine is not None and is_same(mine, known) else 0

    def newest_readable(self) -> Entry | None:
        """Return what `known` is to be when the log is closed; None if nothing was readable, or it cannot be read."""
        if self.known is not None or self.readable_end <= self.oldest:
            return self.known
        try:
            return self.stored(self.readable_end - 1)
        except CorruptStore:
            return None

    def _open_row(self, value: bytes) -> int:
        try:
            row = decode_stream(value)
        except CorruptStore as fault:
            raise CorruptStore(f"{self}: {fault}") from None
        self._row_partitions = row.partitions
        if self._row_partitions > self.config.partitions:
            raise StoreError(
                f"stream {self.config.name} has {self._row_partitions} partitions on disk and {self.config.partitions} "
                "in the configuration: a stream can get more partitions, never fewer; set the old number, or a new name"
            )
        self._clock_us = row.clock_us
        self._position = row.position
        self._mark = row.mark
        self.epochs = row.epochs
        return row.next_offset

    def _open_chunks(self, key: bytes, value: bytes, floor: int) -> None:
        offset = sequence_of(key)
        why = fault(value, VERSION_BYTES)
        if why is not None:
            raise self._corrupt(offset, why)
        newest = self._head_of(key, value)
        if newest.end < floor:
            raise self._corrupt(offset, f"the newest chunk ends at {newest.end}, records up to {floor} were there")
        oldest_row = self._reader.scan(self._prefix, self._end, 1)[0]
        oldest = self._head_of(oldest_row[0], oldest_row[1])
        self.oldest = oldest.first
        self.next_offset = newest.end
        self.latest_time_us = newest.last_us
        self._clock_us = max(self._clock_us, newest.last_us)
        self._oldest_time_us = oldest.base_us
        self._begin = oldest.position
        self._position = newest.position + newest.length
        self.bytes = self._position - self._begin

    # Appending

    def append(self, record: Record, now: int) -> int:
        """Append `record` and return its offset; the turn must end with `flush`. Times never go back."""
        if now > self._clock_us:
            self._clock_us = now
        opened = self._open
        if not opened:
            self._note_change()
            opened.append(Block(self.next_offset, 0))
        block = opened[len(opened) - 1]
        if not block.takes(record, self._clock_us):
            block = Block(self.next_offset, 0)
            opened.append(block)
        block.add(record, self._clock_us)
        offset = self.next_offset
        self.next_offset = offset + 1
        return offset

    def _note_change(self) -> None:
        if not self._changes:
            self._changes = True
            self.changed.append(self)

    def displace(self, offset: int) -> tuple[list[tuple[Entry, bytes]], list[bytes]]:
        """End before `offset`; the records from there on, which were not readable yet, are to be appended anew.

        Return the records of all chunks in which such are, with the versions of these chunks, and the keys of the rows,
        which the caller deletes; the records before `offset` are appended again here. Raises CorruptStore; then nothing
        has changed. The log was just opened, and the turn must end with `flush`.
        """
        assert self.given_end <= offset < self.next_offset, "there are such records"
        assert not self._open, "nothing was appended since it was opened"
        first = self._head(self._seek(offset), offset)
        before = self.entry(first.first - 1)
        found: list[tuple[Entry, bytes]] = []
        keys: list[bytes] = []
        start = self._prefix + u64(first.first)
        while start:
            rows = self._reader.scan(start, self._end, SCAN_ROWS_MAX)
            for key, value in rows:
                why = fault(value, VERSION_BYTES)
                if why is not None:
                    raise self._corrupt(sequence_of(key), why)
                version = value[:VERSION_BYTES]
                found.extend([(entry, version) for entry in decode_chunk(value, VERSION_BYTES)])
                keys.append(key)
            start = rows[-1][0] + b"\0" if len(rows) == SCAN_ROWS_MAX else b""
        self.next_offset = first.first
        self._position = first.position
        self._clock_us = 0 if before is None else before.time_us
        self._committed_end = min(self._committed_end, offset)
        self.readable_end = min(self.readable_end, offset)
        self.epochs = epochs_in(self.epochs, 0, offset)
        self._gives_from = offset
        self._row_stale = True
        for entry, _version in found:
            if entry.offset < offset:
                self.append(entry.record, entry.time_us)
        return found, keys

    def restart(self, offset: int) -> tuple[bytes, bytes]:
        """Have no records before `offset`, and go on there: retention has removed them where offsets are given out.

        Return the keys of the range of rows that the caller removes. The log was just opened, what it had behind is
        displaced, and the turn must end with `flush`.
        """
        assert offset >= self.next_offset, "offsets do not go back"
        self._open = []
        self._tail = []
        self.oldest = self.next_offset = offset
        self.readable_end = self._committed_end = self._gives_from = offset
        self._begin = self._position
        self.bytes = 0
        self._oldest_time_us = None
        self._row_stale = True
        self._note_change()
        return self._prefix, self._end

    def take_epochs(self, epochs: list[tuple[int, int]], first: int, end: int) -> None:
        """Note that the offsets in [first, end), the last ones so far, were given out as in another log."""
        for entry in epochs_in(epochs, first, end):
            if not self.epochs or self.epochs[-1][0] != entry[0]:
                self.epochs.append(entry)
        self._gives_from = end
        self._row_stale = True

    def flush(self, writer: Writer) -> int:
        """End a turn: put the chunks of the appended records, and those that they absorb, into the batch.

        Return the bytes of the appended records in chunks.
        """
        self._changes = False
        self._unmarked += 1
        marks = self._unmarked >= MARK_FLUSHES and self.readable_end > self._mark
        self._begin_epoch(writer.epoch)
        if marks or self._row_stale or self._row_partitions != self.config.partitions:
            self._row_partitions = self.config.partitions
            self._put_row(writer)
        first = self.next_offset
        appended_bytes = 0
        for block in self._open:
            appended_bytes += block.bytes - HEAD_BYTES
            block.position = self._position
            block = self._joined(block, writer)
            chunk = encode_chunk(block.first, block.position, block.times, block.records)
            writer.put(self.store_partition, self._prefix + u64(block.first), chunk)
            block.stored = True
            self._position = block.position + len(chunk)
            if block.bytes < MERGE_BYTES_MAX:
                self._tail.append(block)
            first = min(first, block.first)
        self._open = []
        self.bytes = self._position - self._begin
        self._pending.append(Pending(self.next_offset, first, self._clock_us))
        return appended_bytes

    def _begin_epoch(self, epoch: int) -> None:
        """Note the epoch of this leadership with the first offsets that it gives out."""
        first = self._gives_from
        if first < 0 or first == self.next_offset:
            return
        self._gives_from = -1
        if not self.epochs or self.epochs[-1][0] != epoch:
            self.epochs = [*self.epochs[1 - EPOCHS_MAX :], (epoch, first)]
            self._row_stale = True

    def _joined(self, block: Block, writer: Writer) -> Block:
        """Return `block` merged with the small blocks before it that are worth rewriting, and delete their rows."""
        tail = self._tail
        while tail:
            previous = tail[len(tail) - 1]
            if not previous.fits_before(block):
                tail.clear()  # no block before it can grow any more
                break
            if not previous.worth_joining(block):
                break
            tail.pop()
            if block.stored:
                writer.delete(self.store_partition, self._prefix + u64(block.first))
            previous.join(block)
            block = previous
        return block

    def committed(self, next_offset: int) -> None:
        """Make the records before `next_offset` readable: their batch is durable."""
        assert next_offset <= self.next_offset, f"{self}: committed up to {next_offset}, appended {self.next_offset}"
        self._committed_end = max(self._committed_end, next_offset)
        if not self.held:
            self.readable_end = max(self.readable_end, next_offset)
        while self._pending and self._pending[0].next_offset <= next_offset:
            self.latest_time_us = self._pending.pop(0).latest_time_us

    def hold(self, held: bool) -> bool:
        """Hold back what is committed, or make it readable; return whether something became readable."""
        self.held = held
        if held or self._committed_end <= self.readable_end:
            return False
        self.readable_end = self._committed_end
        return True

    # Retention

    def trim(self, now: int, writer: Writer) -> bool:
        """Remove the oldest chunks beyond retention, at most TRIM_ROWS; return whether to call again soon.

        By time, a chunk is removed when its last record is too old; by size, while the stream partition is too large,
        except for the newest chunk.
        """
        horizon = now - self.config.retention_us if self.config.retention_us else -1
        size_max = self.config.retention_bytes
        if self.oldest >= self.readable_end or (horizon < 0 and (size_max == 0 or self.bytes <= size_max)):
            return False
        limit = self._trim_limit(horizon)
        removed = 0
        for key, value in self._reader.scan(self._prefix + u64(self.oldest), self._prefix + u64(limit), TRIM_ROWS):
            try:
                head = self._head_of(key, value)
            except CorruptStore:
                if removed:
                    break  # the next call begins with it
                raise
            too_large = 0 < size_max < self.bytes and head.end < self.next_offset
            if head.end > limit or not (head.last_us < horizon or too_large):
                break
            writer.delete(self.store_partition, key)
            self.oldest = head.end
            self._oldest_time_us = None
            self._begin = head.position + head.length
            self.bytes = self._position - self._begin
            removed += 1
        if removed:
            self._put_row(writer)
        return removed == TRIM_ROWS

    def _trim_limit(self, horizon: int) -> int:
        """Return the offset before which the rows in the store are final.

        A row that a pending batch rewrites is still read in its old form: removing it would remove its new records.
        """
        limit = self.readable_end
        if limit == self.next_offset and self._clock_us < horizon:
            self._tail.clear()  # everything is durable and too old: no block will grow any more
        if self._tail:
            limit = min(limit, self._tail[0].first)
        for pending in self._pending:
            limit = min(limit, pending.first)
        return limit

    def _put_row(self, writer: Writer) -> None:
        row = StreamRow(self.config.partitions, self.next_offset, self._clock_us, self._position)
        self._mark = self.readable_end
        self._unmarked = 0
        self._row_stale = False
        row.mark = self._mark
        row.oldest = self.oldest
        row.epochs = self.epochs
        writer.put(self.store_partition, self._row_key, encode_stream(row))

    # Reading

    def read(self, start: int, end: int, bytes_max: int) -> Page | OffsetGone | OffsetAhead:
        """Return chunks from `start` to `end` or the readable end: at least one, and more up to `bytes_max`."""
        if start < self.oldest:
            return OffsetGone(self.oldest)
        if start > self.readable_end:
            return OffsetAhead(self.readable_end)
        chunks, at = self._chunks(start, min(end, self.readable_end), self.readable_end, bytes_max)
        return Page(chunks, max(start, at), self.oldest, self.readable_end)

    def read_copy(self, start: int, end: int, oldest: int, readable_end: int, bytes_max: int) -> Page:
        """Read from a copy, within bounds from the leader: oldest <= start <= readable_end.

        Raises CorruptStore if records are missing or damaged; retention may have removed some meanwhile.
        """
        chunks, at = self._chunks(start, min(end, readable_end), readable_end, bytes_max)
        for chunk in chunks:
            why = fault(chunk, 0)
            if why is not None:
                raise self._corrupt(start, why)
        return Page(chunks, max(start, at), oldest, readable_end)

    def _chunks(self, start: int, stop: int, readable_end: int, bytes_max: int) -> tuple[list[bytes], int]:
        """Return chunks with the records from `start` on, and the offset (at most `stop`) at which they end."""
        chunks: list[bytes] = []
        size = 0
        at = start
        while at < stop and size < bytes_max:
            value = self._seek(at)
            rows = [(b"", value)]
            # A row may grow between the two look-ups. Then the next one does not begin at `at`, and is looked up again.
            first = self._head(value, at)
            limit = min(SCAN_ROWS_MAX, (bytes_max - size) // first.length)
            if limit > 0 and first.end < stop:
                rows.extend(self._reader.scan(self._prefix + u64(first.end), self._prefix + u64(stop), limit))
            for _key, value in rows:
                head = self._head(value, at)
                if not head.first <= at < head.end:
                    break
                chunk = value[VERSION_BYTES:]
                if head.end > readable_end:
                    chunk = self._cut(chunk, head, readable_end)
                chunks.append(chunk)
                size += len(chunk)
                at = head.end
                if at >= stop or size >= bytes_max:
                    break
        return chunks, min(at, stop)

    def offset_at(self, time_us: int) -> int:
        """Return the first offset whose record has a time of `time_us` or later; the readable end if there is none."""
        low = self.oldest
        high = self.readable_end
        while low < high:
            middle = (low + high) // 2
            value = self._seek(middle)
            head = self._head(value, middle)
            if head.last_us < time_us:
                low = head.end
            elif head.base_us >= time_us:
                high = max(low, head.first)
            else:
                why = fault(value, VERSION_BYTES)
                if why is not None:
                    raise self._corrupt(middle, why)
                for entry in decode_chunk(value, VERSION_BYTES):
                    if entry.time_us >= time_us:
                        return max(self.oldest, min(entry.offset, self.readable_end))
        return min(low, self.readable_end)

    def entry(self, offset: int) -> Entry | None:
        """Return a record from the store, readable or not; None if it was removed or never existed."""
        if not self.oldest <= offset < self.next_offset:
            return None
        return self.stored(offset)

    def stored(self, offset: int) -> Entry:
        """Return a record that the store has, also one that this turn removes; raises CorruptStore."""
        value = self._seek(offset)
        why = fault(value, VERSION_BYTES)
        if why is not None:
            raise self._corrupt(offset, why)
        return decode_chunk(value, VERSION_BYTES, offset, offset + 1)[0]

    def _seek(self, offset: int) -> bytes:
        """Return the row of the chunk with the record at `offset`."""
        row = self._reader.last(self._prefix, self._prefix + u64(offset + 1))
        if row is None:
            raise self._corrupt(offset, "there is no chunk that has this record")
        if self._head_of(row[0], row[1]).end <= offset:
            raise self._corrupt(offset, "there is no chunk that has this record")
        return row[1]

    def _cut(self, chunk: bytes, head: Head, readable_end: int) -> bytes:
        """Return `chunk` without the records that are not yet readable."""
        why = fault(chunk, 0)
        if why is not None:
            raise self._corrupt(head.first, why)
        return cut_chunk(chunk, head.first, readable_end)

    def _head(self, value: bytes, offset: int) -> Head:
        head = decode_head(value, VERSION_BYTES)
        if head is None:
            raise self._corrupt(offset, f"a row of {len(value)} bytes is no chunk, or one that is cut short")
        return head

    def _head_of(self, key: bytes, value: bytes) -> Head:
        """Return the head of the chunk in a row; it must begin at the offset in the key."""
        offset = sequence_of(key)
        head = self._head(value, offset)
        if head.first != offset:
            raise self._corrupt(offset, f"the chunk there claims to begin at {head.first}")
        return head

    def _corrupt(self, offset: int, why: str) -> CorruptStore:
        return CorruptStore(
            f"{self}, offset {offset}: {why}. The store is damaged: restore the node's data directory from a copy, or "
            "remove it if another replica has the data"
        )

    def __repr__(self) -> str:
        return f"stream {self.config.name} partition {self.index}"
