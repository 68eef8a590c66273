"""Results of a read of a stream partition: a page of chunks, or why there is none. Values, not exceptions."""

from __future__ import annotations

__all__ = ["OffsetAhead", "OffsetGone", "Page"]


class Page:
    """Chunks that cover [start, next_offset); the first may begin earlier, and the last may end later.

    `oldest` and `end` are the current bounds of the readable records; no chunk has a record at or beyond `end`.
    """

    def __init__(self, chunks: list[bytes], next_offset: int, oldest: int, end: int) -> None:
        self.chunks = chunks
        self.next_offset = next_offset
        self.oldest = oldest
        self.end = end

    def __repr__(self) -> str:
        return f"Page({len(self.chunks)} chunks, next_offset={self.next_offset}, oldest={self.oldest}, end={self.end})"


class OffsetGone:
    """Retention has removed the requested offset; `oldest` is the first remaining one."""

    def __init__(self, oldest: int) -> None:
        self.oldest = oldest

    def __repr__(self) -> str:
        return f"OffsetGone(oldest={self.oldest})"


class OffsetAhead:
    """The requested offset is beyond the end; `next` is the offset of the next record that becomes readable."""

    def __init__(self, next: int) -> None:  # noqa: A002 - the word of the HTTP API
        self.next = next

    def __repr__(self) -> str:
        return f"OffsetAhead(next={self.next})"
