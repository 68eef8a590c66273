"""Rows ABSORBED: which records of a log were written elsewhere, or in another chunk of it, and where.

A log gets such records when it appends those of a branch again, when it puts those of the trunk back to their offsets,
and when it rewrites its own together with them. When another side takes this log for a branch in turn, it skips the
records that it has, and those of the trunk keep their offsets there as well. A span of offsets [first, end) has one
row: the key ends with `first`. Rows LEFTOVER begin with an origin, too: that of the records in the chunk behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_u64, u64
from folkmoot.store.key import ABSORBED, end_of, kind_prefix, log_of_chunk, sequence_of
from folkmoot.store.reader import Reader
from folkmoot.store.writer import VERSION_BYTES

__all__ = [
    "LEFTOVER_CHUNK_AT",
    "ORIGIN_BYTES",
    "Origin",
    "Span",
    "absorbed_key",
    "decode_origin",
    "decode_span",
    "encode_origin",
    "encode_span",
    "origin_at",
    "read_spans",
    "span_at",
]

ORIGIN_BYTES: Final = 3 * VERSION_BYTES + 8
LEFTOVER_CHUNK_AT: Final = VERSION_BYTES + ORIGIN_BYTES  # where the chunk in a row LEFTOVER begins
_ROWS: Final = 1024
_BY_THEIR_CHUNK: Final = b"\0" * VERSION_BYTES


class Origin:
    """Where consecutive records were written first, and what has given them the offsets that they have now.

    version: of the change (`store.writer`) that wrote their chunk there. branch: the position of a copy that had this
    chunk, in the same form. first: the offset there of the first of them. given: the version of the change that has
    given them their present offsets, empty: the one that has written the chunk in which they are.
    """

    def __init__(self, version: bytes, branch: bytes, first: int, given: bytes) -> None:
        self.version = version
        self.branch = branch
        self.first = first
        self.given = given

    def behind(self, count: int) -> Origin:
        """Return the origin of the records behind the first `count` ones."""
        return Origin(self.version, self.branch, self.first + count, self.given)

    def given_by(self, version: bytes) -> Origin:
        """Return the same origin of records whose present offsets were given by a change."""
        return Origin(self.version, self.branch, self.first, version)

    def is_behind(self, other: Origin, count: int) -> bool:
        """Whether this is the origin of the record behind the first `count` ones of the other."""
        return (
            self.first == other.first + count
            and self.version == other.version
            and self.branch == other.branch
            and self.given == other.given
        )


class Span:
    """Records with offsets in [first, end) that have one origin."""

    def __init__(self, first: int, end: int, origin: Origin) -> None:
        self.first = first
        self.end = end
        self.origin = origin


def encode_origin(origin: Origin) -> bytes:
    """Return the ORIGIN_BYTES bytes of an origin."""
    return origin.version + origin.branch + u64(origin.first) + (origin.given or _BY_THEIR_CHUNK)


def decode_origin(value: bytes, at: int) -> Origin:
    """Read an origin; raises CorruptStore."""
    if len(value) < at + ORIGIN_BYTES:
        raise CorruptStore("a row that says where records came from is cut short")
    branch = at + VERSION_BYTES
    first = branch + VERSION_BYTES
    given = value[first + 8 : at + ORIGIN_BYTES]
    return Origin(
        value[at:branch], value[branch:first], get_u64(value, first), b"" if given == _BY_THEIR_CHUNK else given
    )


def absorbed_key(partition: int, log: bytes, first: int) -> bytes:
    """Return the key of a span; log: as `log_of_chunk`."""
    return kind_prefix(partition, ABSORBED) + log + u64(first)


def encode_span(span: Span) -> bytes:
    """Return the value of a row, without its own version."""
    assert span.first < span.end, "a span has records"
    return u64(span.end) + encode_origin(span.origin)


def decode_span(key: bytes, value: bytes) -> Span:
    """Read a row, its own version included; raises CorruptStore."""
    if len(value) != VERSION_BYTES + 8 + ORIGIN_BYTES:
        raise CorruptStore("a row that says where records came from has another length")
    return Span(sequence_of(key), get_u64(value, VERSION_BYTES), decode_origin(value, VERSION_BYTES + 8))


def read_spans(reader: Reader, partition: int, log: bytes) -> list[Span]:
    """Return the spans of one log, in their order; raises CorruptStore."""
    prefix = kind_prefix(partition, ABSORBED) + log
    start = prefix
    found: list[Span] = []
    while start:
        rows = reader.scan(start, end_of(prefix), _ROWS)
        found.extend([decode_span(key, value) for key, value in rows if log_of_chunk(key) == log])
        start = rows[-1][0] + b"\0" if len(rows) == _ROWS else b""
    return found


def origin_at(spans: list[Span], offset: int) -> Origin | None:
    """Return the origin of a record; None if it was written here, in the chunk in which it is."""
    index = span_at(spans, offset)
    if index < 0 or offset >= spans[index].end:
        return None
    return spans[index].origin.behind(offset - spans[index].first)


def span_at(spans: list[Span], offset: int) -> int:
    """Return the index of the last span that begins at or before an offset, -1 if there is none."""
    return bisect_right(spans, offset, key=_first_of) - 1


def _first_of(span: Span) -> int:
    return span.first
