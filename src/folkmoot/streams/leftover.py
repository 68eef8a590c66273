"""Records of the other branch of a healed split: appended again, behind the records of the branch that continues.

The merge of a partition stores the chunks that the other side has written since the fork in LEFTOVER rows. Small chunks
grow, so they may begin with records from before the fork. Those have the same offsets here and are skipped.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_u16, get_u64
from folkmoot.store.key import LEFTOVER, end_of, kind_prefix, name_of
from folkmoot.store.reader import Reader
from folkmoot.store.writer import VERSION_BYTES, Writer
from folkmoot.streams.chunk import decode_chunk, fault
from folkmoot.streams.log import StreamLog
from folkmoot.streams.record import Entry
from folkmoot.streams.table import Streams

__all__ = ["absorb"]

_ROWS: Final = 16


def absorb(streams: Streams, partition: int, reader: Reader, writer: Writer, now: int) -> int:
    """Append the records of a partition's LEFTOVER rows and remove the rows, in one turn; return the number of records.

    On CorruptStore, all rows stay. Rows of streams that are not configured here stay in any case.
    """
    prefix = kind_prefix(partition, LEFTOVER)
    start = prefix
    appended = 0
    done: list[bytes] = []
    branch = b""
    parted = False
    ends: dict[bytes, int] = {}  # ends of the logs before the appends, by row prefix
    while True:
        rows = reader.scan(start, end_of(prefix), _ROWS)
        for key, value in rows:
            log = _log_of(streams, key)
            if log is None:
                continue
            if key[:-8] != branch:
                branch = key[:-8]
                parted = False
            end = ends.setdefault(key[: 7 + len(name_of(key))], log.next_offset)
            why = fault(value, VERSION_BYTES)
            if why is not None:
                raise CorruptStore(f"{log}, left over at offset {get_u64(key, len(key) - 8)}: {why}")
            for entry in decode_chunk(value, VERSION_BYTES):
                parted = parted or not _is_here(log, entry, end)
                if parted:
                    log.append(entry.record, now)
                    appended += 1
            done.append(key)
        if len(rows) < _ROWS:
            break
        start = rows[-1][0] + b"\0"
    for key in done:  # only after all of them have been read
        writer.delete(partition, key)
    return appended


def _log_of(streams: Streams, key: bytes) -> StreamLog | None:
    name = name_of(key)
    stream = streams.get(name.decode())
    index = get_u16(key, 5 + len(name))
    return None if stream is None or index >= len(stream.logs) else stream.logs[index]


def _is_here(log: StreamLog, entry: Entry, end: int) -> bool:
    """Whether a record is from before the fork: it is the same at this offset, or retention has removed it here."""
    if entry.offset < log.oldest:
        oldest_us = log.oldest_time_us
        return oldest_us is not None and entry.time_us < oldest_us
    mine = log.entry(entry.offset) if entry.offset < end else None
    if mine is None or mine.time_us != entry.time_us:
        return False
    one, other = mine.record, entry.record
    return (one.topic, one.payload, one.flags, one.publisher, one.properties) == (
        other.topic,
        other.payload,
        other.flags,
        other.publisher,
        other.properties,
    )
