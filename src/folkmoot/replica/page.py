"""Pages: the rows of a key range as far as a bound of bytes allows, and their digest."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from folkmoot.kernel.pack import u32
from folkmoot.store.reader import Reader

__all__ = ["bytes_of", "digest_of", "read_page"]

_ROWS_FIRST: Final = 16
_ROWS_MAX: Final = 4096


def read_page(reader: Reader, start: bytes, end: bytes, page_bytes: int) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return rows with start <= key < end and where the next page starts (`end` after the last).

    A page has about `page_bytes`, or a few rows more. Rows may have a megabyte each, so it reads small portions.
    Raises CorruptStore.
    """
    rows: list[tuple[bytes, bytes]] = []
    size = 0
    portion = _ROWS_FIRST
    while True:
        part = reader.scan(start, end, portion)
        part_bytes = bytes_of(part)
        rows.extend(part)
        size += part_bytes
        if len(part) < portion:
            return rows, end
        start = part[-1][0] + b"\0"
        if size >= page_bytes or len(rows) >= _ROWS_MAX:
            return rows, start
        portion = min(max((page_bytes - size) * portion // (part_bytes + 1), 1), 4 * portion, _ROWS_MAX - len(rows))


def bytes_of(rows: list[tuple[bytes, bytes]]) -> int:
    """Return the bytes of keys and values."""
    size = 0
    for key, value in rows:
        size += len(key) + len(value)
    return size


def digest_of(rows: list[tuple[bytes, bytes]]) -> bytes:
    """Return 16 bytes that are equal for equal rows, versions included."""
    state = blake2b(digest_size=16)
    for key, value in rows:
        state.update(u32(len(key)) + key + u32(len(value)))
        state.update(value)
    return state.digest()
