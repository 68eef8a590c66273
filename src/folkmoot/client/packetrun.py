"""Search for runs of packets of equal length in a chunk of a stream, without a step per packet.

Owns the arithmetic of columns: byte k of n packets of the same length is one strided slice, compared at C speed. A
generator that took a microsecond per message would measure itself instead of the broker. Keeps no state.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MALFORMED", "column", "find_packet_end", "measure_run", "reply_to_ids"]

MALFORMED: Final = -1


def measure_run(data: bytes, start: int, stride: int, head: bytes) -> int:
    """Return the number of consecutive complete packets of `stride` bytes that begin with `head`, from `start` on.

    By induction: packet i begins at start + i * stride, because the packets before it, with their remaining length in
    `head`, end there. So the first packet that differs ends the run, regardless of the column behind it.
    """
    count = (len(data) - start) // stride
    if count <= 0 or not data.startswith(head, start):
        return 0
    if count == 1:
        return 1
    for i, byte in enumerate(head):
        if count == 1:
            break
        seen = data[start + i : start + count * stride : stride]
        count -= len(seen.lstrip(bytes((byte,))))
    return count


def column(data: bytes, start: int, offset: int, count: int, stride: int) -> bytes:
    """Return the byte at `offset` of each of `count` packets from `start` on."""
    return data[start + offset : start + count * stride : stride]


def reply_to_ids(head: bytes, data: bytes, start: int, id_at: int, count: int, stride: int) -> bytes:
    """Return `count` four-byte packets with this head and the packet ids at `id_at` of the packets in a run."""
    out = bytearray(4 * count)
    out[0::4] = head[:1] * count
    out[1::4] = head[1:2] * count
    out[2::4] = column(data, start, id_at, count, stride)
    out[3::4] = column(data, start, id_at + 1, count, stride)
    return bytes(out)


def find_packet_end(data: bytes, start: int) -> int:
    """Return the end of the packet at `start`; 0 if it is not complete, `MALFORMED` if its length has five bytes."""
    length = 0
    for i in range(4):
        if start + 1 + i >= len(data):
            return 0
        byte = data[start + 1 + i]
        length |= (byte & 127) << (7 * i)
        if byte < 128:
            end = start + 2 + i + length
            return end if end <= len(data) else 0
    return MALFORMED
