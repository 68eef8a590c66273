"""Rows of transactions: what an app has staged, what it has committed, and what of that is published.

A transaction is (app, number): a writer stages messages in parts, each in chunks, and commits all of them at once;
they are then published, one chunk per change. The rows are in the home partition of the app. This module owns their
keys and values, and decides nothing about them. docs/adr/0010.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.hash import hash64
from folkmoot.kernel.pack import get_u16, get_u32, get_u64, get_varint, u16, u32, u64, varint
from folkmoot.store.key import COMMITTED, name_of, name_prefix

__all__ = [
    "PUBLISHER_PREFIX",
    "ChunkKey",
    "StagedRow",
    "TransactionRow",
    "committed_key",
    "decode_parts",
    "decode_staged",
    "decode_transaction",
    "encode_parts",
    "encode_staged",
    "encode_transaction",
    "home_of",
    "number_prefix",
    "part_prefix",
    "chunk_key_of",
    "staged_key",
]

PUBLISHER_PREFIX: Final = "$transaction/"
"""Prefix of an app's name where a client id is expected: no client id may begin with it."""

_FORMAT: Final = b"\x01"
_NUMBER_BYTES: Final = 8


def home_of(app: bytes, partitions: int) -> int:
    """Return the home partition of an app; the name of an app is not a client id, a topic or a stream."""
    return hash64(b"\0t" + app) % partitions


class TransactionRow:
    """An app: `last` is its newest committed number, -1 = none, at `committed_us`.

    published: messages since its first transaction; base: below the numbers under which they are published. at: the
    oldest transaction that is not completely published (-1 = none); of it, everything before chunk `chunk` of part
    `part`, counted from 0, is published.
    """

    def __init__(self) -> None:
        self.last = -1
        self.committed_us = 0
        self.published = 0
        self.base = 0
        self.at = -1
        self.part = 0
        self.chunk = 0

    def __repr__(self) -> str:
        return f"TransactionRow(last={self.last} published={self.published} at={self.at}/{self.part}/{self.chunk})"


def encode_transaction(row: TransactionRow) -> bytes:
    """Return the body of a TRANSACTION row."""
    numbers = [row.last + 1, row.committed_us, row.published, row.at + 1, row.part, row.chunk, row.base]
    return _FORMAT + b"".join([varint(number) for number in numbers])


def decode_transaction(data: bytes) -> TransactionRow:
    """Read the body of a TRANSACTION row; raises CorruptStore."""
    numbers: list[int] = []
    pos = _check_format(data)
    try:
        for _ in range(7):
            number, pos = get_varint(data, pos)
            numbers.append(number)
    except IndexError:
        raise CorruptStore("the row of a transaction is damaged: it ends too early") from None
    row = TransactionRow()
    row.last = numbers[0] - 1
    row.committed_us = numbers[1]
    row.published = numbers[2]
    row.at = numbers[3] - 1
    row.part = numbers[4]
    row.base = numbers[6]
    row.chunk = numbers[5]
    return row


def encode_parts(committed_us: int, parts: list[tuple[bytes, int]]) -> bytes:
    """Return the body of a COMMITTED row: the parts of a transaction, in order, with their numbers of chunks."""
    out = [_FORMAT, u64(committed_us), varint(len(parts))]
    for name, chunks in parts:
        out.append(u16(len(name)))
        out.append(name)
        out.append(varint(chunks))
    return b"".join(out)


def decode_parts(data: bytes) -> tuple[int, list[tuple[bytes, int]]]:
    """Return when a transaction was committed, and its parts; raises CorruptStore."""
    pos = _check_format(data)
    parts: list[tuple[bytes, int]] = []
    try:
        committed_us = get_u64(data, pos)
        count, pos = get_varint(data, pos + 8)
        for _ in range(count):
            end = pos + 2 + get_u16(data, pos)
            name = data[pos + 2 : end]
            chunks, pos = get_varint(data, end)
            parts.append((name, chunks))
    except IndexError:
        raise CorruptStore("the row of a committed transaction is damaged: it ends too early") from None
    return committed_us, parts


class StagedRow:
    """A staged chunk: when it arrived, and its number of messages and bytes."""

    def __init__(self, staged_us: int, count: int, size: int) -> None:
        self.staged_us = staged_us
        self.count = count
        self.size = size

    def __repr__(self) -> str:
        return f"StagedRow({self.count} messages, {self.size} bytes)"


def encode_staged(row: StagedRow) -> bytes:
    """Return the body of a STAGED row."""
    return _FORMAT + varint(row.staged_us) + varint(row.count) + varint(row.size)


def decode_staged(data: bytes) -> StagedRow:
    """Read the body of a STAGED row; raises CorruptStore."""
    pos = _check_format(data)
    try:
        staged_us, pos = get_varint(data, pos)
        count, pos = get_varint(data, pos)
        size, pos = get_varint(data, pos)
    except IndexError:
        raise CorruptStore("the row of a staged chunk is damaged: it ends too early") from None
    return StagedRow(staged_us, count, size)


def _check_format(data: bytes) -> int:
    if data[:1] != _FORMAT:
        raise CorruptStore(f"a transaction has format {data[:1].hex() or 'nothing'}; this version reads format 1")
    return 1


# -- keys -------------------------------------------------------------------------------------------------------------


def committed_key(partition: int, app: bytes, number: int) -> bytes:
    """Return the key of a transaction that is not completely published."""
    return name_prefix(partition, COMMITTED, app) + u64(number)


def number_prefix(partition: int, kind: int, app: bytes, number: int) -> bytes:
    """Return the prefix of all that is staged for one transaction; kind: STAGED or PACKETS."""
    return name_prefix(partition, kind, app) + u64(number)


def part_prefix(partition: int, kind: int, app: bytes, number: int, part: bytes) -> bytes:
    """Return the prefix of the chunks of one part; kind: STAGED or PACKETS."""
    return number_prefix(partition, kind, app, number) + u16(len(part)) + part


def staged_key(partition: int, kind: int, app: bytes, number: int, part: bytes, chunk: int) -> bytes:
    """Return the key of a chunk; kind: STAGED or PACKETS."""
    return part_prefix(partition, kind, app, number, part) + u32(chunk)


class ChunkKey:
    """The transaction, part and number of a chunk."""

    def __init__(self, app: bytes, number: int, part: bytes, chunk: int) -> None:
        self.app = app
        self.number = number
        self.part = part
        self.chunk = chunk

    def __repr__(self) -> str:
        return f"ChunkKey({self.app!r} {self.number} {self.part!r} {self.chunk})"


def chunk_key_of(key: bytes) -> ChunkKey:
    """Return the content of a key made by `staged_key`; raises IndexError if it is truncated."""
    app = name_of(key)
    start = 5 + len(app)
    number = get_u64(key, start)
    begin = start + _NUMBER_BYTES + 2
    end = begin + get_u16(key, begin - 2)
    return ChunkKey(app, number, key[begin:end], get_u32(key, end))
