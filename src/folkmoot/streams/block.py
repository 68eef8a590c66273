"""Records that are not yet, or not for good, laid out as a chunk. Owns when small chunks grow together.

A node that is not busy ends a turn with one or two records per stream partition. Left alone, such chunks would cost
the store a row and the readers a decoding per record. So the newest small blocks stay in memory, and a turn's block
takes in those before it that are not much larger than itself: each record is rewritten a logarithmic number of times,
never beyond MERGE_BYTES_MAX, and a stream partition has only a handful of small chunks, all at its end.
"""

from __future__ import annotations

from typing import Final

from folkmoot.streams.chunk import CHUNK_BYTES_MAX, HEAD_BYTES, SPAN_US_MAX
from folkmoot.streams.record import Record

__all__ = ["MERGE_BYTES_MAX", "Block"]

MERGE_BYTES_MAX: Final = 32_768
"""Chunks grow together up to this size: what a rewrite costs stays small beside the sync that the turn waits for."""


class Block:
    """Consecutive records from offset `first` on; `stored` when the store has a chunk that begins with them."""

    def __init__(self, first: int, position: int) -> None:
        self.first = first
        self.position = position
        self.times: list[int] = []
        self.records: list[Record] = []
        self.bytes = HEAD_BYTES
        self.stored = False

    def takes(self, record: Record, time_us: int) -> bool:
        """Return whether `record` may become part of the block; the first always may."""
        if not self.times:
            return True
        return self.bytes + record.size <= CHUNK_BYTES_MAX and time_us - self.times[0] <= SPAN_US_MAX

    def add(self, record: Record, time_us: int) -> None:
        """Put `record` at the end."""
        self.records.append(record)
        self.times.append(time_us)
        self.bytes += record.size

    def fits_before(self, later: Block) -> bool:
        """Return whether this block and the one right after it may become one chunk at all."""
        return (
            self.bytes + later.bytes <= MERGE_BYTES_MAX
            and later.times[len(later.times) - 1] - self.times[0] <= SPAN_US_MAX
        )

    def worth_joining(self, later: Block) -> bool:
        """Return whether rewriting this block pays: it is at most twice as large as what comes after it."""
        return self.bytes <= 2 * later.bytes

    def join(self, later: Block) -> None:
        """Take in the records of the block right after this one."""
        self.records.extend(later.records)
        self.times.extend(later.times)
        self.bytes += later.bytes - HEAD_BYTES

    def __repr__(self) -> str:
        return f"Block([{self.first}, {self.first + len(self.records)}), {self.bytes} bytes, stored={self.stored})"
