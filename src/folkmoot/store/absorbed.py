"""Rows ABSORBED: which records of a log were appended again from a branch, and what had written them there.

When another side takes this log for a branch in turn, it skips the records that it has seen by that: it may be the side
from which they came. A span of offsets [first, end) has one row: the key ends with `first`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_u64, u64
from folkmoot.store.chunk import MAGIC
from folkmoot.store.key import ABSORBED, end_of, kind_prefix, log_of_chunk, sequence_of
from folkmoot.store.reader import Reader
from folkmoot.store.writer import VERSION_BYTES

__all__ = [
    "ORIGIN_BYTES",
    "Span",
    "absorbed_key",
    "decode_span",
    "encode_span",
    "origin_at",
    "origin_of_leftover",
    "read_spans",
    "span_at",
]

ORIGIN_BYTES: Final = 2 * VERSION_BYTES
_ROWS: Final = 1024


class Span:
    """Records with offsets in [first, end).

    origin: the version (`store.writer`) of their chunk at the branch, and the position of the branch in the same form.
    """

    def __init__(self, first: int, end: int, origin: bytes) -> None:
        self.first = first
        self.end = end
        self.origin = origin


def absorbed_key(partition: int, log: bytes, first: int) -> bytes:
    """Return the key of a span; log: as `log_of_chunk`."""
    return kind_prefix(partition, ABSORBED) + log + u64(first)


def encode_span(span: Span) -> bytes:
    """Return the value of a row, without its own version."""
    assert span.first < span.end, "a span has records"
    return u64(span.end) + span.origin


def decode_span(key: bytes, value: bytes) -> Span:
    """Read a row, its own version included; raises CorruptStore."""
    if len(value) != VERSION_BYTES + 8 + ORIGIN_BYTES:
        raise CorruptStore("a row that says where records came from has another length")
    return Span(sequence_of(key), get_u64(value, VERSION_BYTES), value[VERSION_BYTES + 8 :])


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


def origin_of_leftover(value: bytes) -> bytes:
    """Return where the records in a LEFTOVER row came from; empty in a row of an older build, which has noted none."""
    return b"" if value.startswith(MAGIC, VERSION_BYTES) else value[VERSION_BYTES : VERSION_BYTES + ORIGIN_BYTES]


def origin_at(spans: list[Span], offset: int) -> bytes:
    """Return the origin of a record; empty if it was written here."""
    index = span_at(spans, offset)
    return spans[index].origin if index >= 0 and offset < spans[index].end else b""


def span_at(spans: list[Span], offset: int) -> int:
    """Return the index of the last span that begins at or before an offset, -1 if there is none."""
    return bisect_right(spans, offset, key=_first_of) - 1


def _first_of(span: Span) -> int:
    return span.first
