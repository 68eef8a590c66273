"""Variable byte integers: remaining lengths, property lengths, subscription identifiers (MQTT 5.0 section 1.5.5).

Decoding never raises: only the caller knows whether more bytes may arrive.
"""

from __future__ import annotations

from typing import Final

__all__ = ["INCOMPLETE", "MALFORMED", "VARINT_MAX", "decode_varint", "encode_varint", "varint_size"]

VARINT_MAX: Final = 268_435_455
INCOMPLETE: Final = -1
MALFORMED: Final = -2

_ONE_BYTE: Final[list[bytes]] = [bytes([value]) for value in range(128)]


def encode_varint(value: int) -> bytes:
    """Return the 1 to 4 bytes of an integer from 0 to VARINT_MAX."""
    if value < 128:
        return _ONE_BYTE[value]
    if value < 16_384:
        return bytes([value & 127 | 128, value >> 7])
    if value < 2_097_152:
        return bytes([value & 127 | 128, value >> 7 & 127 | 128, value >> 14])
    assert value <= VARINT_MAX, value
    return bytes([value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127 | 128, value >> 21])


def varint_size(value: int) -> int:
    """Return the number of bytes that `encode_varint` returns for an integer."""
    if value < 128:
        return 1
    if value < 16_384:
        return 2
    return 3 if value < 2_097_152 else 4


def decode_varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return (value, position behind it) of the integer at `pos`.

    The value is INCOMPLETE if the data ends inside the integer, and MALFORMED if it has more than four bytes or more
    than it needs; the position is then `pos`.
    """
    end = len(data)
    if pos >= end:
        return INCOMPLETE, pos
    byte = data[pos]
    if byte < 128:
        return byte, pos + 1
    value = byte & 127
    at = pos + 1
    shift = 7
    while shift < 28:
        if at >= end:
            return INCOMPLETE, pos
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            # The last of several bytes is zero: fewer bytes would have been enough [MQTT-1.5.5-1].
            return (value, at) if byte != 0 else (MALFORMED, pos)
        shift += 7
    return MALFORMED, pos
