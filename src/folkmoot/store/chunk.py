"""Chunks: the columnar format in which records are stored, replicated and served; decoding it needs no loop.

A chunk holds records with consecutive offsets of one stream partition. All integers are little-endian:

     0   4  magic and format, b"FMC1"
     4   4  CRC-32 of everything after this field
     8   4  length of the whole chunk in bytes
    12   4  number of records, n >= 1
    16   8  offset of the first record
    24   8  bytes of all earlier chunks of the stream partition, since its beginning (for retention by size)
    32   8  time of the first record, microseconds since 1970
    40   4  time of the last record, microseconds after the first
    44  16  lengths of the four data columns, 4 bytes each: topics, payloads, publishers, properties
    60      times (4 bytes each, microseconds after the first), flags (1 byte), lengths of the topics (2), payloads (4),
            publishers (2), properties (4), each for all n records; then the four data columns

Readers tell new records by offset, not by chunk: a small chunk is rewritten together with the records that follow it,
so that chunks that are read at different times may overlap. The bytes of a record never change.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import Final
from zlib import crc32

from folkmoot.kernel.errors import CorruptStore
from folkmoot.store.record import RECORD_BYTES, Entry, Record

__all__ = [
    "CHUNK_BYTES_MAX",
    "FLAGS",
    "HEAD_BYTES",
    "MAGIC",
    "PAYLOAD_LENGTHS",
    "PROPERTY_LENGTHS",
    "PUBLISHER_LENGTHS",
    "SPAN_US_MAX",
    "TIMES",
    "TOPIC_LENGTHS",
    "Head",
    "check_chunk",
    "cut_chunk",
    "decode_chunk",
    "decode_head",
    "encode_chunk",
    "fault",
]

CHUNK_BYTES_MAX: Final = 262_144
"""A chunk of this size is closed: the store reads such a row in well under a millisecond."""

SPAN_US_MAX: Final = 0xFFFF_FFFF
"""The longest time from the first to the last record of a chunk (71 minutes): times are stored in 4 bytes."""

HEAD_BYTES: Final = 60

# Where the arrays of fixed width begin: bytes per record from the head to the array.
TIMES: Final = 0
FLAGS: Final = 4
TOPIC_LENGTHS: Final = 5
PAYLOAD_LENGTHS: Final = 7
PUBLISHER_LENGTHS: Final = 11
PROPERTY_LENGTHS: Final = 13

MAGIC: Final = b"FMC1"
"""The first bytes of every chunk."""

_HEAD: Final = struct.Struct("<4sIIIQQQIIIII")
_CHECKED: Final = struct.Struct("<IIQQQIIIII")
_OFFSET_MAX: Final = 1 << 63
_BIG: Final = sys.byteorder == "big"


class Head:
    """The first 60 bytes of a chunk."""

    def __init__(
        self, length: int, count: int, first: int, position: int, base_us: int, span_us: int, columns: list[int]
    ) -> None:
        self.length = length
        self.count = count
        self.first = first
        self.position = position
        self.base_us = base_us
        self.span_us = span_us
        self.columns = columns

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.first + self.count

    @property
    def last_us(self) -> int:
        """The time of the last record."""
        return self.base_us + self.span_us

    def __repr__(self) -> str:
        return f"Head([{self.first}, {self.end}), {self.length} bytes at {self.position}, {self.base_us} us)"


def encode_chunk(first: int, position: int, times: list[int], records: list[Record]) -> bytes:
    """Return the chunk of `records` with offsets from `first` on.

    `times` are microseconds since 1970, ascending, within SPAN_US_MAX; `position` as in the head.
    """
    count = len(records)
    assert 0 < count == len(times)
    base = times[0]
    topics = [record.topic for record in records]
    payloads = [record.payload for record in records]
    publishers = [record.publisher for record in records]
    properties = [record.properties for record in records]
    parts = [
        _u32([time - base for time in times]),
        bytes([record.flags for record in records]),
        _u16([len(topic) for topic in topics]),
        _u32([len(payload) for payload in payloads]),
        _u16([len(publisher) for publisher in publishers]),
        _u32([len(value) for value in properties]),
        b"".join(topics),
        b"".join(payloads),
        b"".join(publishers),
        b"".join(properties),
    ]
    body = b"".join(parts)
    checked = _CHECKED.pack(
        HEAD_BYTES + len(body),
        count,
        first,
        position,
        base,
        times[count - 1] - base,
        len(parts[6]),
        len(parts[7]),
        len(parts[8]),
        len(parts[9]),
    )
    crc = crc32(body, crc32(checked))
    return b"".join([MAGIC, crc.to_bytes(4, "little"), checked, body])


def decode_head(data: bytes, pos: int) -> Head | None:
    """Return the head of the chunk at `pos`, or None if there is no complete chunk; the CRC is not checked."""
    if len(data) - pos < HEAD_BYTES or data[pos : pos + 4] != MAGIC:
        return None
    fields = _HEAD.unpack_from(data, pos)
    length: int = fields[2]
    count: int = fields[3]
    columns: list[int] = [fields[8], fields[9], fields[10], fields[11]]
    if count == 0 or length > len(data) - pos:
        return None
    if length != HEAD_BYTES + RECORD_BYTES * count + columns[0] + columns[1] + columns[2] + columns[3]:
        return None
    return Head(length, count, fields[4], fields[5], fields[6], fields[7], columns)


def check_chunk(data: bytes, pos: int, head: Head) -> bool:
    """Return whether the CRC of the chunk at `pos` is right."""
    crc = int.from_bytes(data[pos + 4 : pos + 8], "little")
    return crc32(data[pos + 8 : pos + head.length]) == crc


def fault(data: bytes, pos: int) -> str | None:
    """Return what is wrong with the chunk at `pos` or with its CRC, or None."""
    head = decode_head(data, pos)
    if head is None:
        return f"{len(data) - pos} bytes at {pos} are no chunk, or one that is cut short"
    if not check_chunk(data, pos, head):
        return f"the checksum of the chunk of offsets {head.first} to {head.end - 1} is wrong"
    return None


def decode_chunk(data: bytes, pos: int = 0, start: int = 0, end: int = _OFFSET_MAX) -> list[Entry]:
    """Return the records of the chunk at `pos` with offsets in [start, end), in order.

    Raises CorruptStore if `fault` finds an error. A few records of a large chunk cost little more than its checksum.
    """
    why = fault(data, pos)
    if why is not None:
        raise CorruptStore(why)
    head = decode_head(data, pos)
    assert head is not None
    count = head.count
    at = pos + HEAD_BYTES
    times = _integers("I", data, at + TIMES * count, count, 4)
    flags = at + FLAGS * count
    topic_lengths = _integers("H", data, at + TOPIC_LENGTHS * count, count, 2)
    payload_lengths = _integers("I", data, at + PAYLOAD_LENGTHS * count, count, 4)
    publisher_lengths = _integers("H", data, at + PUBLISHER_LENGTHS * count, count, 2)
    property_lengths = _integers("I", data, at + PROPERTY_LENGTHS * count, count, 4)
    topic_at = at + RECORD_BYTES * count
    payload_at = topic_at + head.columns[0]
    publisher_at = payload_at + head.columns[1]
    property_at = publisher_at + head.columns[2]
    skip = min(max(start - head.first, 0), count)
    if skip:
        topic_at += sum(topic_lengths[:skip])
        payload_at += sum(payload_lengths[:skip])
        publisher_at += sum(publisher_lengths[:skip])
        property_at += sum(property_lengths[:skip])
    entries: list[Entry] = []
    for i in range(skip, min(end - head.first, count)):
        topic_end = topic_at + topic_lengths[i]
        payload_end = payload_at + payload_lengths[i]
        publisher_end = publisher_at + publisher_lengths[i]
        property_end = property_at + property_lengths[i]
        record = Record(
            data[topic_at:topic_end],
            data[payload_at:payload_end],
            data[flags + i],
            data[publisher_at:publisher_end],
            data[property_at:property_end],
        )
        entries.append(Entry(head.first + i, head.base_us + times[i], record))
        topic_at = topic_end
        payload_at = payload_end
        publisher_at = publisher_end
        property_at = property_end
    return entries


def cut_chunk(data: bytes, start: int, end: int) -> bytes:
    """Return a chunk with those records of the chunk `data` that are in [start, end); there must be at least one."""
    entries = decode_chunk(data, 0, start, end)
    head = decode_head(data, 0)
    assert head is not None
    return encode_chunk(
        entries[0].offset, head.position, [entry.time_us for entry in entries], [entry.record for entry in entries]
    )


def _integers(code: str, data: bytes, pos: int, count: int, width: int) -> list[int]:
    values = array(code, data[pos : pos + count * width])
    if _BIG:
        values.byteswap()
    return values.tolist()


def _u32(values: list[int]) -> bytes:
    packed = array("I", values)
    if _BIG:
        packed.byteswap()
    return packed.tobytes()


def _u16(values: list[int]) -> bytes:
    packed = array("H", values)
    if _BIG:
        packed.byteswap()
    return packed.tobytes()
