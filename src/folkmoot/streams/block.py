"""Records that are not in a chunk yet, or in a chunk that may still grow. Owns when small chunks are merged.

An idle node ends a turn with one or two records per stream partition. Chunks of that size would cost the store a row,
and readers a decoding, per record. So the newest small blocks stay in memory, and the block of a turn absorbs those
before it that are not much larger than itself. Each record is rewritten a logarithmic number of times, no merged chunk
exceeds MERGE_BYTES_MAX, and a stream partition has only a few small chunks, all at its end.
"""

from __future__ import annotations

from typing import Final

from folkmoot.store.chunk import CHUNK_BYTES_MAX, HEAD_BYTES, SPAN_US_MAX
from folkmoot.store.record import Record

__all__ = ["MERGE_BYTES_MAX", "Block"]

MERGE_BYTES_MAX: Final = 32_768
"""Chunks are merged up to this size: a rewrite then costs little compared with the sync that the turn waits for."""


class Block:
    """Consecutive records from offset `first` on; `stored`: the store has a chunk that begins with them."""

    def __init__(self, first: int, position: int) -> None:
        self.first = first
        self.position = position
        self.times: list[int] = []
        self.records: list[Record] = []
        self.bytes = HEAD_BYTES
        self.stored = False

    def takes(self, record: Record, time_us: int) -> bool:
        """Return whether `record` may be added to the block; the first always may."""
        if not self.times:
            return True
        return self.bytes + record.size <= CHUNK_BYTES_MAX and time_us - self.times[0] <= SPAN_US_MAX

    def add(self, record: Record, time_us: int) -> None:
        """Append `record`."""
        self.records.append(record)
        self.times.append(time_us)
        self.bytes += record.size

    def fits_before(self, later: Block) -> bool:
        """Return whether this block and the next one fit into one chunk."""
        return (
            self.bytes + later.bytes <= MERGE_BYTES_MAX
            and later.times[len(later.times) - 1] - self.times[0] <= SPAN_US_MAX
        )

    def worth_joining(self, later: Block) -> bool:
        """Return whether this block is worth rewriting: it is at most twice as large as the block behind it."""
        return self.bytes <= 2 * later.bytes

    def join(self, later: Block) -> None:
        """Absorb the records of the next block."""
        self.records.extend(later.records)
        self.times.extend(later.times)
        self.bytes += later.bytes - HEAD_BYTES

    def __repr__(self) -> str:
        return f"Block([{self.first}, {self.first + len(self.records)}), {self.bytes} bytes, stored={self.stored})"
