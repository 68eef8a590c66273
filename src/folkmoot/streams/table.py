"""All streams of a node: which stream partitions match a topic, which must be flushed, what can be read."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.hash import hash64
from folkmoot.kernel.pack import u16
from folkmoot.store.reader import Reader
from folkmoot.store.writer import Writer
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.log import StreamLog
from folkmoot.topics.name import matches

__all__ = ["Stream", "Streams", "store_partition"]

TRIM_CALLS: Final = 16
"""Stream partitions examined per call of `Streams.trim`."""


def store_partition(name: str, index: int, partitions: int) -> int:
    """Return the partition of the store that has partition `index` of the stream `name`; the store has `partitions`."""
    return hash64(name.encode() + b"/" + u16(index)) % partitions


class Stream:
    """One stream: its settings and its stream partitions in order."""

    def __init__(self, config: StreamConfig, logs: list[StreamLog]) -> None:
        self.config = config
        self.logs = logs

    def describe(self) -> dict[str, object]:
        """Return the stream for the HTTP API: its settings and the offsets of each stream partition."""
        config = self.config
        ranges: list[dict[str, object]] = [
            {
                "partition": log.index,
                "oldest": log.oldest,
                "next": log.readable_end,
                "bytes": log.bytes,
                "oldest_time_us": log.oldest_time_us,
                "latest_time_us": log.latest_time_us,
            }
            for log in self.logs
        ]
        return {
            "name": config.name,
            "filter": config.filter.decode(),
            "partitions": config.partitions,
            "retention_us": config.retention_us or None,
            "retention_bytes": config.retention_bytes or None,
            "ranges": ranges,
        }


class Flushed:
    """A stream partition with records in a batch that is not durable yet."""

    def __init__(self, token: int, log: StreamLog, next_offset: int) -> None:
        self.token = token
        self.log = log
        self.next_offset = next_offset


class Streams:
    """The streams of one node on the store `reader` with `partitions` partitions."""

    def __init__(self, configs: list[StreamConfig], partitions: int, reader: Reader) -> None:
        self.streams: list[Stream] = []
        self._names: dict[str, Stream] = {}
        self._logs: list[StreamLog] = []
        self._changed: list[StreamLog] = []
        self._flushed: list[Flushed] = []
        self.trimmed_records = 0  # by retention, since the start
        self.trimmed_bytes = 0
        self._released: list[StreamLog] = []  # no longer held; their new records are not reported yet
        self.growth = 0  # incremented when something becomes readable: waiting readers then look again
        self._cursor = 0  # where the next call of `trim` continues
        self.fault = ""  # what retention could not read; the caller clears it
        self._trim_more = False
        self._held: list[bool] = [False] * partitions
        self._reader = reader
        for config in configs:
            assert config.name not in self._names, f"two streams are called {config.name}"
            logs: list[StreamLog] = []
            for index in range(config.partitions):
                log = StreamLog(config, index, store_partition(config.name, index, partitions), reader)
                log.changed = self._changed
                logs.append(log)
            stream = Stream(config, logs)
            self.streams.append(stream)
            self._names[config.name] = stream
            self._logs.extend(logs)

    def open(self) -> None:
        """Read the bounds of all stream partitions; raises CorruptStore or StoreError."""
        for log in self._logs:
            log.open()

    def logs_in(self, partition: int) -> list[StreamLog]:
        """Return the stream partitions in one partition of the store."""
        return [log for log in self._logs if log.store_partition == partition]

    def open_in(self, partition: int) -> None:
        """Read the bounds of the stream partitions in one partition of the store; raises CorruptStore or StoreError."""
        for log in self.logs_in(partition):
            log.open()

    def abandon_in(self, partition: int) -> None:
        """Undo `open_in`, and drop what was appended in this turn."""
        self._changed[:] = [log for log in self._changed if log.store_partition != partition]
        self.close_in(partition)

    def close_in(self, partition: int) -> None:
        """Close the stream partitions in one partition of the store: another node appends to them now."""
        for log in self._changed:
            assert log.store_partition != partition, "a turn ends before a stream partition moves"
        self._flushed = [flushed for flushed in self._flushed if flushed.log.store_partition != partition]
        for stream in self.streams:
            for index in range(len(stream.logs)):
                old = stream.logs[index]
                if old.store_partition == partition:
                    log = StreamLog(stream.config, index, partition, self._reader)
                    log.held = self._held[partition]
                    log.known = old.newest_readable()
                    log.changed = self._changed
                    stream.logs[index] = log
                    self._logs[self._logs.index(old)] = log

    def hold(self, partition: int, held: bool) -> None:
        """Set whether records in one partition of the store are held back from readers (promise A9)."""
        if self._held[partition] == held:
            return
        self._held[partition] = held
        for log in self._logs:
            if log.store_partition == partition and log.hold(held):
                self.growth += 1
                self._released.append(log)

    def get(self, name: str) -> Stream | None:
        """Return the stream `name`, or None."""
        return self._names.get(name)

    def match(self, topic: bytes) -> list[StreamLog]:
        """Return the stream partitions for messages on `topic`: one per stream with a matching filter."""
        return [
            stream.logs[hash64(topic) % stream.config.partitions]
            for stream in self.streams
            if matches(stream.config.filter, topic)
        ]

    @property
    def dirty(self) -> bool:
        """Whether this turn has appended a record."""
        return len(self._changed) > 0

    def flush(self, writer: Writer) -> int:
        """End a turn: put its records into the batch of `writer`; `written` with the batch's token makes them readable.

        Return the bytes of the appended records in chunks.
        """
        appended_bytes = 0
        for log in self._changed:
            appended_bytes += log.flush(writer)
            self._flushed.append(Flushed(writer.token, log, log.next_offset))
        self._changed.clear()
        return appended_bytes

    def written(self, token: int) -> list[StreamLog]:
        """Make the records of all batches up to `token` readable; return the logs with new readable records.

        These include logs that were released by `hold` since the last call.
        """
        count = 0
        grown = self._released
        self._released = []
        for flushed in self._flushed:
            if flushed.token > token:
                break
            flushed.log.committed(flushed.next_offset)
            grown.append(flushed.log)
            count += 1
        if count:
            self.growth += 1
            del self._flushed[:count]
        return grown

    def trim(self, now: int, writer: Writer) -> bool:
        """Apply retention to the next few stream partitions; return whether to call again soon."""
        end = min(self._cursor + TRIM_CALLS, len(self._logs))
        for i in range(self._cursor, end):
            log = self._logs[i]
            oldest, size_bytes = log.oldest, log.bytes
            try:
                if log.trim(now, writer):
                    self._trim_more = True
            except CorruptStore as fault:
                self.fault = str(fault)
                continue  # retention continues with the other stream partitions
            self.trimmed_records += log.oldest - oldest
            self.trimmed_bytes += size_bytes - log.bytes
        if end < len(self._logs):
            self._cursor = end
            return True
        more = self._trim_more
        self._cursor = 0
        self._trim_more = False
        return more

    def describe(self) -> dict[str, object]:
        """Return all streams for the HTTP API."""
        return {"streams": [stream.describe() for stream in self.streams]}
