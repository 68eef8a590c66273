"""A stream with one log on a store in memory, and its writer: no node around it."""

from __future__ import annotations

from folkmoot.store.memory import MemoryStore
from folkmoot.store.writer import Writer
from folkmoot.streams.log import StreamLog
from folkmoot.streams.table import Streams

__all__ = ["StreamCopy"]


class StreamCopy:
    """One copy of the stream; who derives from it sets the attributes."""

    store: MemoryStore
    writer: Writer
    streams: Streams

    @property
    def log(self) -> StreamLog:
        """The log of the stream."""
        return self.streams.streams[0].logs[0]

    def end(self) -> None:
        """End the turn: what was appended is on the disk."""
        self.streams.flush(self.writer)
        batch = self.writer.take()
        if batch is not None:
            self.store.apply(batch)
            self.streams.written(batch.token)
