"""Fixed-width big-endian integers and varints in byte strings, for rows, chunks and frames."""

from __future__ import annotations

from typing import Final

__all__ = ["BYTE", "U16", "get_u16", "get_u32", "get_u64", "get_varint", "u16", "u32", "u64", "varint"]

U16: Final[list[bytes]] = [n.to_bytes(2, "big") for n in range(65536)]
"""Every 16-bit integer as two bytes.

A look-up is three times cheaper than packing, and every message has a packet id.
"""


BYTE: Final[list[bytes]] = [bytes([n]) for n in range(256)]
"""Every byte as bytes of length one."""


def u16(value: int) -> bytes:
    """Return `value` (0 to 65535) as 2 bytes."""
    return U16[value]


def u32(value: int) -> bytes:
    """Return `value` (0 to 2**32 - 1) as 4 bytes."""
    return value.to_bytes(4, "big")


def u64(value: int) -> bytes:
    """Return `value` (0 to 2**64 - 1) as 8 bytes."""
    return value.to_bytes(8, "big")


def get_u16(data: bytes, pos: int) -> int:
    """Return the 16-bit integer at `pos`; the caller has checked the length."""
    return data[pos] << 8 | data[pos + 1]


def get_u32(data: bytes, pos: int) -> int:
    """Return the 32-bit integer at `pos`; the caller has checked the length."""
    return data[pos] << 24 | data[pos + 1] << 16 | data[pos + 2] << 8 | data[pos + 3]


def get_u64(data: bytes, pos: int) -> int:
    """Return the 64-bit integer at `pos`; the caller has checked the length."""
    return int.from_bytes(data[pos : pos + 8], "big")


def varint(value: int) -> bytes:
    """Return `value` (>= 0, any size) as little-endian groups of seven bits (LEB128)."""
    if value < 128:
        return BYTE[value]
    out = bytearray()
    while value >= 128:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def get_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return the LEB128 integer at `pos` and the position after it; raises IndexError if the bytes end too early."""
    value = 0
    shift = 0
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, pos
        shift += 7
