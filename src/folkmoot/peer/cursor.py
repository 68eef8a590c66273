"""Reads bytes of another node or of a row field by field: never past the end, and nothing without a bound.

Every fault is a ValueError with a text for the log. Bytes after the last field that is read belong to later versions.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import varint

__all__ = ["Cursor", "put_bytes", "put_text"]

_TEXT_BYTES_MAX: Final = 1024  # ids, addresses, zones, versions
_VARINT_BYTES_MAX: Final = 10  # 70 bits: an epoch has 64


def put_bytes(data: bytes) -> bytes:
    """Return `data` behind its length."""
    return varint(len(data)) + data


def put_text(text: str) -> bytes:
    """Return `text` in UTF-8 behind its length in bytes."""
    return put_bytes(text.encode())


class Cursor:
    """A position in bytes; each method reads one field and moves behind it."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._pos = 0
        self._what = what

    def done(self) -> bool:
        """Tell whether all bytes are read."""
        return self._pos >= len(self._data)

    def byte(self) -> int:
        """Read one byte."""
        pos = self._pos
        if pos >= len(self._data):
            raise ValueError(f"{self._what} ends too early")
        self._pos = pos + 1
        return self._data[pos]

    def integer(self) -> int:
        """Read a varint of at most 70 bits."""
        data = self._data
        pos = self._pos
        value = 0
        shift = 0
        end = min(len(data), pos + _VARINT_BYTES_MAX)
        while pos < end:
            byte = data[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 128:
                self._pos = pos
                return value
            shift += 7
        raise ValueError(f"{self._what} has an integer that does not end")

    def count(self, most: int) -> int:
        """Read a count of at most `most` items, each of which takes at least one byte."""
        value = self.integer()
        if value > most or value > len(self._data) - self._pos:
            raise ValueError(f"{self._what} says that {value} things follow")
        return value

    def bytes_(self) -> bytes:
        """Read bytes behind their length."""
        length = self.integer()
        pos = self._pos
        if length > len(self._data) - pos:
            raise ValueError(f"{self._what} ends too early")
        self._pos = pos + length
        return self._data[pos : pos + length]

    def text(self) -> str:
        """Read UTF-8 text of at most 1,024 bytes behind its length."""
        data = self.bytes_()
        if len(data) > _TEXT_BYTES_MAX:
            raise ValueError(f"{self._what} has a text of {len(data)} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{self._what} has a text that is not UTF-8") from None
