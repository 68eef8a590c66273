"""Rows STREAM: the bounds of a stream log, and which leaderships have given out its offsets.

The *epochs* of a log are (epoch, first offset), in order: in a leadership that began to append in this epoch, the
offsets from there on were given out, up to the next entry. A copy that goes on elsewhere is opened anew, in an epoch of
its own. So two logs have the same records up to where they part: where one of them ends the newest entry that both have
(as in Kafka, KIP-101). This also holds for records that retention has removed from one of them.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_u16, get_u64, u16, u64
from folkmoot.store.writer import VERSION_BYTES

__all__ = ["EPOCHS_MAX", "UNKNOWN", "StreamRow", "decode_stream", "encode_stream", "epochs_in", "parted"]

EPOCHS_MAX: Final = 64
"""Entries that are kept, the newest: without a common one, it is not known where two logs part."""

UNKNOWN: Final = -1

_HEAD_BYTES: Final = 44
_ENTRY_BYTES: Final = 16


class StreamRow:
    """The bounds of a log when the row was written.

    partitions: of the stream. oldest: retention has removed all records before it; the row is written whenever that
    changes. next_offset and mark (the readable end) may be further by now. position: bytes that were ever appended.
    """

    def __init__(self, partitions: int, next_offset: int, clock_us: int, position: int) -> None:
        self.partitions = partitions
        self.next_offset = next_offset
        self.clock_us = clock_us
        self.position = position
        self.mark = 0
        self.oldest = 0
        self.epochs: list[tuple[int, int]] = []


def encode_stream(row: StreamRow) -> bytes:
    """Return the value of a row, without its version."""
    epochs = row.epochs[-EPOCHS_MAX:]
    head = u16(row.partitions) + u64(row.next_offset) + u64(row.clock_us) + u64(row.position)
    head += u64(row.mark) + u64(row.oldest) + u16(len(epochs))
    return head + b"".join([u64(epoch) + u64(first) for epoch, first in epochs])


def decode_stream(value: bytes) -> StreamRow:
    """Read a row, its version included; raises CorruptStore."""
    at = VERSION_BYTES
    size = len(value) - at
    if size < _HEAD_BYTES or size != _HEAD_BYTES + _ENTRY_BYTES * get_u16(value, at + 42):
        raise CorruptStore(f"a row with the bounds of a stream has {size} bytes")
    row = StreamRow(get_u16(value, at), get_u64(value, at + 2), get_u64(value, at + 10), get_u64(value, at + 18))
    row.mark = get_u64(value, at + 26)
    row.oldest = get_u64(value, at + 34)
    entries = range(at + _HEAD_BYTES, len(value), _ENTRY_BYTES)
    row.epochs = [(get_u64(value, entry), get_u64(value, entry + 8)) for entry in entries]
    return row


def parted(mine: list[tuple[int, int]], my_end: int, theirs: list[tuple[int, int]]) -> int:
    """Return the offset up to which two logs have, or had, the same records; UNKNOWN if their epochs do not tell.

    my_end: where this log ends. The other one may go on as far as it likes.
    """
    places = {entry: place for place, entry in enumerate(theirs)}
    for here in range(len(mine) - 1, -1, -1):
        there = places.get(mine[here], -1)
        if there >= 0:
            end = mine[here + 1][1] if here + 1 < len(mine) else my_end
            return min(end, theirs[there + 1][1]) if there + 1 < len(theirs) else end
    is_whole = (mine[0][1] if mine else my_end) == 0 and len(theirs) > 0 and theirs[0][1] == 0
    return 0 if is_whole else UNKNOWN  # both are known from their beginning, and have nothing in common


def epochs_in(epochs: list[tuple[int, int]], first: int, end: int) -> list[tuple[int, int]]:
    """Return the entries for the offsets in [first, end)."""
    found: list[tuple[int, int]] = []
    for place, (epoch, start) in enumerate(epochs):
        stop = epochs[place + 1][1] if place + 1 < len(epochs) else end
        if max(start, first) < min(stop, end):
            found.append((epoch, max(start, first)))
    return found
