"""The format `folkmoot`: a stream of Folkmoot as a batch or as a stream of Spark, or with option `table` a table.

Implements Spark's interface: offsets, admission, tasks. The records between two offsets never change (promise A9), so
Spark's log of offsets is the only state, and a killed driver or task repeats exactly what it did.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType
from typing_extensions import override

from folkmoot.client.near import nearest
from folkmoot.client.position import EARLIEST, LATEST
from folkmoot.client.problem import OffsetAhead, OffsetGone
from folkmoot.client.streams import PartitionRange, StreamClient
from folkmoot.kernel.errors import FolkmootError
from pyspark_folkmoot.column import batches, struct
from pyspark_folkmoot.offset import START, Offsets, Span, end_within, from_json, gather, split, start_of, to_json
from pyspark_folkmoot.plan import Plan
from pyspark_folkmoot.table import TablePlan, TableReader, asks_for_table

__all__ = ["DataLost", "FolkmootStreams", "NotThere"]

RESOLVE: Final = "resolve"
PAGE_BYTES: Final = 4_194_304

_log: Final = logging.getLogger("pyspark_folkmoot")


class DataLost(FolkmootError):
    """Records were removed before they were read."""


class NotThere(FolkmootError):
    """No reachable node has records that existed before. Unreachable nodes may have them, so nothing is skipped."""


class FolkmootStreams(DataSource):
    """`spark.read`, `readStream`, `df.write` and `writeStream` with `.format("folkmoot")`; options: docs/pipeline.

    Reading and writing have different options, and Spark says which it is only when it requests a reader or a writer.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)  # type: ignore[arg-type]
        self.table = TablePlan(options) if asks_for_table(options) else None
        self._given = dict(options)
        self._plan: Plan | None = None

    @property
    def plan(self) -> Plan:
        """The options of a read of a stream."""
        if self._plan is None:
            self._plan = Plan(self._given)
        return self._plan

    @classmethod
    @override
    def name(cls) -> str:
        return "folkmoot"

    @override
    def schema(self) -> StructType:
        return struct(self.plan.columns) if self.table is None else self.table.struct()

    @override
    def reader(self, schema: StructType) -> DataSourceReader:
        if self.table is not None:
            return TableReader(self.table, schema)
        for name in ("maxRecordsPerTrigger",):
            if self.plan.options.given(name):
                raise self.plan.options.wrong(name, "is for readStream, this is a batch read")
        return BatchReader(self.plan, schema)

    @override
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if self.table is not None:
            raise self.table.options.wrong("table", "is for a batch read, this is readStream")
        if self.plan.ending == LATEST:
            raise self.plan.options.wrong("endingOffsets", "is 'latest', which is for a batch read, this is readStream")
        return StreamReader(self.plan, schema)

    @override
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from pyspark_folkmoot.sink import BatchSink, sink_plan

        plan = sink_plan(self._given, schema, streaming=False)
        if overwrite:
            raise plan.options.wrong("url", "cannot be overwritten: messages are added, write with mode('append')")
        return BatchSink(plan, schema)

    @override
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from pyspark_folkmoot.sink import StreamSink, sink_plan

        plan = sink_plan(self._given, schema, streaming=True)
        if overwrite:
            raise plan.options.wrong("url", "cannot be overwritten: messages are added, set outputMode('append')")
        return StreamSink(plan, schema)


class Task(InputPartition):
    """The part that one task reads; `copies`: which nodes have its stream partitions on their disks."""

    def __init__(self, spans: list[Span], copies: dict[int, list[str]]) -> None:
        super().__init__(None)
        self.spans = spans
        self.copies = {span.partition: copies.get(span.partition, []) for span in spans}


def tasks_of(plan: Plan, start: Offsets, end: Offsets) -> list[InputPartition]:
    """Return the tasks that read from `start` to `end`; a stream partition without a start is new and read from 0."""
    spans = [Span(partition, start.get(partition, 0), end[partition]) for partition in sorted(end)]
    return [Task(found, plan.copies()) for found in gather(split(spans, plan.tasks_min), plan.tasks_min)]


