"""The columns of a stream in Spark, decoded from chunks: vectorised, a page at a time, no loop over records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from folkmoot.client.entry import properties_of
from folkmoot.client.streams import ChunkPage
from folkmoot.mqtt.packet import Properties
from folkmoot.store.chunk import (
    FLAGS,
    HEAD_BYTES,
    PAYLOAD_LENGTHS,
    PROPERTY_LENGTHS,
    PUBLISHER_LENGTHS,
    TIMES,
    TOPIC_LENGTHS,
    Head,
)

__all__ = ["COLUMNS", "batches", "struct"]

TYPES: Final = {
    "partition": IntegerType(),
    "offset": LongType(),
    "topic": StringType(),
    "payload": BinaryType(),
    "qos": IntegerType(),
    "retain": BooleanType(),
    "publisher": StringType(),
    "content_type": StringType(),
    "user_properties": MapType(StringType(), StringType()),
    "response_topic": StringType(),
    "correlation_data": BinaryType(),
    "timestamp": TimestampType(),
}

COLUMNS: Final = tuple(TYPES)

_PROPERTY_COLUMNS: Final = ("content_type", "user_properties", "response_topic", "correlation_data")


def struct(columns: tuple[str, ...]) -> StructType:
    """Return the Spark schema of `columns`."""
    return StructType([StructField(column, TYPES[column]) for column in columns])


def batches(
    partition: int, page: ChunkPage, start: int, end: int, schema: pa.Schema, topic_prefix: str | None
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `page` with offsets in [start, end) as record batches of `schema`, each record once."""
    at = start
    run: list[tuple[int, Head]] = []
    for position, head in [*page.chunks, (0, None)]:
        # Consecutive chunks become one batch; a chunk that overlaps the previous one begins a new batch.
        if head is not None and (not run or run[-1][1].end == head.first):
            run.append((position, head))
            continue
        first, last = run[0][1].first, min(run[-1][1].end, end) if run else 0
        if run and at < last:
            batch = _Table(partition, page.data, run, schema, topic_prefix is not None).batch()
            batch = batch.slice(at - first, last - at)
            yield _only(batch, schema, topic_prefix)
            at = last
        run = [] if head is None else [(position, head)]


def _only(batch: pa.RecordBatch, schema: pa.Schema, topic_prefix: str | None) -> pa.RecordBatch:
    if topic_prefix is None:
        return batch
    import pyarrow.compute as pc  # slow to import, and each Python process of Spark would do it

    batch = batch.filter(pc.starts_with(batch.column("topic"), topic_prefix))
    return batch.select(schema.names)


class _Table:
    """The columns of consecutive chunks, each made when it is asked for."""

    def __init__(
        self, partition: int, data: bytes, run: list[tuple[int, Head]], schema: pa.Schema, with_topic: bool
    ) -> None:
        self.partition = partition
        self.run = run
        self.first = run[0][1].first
        self.count = sum(head.count for _, head in run)
        self.schema = (
            schema.append(pa.field("topic", pa.string())) if with_topic and "topic" not in schema.names else schema
        )
        self._data = memoryview(data)
        self._indices: pa.Array | None = None
        self._parsed: list[Properties] = []

    def batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._column(name) for name in self.schema.names], schema=self.schema)

    def _column(self, name: str) -> pa.Array:
        if name in _PROPERTY_COLUMNS:
            return self._properties(name)
        make = getattr(self, "_" + name)
        return make()

    def _fixed(self, skip: int, width: int, kind: str) -> Any:
        """Join one array of fixed width, `skip` bytes per record after the head, over all chunks."""
        parts = []
        for position, head in self.run:
            begin = position + HEAD_BYTES + skip * head.count
            parts.append(self._data[begin : begin + width * head.count])
        return np.frombuffer(b"".join(parts), dtype=kind)

    def _variable(self, index: int, skip: int, width: int, kind: pa.DataType) -> pa.Array:
        """Join data column `index`, with lengths of `width` bytes at `skip`, over all chunks."""
        parts = []
        for position, head in self.run:
            begin = position + head.length - sum(head.columns[index:])
            parts.append(self._data[begin : begin + head.columns[index]])
        ends = np.zeros(self.count + 1, dtype=np.int32)
        np.cumsum(self._fixed(skip, width, f"<u{width}"), out=ends[1:], dtype=np.int32)
        return pa.Array.from_buffers(kind, self.count, [None, pa.py_buffer(ends), pa.py_buffer(b"".join(parts))])

    def _partition(self) -> pa.Array:
        return pa.array(np.full(self.count, self.partition, dtype=np.int32))

    def _offset(self) -> pa.Array:
        return pa.array(np.arange(self.first, self.first + self.count, dtype=np.int64))

    def _topic(self) -> pa.Array:
        return self._variable(0, TOPIC_LENGTHS, 2, pa.string())

    def _payload(self) -> pa.Array:
        return self._variable(1, PAYLOAD_LENGTHS, 4, pa.binary())

    def _publisher(self) -> pa.Array:
        return self._variable(2, PUBLISHER_LENGTHS, 2, pa.string())

    def _qos(self) -> pa.Array:
        return pa.array((self._fixed(FLAGS, 1, "u1") & 3).astype(np.int32))

    def _retain(self) -> pa.Array:
        return pa.array((self._fixed(FLAGS, 1, "u1") & 4) != 0)

    def _timestamp(self) -> pa.Array:
        base = np.array([head.base_us for _, head in self.run], dtype=np.int64)
        counts = np.array([head.count for _, head in self.run])
        times = np.repeat(base, counts) + self._fixed(TIMES, 4, "<u4")
        return pa.array(times).view(pa.timestamp("us", tz="UTC"))

    def _properties(self, name: str) -> pa.Array:
        """Decode MQTT properties: record by record, but only those that are not empty, and equal ones only once."""
        kind = self.schema.field(name).type
        if sum(head.columns[3] for _, head in self.run) == 0:
            return pa.array([_property(name, Properties())], type=kind).take(pa.array(np.zeros(self.count, np.int32)))
        if self._indices is None:
            encoded = self._variable(3, PROPERTY_LENGTHS, 4, pa.binary()).dictionary_encode()
            self._indices = encoded.indices
            self._parsed = [properties_of(value) for value in encoded.dictionary.to_pylist()]
        return pa.array([_property(name, properties) for properties in self._parsed], type=kind).take(self._indices)


def _property(name: str, properties: Properties) -> Any:
    """Return one property of a record; of user properties with the same name, the last."""
    if name == "user_properties":
        # Empty, never null: for null maps the time of Spark 4.3's Arrow writer grows with their square.
        return list(dict(properties.user_properties).items())
    value = getattr(properties, name)
    return value.decode() if name == "response_topic" and value is not None else value
