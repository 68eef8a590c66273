"""Frames of the commit log: one write each, with a checksum; and how a torn tail is told from damage.

A log is a sequence of bytes that never ends; its segments are files, each named by the position of its first byte. A
frame is

    magic (4), CRC-32C of all that follows (4), length of the body (4), position (8), durable (8), body

Position is that of the frame itself in the log: what an earlier segment left in a file, or a copied block, is no frame
here. Durable is the position up to which the log was on the disk when the frame was written. The body is a group of
operations (`store/batch`), applied together or not at all.

A crash leaves the last write in any state: missing, short, with blocks of zeros. That is a torn tail, nobody was told
of it, and it is cut. The same bytes are damage if they had been durable, and a valid frame behind them says so
(`is_durable`). After a write that nothing follows for a while, an empty frame says it.
"""

from __future__ import annotations

from typing import Final

from google_crc32c import extend
from google_crc32c import value as crc32c

from folkmoot.kernel.pack import get_u32, get_u64, get_varint, u32, u64
from folkmoot.store.batch import DELETE, Batch, encode_ops

__all__ = ["HEADER_BYTES", "durable_of", "encode_frame", "frame_end", "is_durable", "operations"]

HEADER_BYTES: Final = 28
_MAGIC: Final = b"\xf1FMl"
_COVERED: Final = 8  # where begins what the checksum covers


def encode_frame(batches: list[Batch], position: int, durable: int) -> bytes:
    """Return the frame of a group of batches, to be written at `position`."""
    assert durable <= position, "what is written next is not durable yet"
    body = b"".join([encode_ops(batch.ops) for batch in batches])
    head = u32(len(body)) + u64(position) + u64(durable)
    return b"".join([_MAGIC, u32(extend(crc32c(head), body)), head, body])


def frame_end(data: bytes, start: int, position: int) -> int:
    """Return the end of the frame at `start`, which is `position` of the log; -1: there is no valid one."""
    body = start + HEADER_BYTES
    if body > len(data) or data[start : start + 4] != _MAGIC or get_u64(data, start + 12) != position:
        return -1
    end = body + get_u32(data, start + 8)
    if end > len(data) or crc32c(data[start + _COVERED : end]) != get_u32(data, start + 4):
        return -1
    return end


def durable_of(data: bytes, start: int) -> int:
    """Return the position up to which the log was on the disk when the valid frame at `start` was written."""
    return get_u64(data, start + 20)


def is_durable(data: bytes, start: int, base: int) -> bool:
    """Tell whether a valid frame behind `start` says that the bytes there were durable; base: position of `data`."""
    lost = base + start
    at = data.find(_MAGIC, start + 1)
    while at >= 0:
        if frame_end(data, at, base + at) >= 0 and durable_of(data, at) > lost:
            return True
        at = data.find(_MAGIC, at + 1)
    return False


def operations(data: bytes, start: int, end: int) -> list[tuple[int, bytes, bytes]]:
    """Return the operations of the valid frame between `start` and `end`."""
    ops: list[tuple[int, bytes, bytes]] = []
    pos = start + HEADER_BYTES
    while pos < end:
        kind = data[pos]
        size, pos = get_varint(data, pos + 1)
        key = data[pos : pos + size]
        pos += size
        value = b""
        if kind != DELETE:
            size, pos = get_varint(data, pos)
            value = data[pos : pos + size]
            pos += size
        ops.append((kind, key, value))
    assert pos == end, "a frame with the right checksum ends with its last operation"
    return ops