def read_task(plan: Plan, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task, page by page."""
    if not isinstance(partition, Task):
        return  # Spark's stand-in for a read without tasks
    arrow = to_arrow_schema(schema, timezone="UTC")
    client = plan.client(
        partition.spans[0].partition + partition.spans[0].start
    )  # not every task asks the same node first
    for span in partition.spans:
        copies = partition.copies[span.partition]
        if copies:
            client.nodes.prefer(nearest(copies, span.partition + span.start))
        yield from read_span(plan, client, span, arrow)


def read_span(plan: Plan, client: StreamClient, span: Span, arrow: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of a span."""
    at = span.start
    while at < span.end:
        try:
            page = client.read_known(plan.stream, span.partition, at, span.end, PAGE_BYTES)
        except OffsetGone as gone:
            lost(plan, f"partition {span.partition}: offsets {at} to {gone.oldest - 1} are gone by retention")
            at = min(gone.oldest, span.end)
            continue
        except OffsetAhead as ahead:
            what = f"partition {span.partition}: offsets {at} to {span.end - 1} were there, it ends at {ahead.next}"
            raise not_there(f"stream {plan.stream} {what}") from ahead
        yield from batches(span.partition, page, at, span.end, arrow, plan.topic_prefix)
        at = page.next_offset


def lost(plan: Plan, what: str) -> None:
    """Fail because retention removed records, or log it and continue, according to option failOnDataLoss."""
    text = f"stream {plan.stream} {what}"
    if plan.fail_on_data_loss:
        raise DataLost(
            f"{text}; to go on without them set option 'failOnDataLoss' to false, to keep more give the stream a "
            "longer retention"
        )
    if text in plan.said:
        return  # Spark asks many times for the same end
    plan.said.add(text)
    _log.warning("data loss accepted (failOnDataLoss is false): %s", text)


def not_there(what: str) -> NotThere:
    """Return the error for records that no reachable node has. They are not lost, so no option skips them."""
    return NotThere(
        f"{what} at every node that answers. The records may be at nodes that are away or cut off: start "
        "those, or name them in 'url', and start the query again; nothing was skipped"
    )


class BatchReader(DataSourceReader):
    """One snapshot of a stream: from the starting to the ending offsets."""

    def __init__(self, plan: Plan, schema: StructType) -> None:
        self.plan = plan
        self.schema = schema

    @override
    def partitions(self) -> Sequence[InputPartition]:
        end = self.plan.end()
        start = self.plan.start(EARLIEST)
        for part in self.plan.ranges():
            if start[part.partition] < part.oldest:
                lost(
                    self.plan, f"partition {part.partition}: records before offset {part.oldest} are gone by retention"
                )
        return tasks_of(self.plan, start, end)

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self.plan, self.schema, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream in micro-batches.

    The start of a query must not change if it is restarted before its first batch is complete, but Spark asks for the
    initial offset at every start and does not keep it. So the initial offset only says what to resolve. It is resolved
    when Spark plans the first batch, and kept in the end of that batch, which Spark logs before it runs the batch.
    """

    def __init__(self, plan: Plan, schema: StructType) -> None:
        self.plan = plan
        self.schema = schema
        self._target: Offsets | None = plan.ending if isinstance(plan.ending, dict) else None
        self._last: Offsets = {}  # the first record at or after endingTimestamp, for partitions that have one

    @override
    def initialOffset(self) -> dict[str, Any]:
        plan = self.plan
        if plan.starting_us is not None:
            return {RESOLVE: f"time {plan.starting_us}"}
        if isinstance(plan.starting, dict):
            return {RESOLVE: "offsets"}
        return {RESOLVE: plan.starting or LATEST}

    @override
    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self.plan.rows_max is None else ReadMaxRows(self.plan.rows_max)

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        if not isinstance(self.plan.ending, dict):
            self._target = self.plan.end() if self.plan.ending_us is not None else self.plan.ends(fresh=True)

    @override
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        first = RESOLVE in start
        begin = self.plan.start(LATEST) if first else from_json(start)
        end = self._limited(begin, self._end(begin), limit)
        if first:
            return {**to_json(end), START: to_json(begin)}
        # Exactly the same text if there is nothing new: Spark compares texts, with the note of the first batch.
        return start if end == begin else to_json(end)

    def _end(self, begin: Offsets) -> Offsets:
        """Return the end that can be read now: not before `begin`, and not beyond the target of availableNow.

        A partition that has no bound is read to its end if none has a target. With a target it is new since that was
        set, and not read at all.
        """
        ranges = self._ranges(begin)
        end = dict(begin)
        bounds = self._bounds(ranges) if self._target is None else self._target
        for part in ranges:
            at = begin.get(part.partition, 0)
            if at < part.oldest:
                lost(self.plan, f"partition {part.partition}: offsets {at} to {part.oldest - 1} are gone by retention")
            unbounded = part.next if self._target is None else at
            end[part.partition] = max(at, min(part.next, bounds.get(part.partition, unbounded)))
        return end

    def _ranges(self, begin: Offsets) -> list[PartitionRange]:
        """Return the ranges, from a node that knows all records that were read."""
        try:
            return self.plan.ranges(known=begin)
        except OffsetAhead as ahead:
            raise not_there(str(ahead)) from ahead

    def _bounds(self, ranges: list[PartitionRange]) -> Offsets:
        """Return where partitions end by endingTimestamp: those that have a record at or after that time.

        Such an end is final, because times never decrease. Until then, earlier records may still arrive.
        """
        ending_us = self.plan.ending_us
        if ending_us is None:
            return {}
        ended = [part for part in ranges if part.latest_time_us is not None and part.latest_time_us >= ending_us]
        if any(part.partition not in self._last for part in ended):
            found = self.plan.at_time(ending_us)
            for part in ended:
                if found[part.partition] < part.next:
                    self._last[part.partition] = found[part.partition]
        return self._last

    def _limited(self, begin: Offsets, end: Offsets, read_limit: ReadLimit) -> Offsets:
        return end_within(begin, end, read_limit.max_rows) if isinstance(read_limit, ReadMaxRows) else end

    @override
    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_json(self.plan.ends())

    @override
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin = start_of(end) if RESOLVE in start else from_json(start)
        if begin is None:
            raise FolkmootError("the checkpoint has no start of its first batch: it is not one of format 'folkmoot'")
        return tasks_of(self.plan, begin, from_json(end))

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self.plan, self.schema, partition)

    @override
    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: retention removes records, not readers."""

    @override
    def stop(self) -> None:
        self.plan.close()
