"""Reads encoded things strictly: every fault is `Malformed`, nothing has two encodings, nothing is without a bound.

An encoding begins with the version of its format. What goes to a disk is sealed with a CRC-32 (ISO-HDLC, as in zlib).
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from folkmoot.kernel.pack import get_u32, u32, varint
from folkmoot.raft.error import Malformed

__all__ = ["FORMAT", "INTEGER_MAX", "Reader", "put_bytes", "put_ids", "seal", "unseal"]

FORMAT: Final = 2
"""The version of all encodings of this package; a reader refuses another one."""

INTEGER_MAX: Final = (1 << 62) - 1
"""The largest term, index, id or size: a native integer of the compiled code."""

_VARINT_BYTES_MAX: Final = 9


def put_bytes(data: bytes) -> bytes:
    """Return `data` behind its length."""
    return varint(len(data)) + data


def put_ids(ids: list[int]) -> bytes:
    """Return ascending ids behind their number."""
    assert ids == sorted(ids), "ids are encoded in their order"
    return varint(len(ids)) + b"".join([varint(peer) for peer in ids])


def seal(body: bytes) -> bytes:
    """Return `body` behind its CRC-32."""
    return u32(crc32(body)) + body


def unseal(data: bytes, what: str) -> bytes:
    """Return the body of sealed bytes; raises Malformed if the checksum does not fit."""
    if len(data) < 4:
        raise Malformed(f"{what}: {len(data)} bytes are too few for a checksum")
    body = data[4:]
    if crc32(body) != get_u32(data, 0):
        raise Malformed(f"{what}: the checksum does not fit the {len(body)} bytes behind it")
    return body


class Reader:
    """A position in bytes; each method reads one field and moves behind it."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._pos = 0
        self._what = what

    def fault(self, why: str) -> Malformed:
        """Return the error for a fault before the current position."""
        return Malformed(f"{self._what}: {why} (at byte {self._pos} of {len(self._data)})")

    def version(self) -> None:
        """Read the version of the format; raises Malformed unless it is `FORMAT`."""
        found = self.byte()
        if found != FORMAT:
            raise self.fault(f"format {found} is not known, only {FORMAT}")

    def byte(self) -> int:
        """Read one byte."""
        if self._pos >= len(self._data):
            raise self.fault("it ends too early")
        value = self._data[self._pos]
        self._pos += 1
        return value

    def integer(self) -> int:
        """Read a varint of at most `INTEGER_MAX`, in its shortest form."""
        data = self._data
        value = 0
        for at in range(_VARINT_BYTES_MAX):
            if self._pos >= len(data):
                raise self.fault("it ends too early")
            byte = data[self._pos]
            self._pos += 1
            value |= (byte & 0x7F) << (7 * at)
            if byte < 128:
                if byte == 0 and at > 0:
                    raise self.fault("an integer is longer than it needs to be")
                if value > INTEGER_MAX:
                    raise self.fault(f"an integer exceeds {INTEGER_MAX}")
                return value
        raise self.fault("an integer is too long")

    def octets(self) -> bytes:
        """Read bytes behind their length."""
        length = self.integer()
        if length > len(self._data) - self._pos:
            raise self.fault(f"{length} bytes are announced, {len(self._data) - self._pos} are there")
        start = self._pos
        self._pos = start + length
        return self._data[start : self._pos]

    def ids(self) -> list[int]:
        """Read ids behind their number; they are positive and ascending."""
        ids: list[int] = []
        last = 0
        for _ in range(self.count(1)):
            found = self.integer()
            if found <= last:
                raise self.fault("ids are not positive and ascending")
            ids.append(found)
            last = found
        return ids

    def count(self, bytes_min: int) -> int:
        """Read the number of things that follow, of which each has at least `bytes_min` bytes."""
        number = self.integer()
        if number * bytes_min > len(self._data) - self._pos:
            raise self.fault(f"{number} things are announced, for which the bytes are too few")
        return number

    def end(self) -> None:
        """Check that everything is read."""
        if self._pos != len(self._data):
            raise self.fault("it goes on behind its end")
