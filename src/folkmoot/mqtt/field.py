"""Decoding and encoding of the data types in packets: integers, binary data, strings (MQTT 5.0 section 1.5).

Owns lengths and bounds. Does not know the packet that a field belongs to.
"""

from __future__ import annotations

from typing import Final

from folkmoot.mqtt.error import malformed
from folkmoot.mqtt.text import check_utf8, decode_text

__all__ = ["BINARY_BYTES_MAX", "read_binary", "read_text", "read_u16", "read_u32", "read_utf8", "write_binary"]

BINARY_BYTES_MAX: Final = 65_535


def read_u16(data: bytes, pos: int, end: int) -> int:
    """Return the big-endian two byte integer at `pos`; raises MalformedPacket if it crosses `end`."""
    if pos + 2 > end:
        raise malformed("the packet ends inside a two byte integer")
    return data[pos] << 8 | data[pos + 1]


def read_u32(data: bytes, pos: int, end: int) -> int:
    """Return the big-endian four byte integer at `pos`; raises MalformedPacket if it crosses `end`."""
    if pos + 4 > end:
        raise malformed("the packet ends inside a four byte integer")
    return data[pos] << 24 | data[pos + 1] << 16 | data[pos + 2] << 8 | data[pos + 3]


def read_binary(data: bytes, pos: int, end: int) -> tuple[bytes, int]:
    """Return (bytes, position behind them) of the length-prefixed field at `pos`; raises MalformedPacket."""
    start = pos + 2
    if start > end:
        raise malformed("the packet ends inside a length")
    stop = start + (data[pos] << 8 | data[pos + 1])
    if stop > end:
        raise malformed("a field is longer than the rest of the packet")
    return data[start:stop], stop


def read_utf8(data: bytes, pos: int, end: int) -> tuple[bytes, int]:
    """Return (checked UTF-8 bytes, position behind them) of the string at `pos`; raises MalformedPacket."""
    value, stop = read_binary(data, pos, end)
    if not check_utf8(value):
        # [MQTT-1.5.4-1] [MQTT-1.5.4-2]
        raise malformed("a string is not legal UTF-8")
    return value, stop


def read_text(data: bytes, pos: int, end: int) -> tuple[str, int]:
    """Return (str, position behind it) of the string at `pos`; raises MalformedPacket."""
    value, stop = read_binary(data, pos, end)
    return decode_text(value), stop


def write_binary(value: bytes) -> bytes:
    """Return `value` with its two byte length in front; at most 65,535 bytes [MQTT-4.7.3-3]."""
    length = len(value)
    assert length <= BINARY_BYTES_MAX, length
    return length.to_bytes(2, "big") + value
