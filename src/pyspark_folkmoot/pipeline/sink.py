"""Starting the query of a sink: the format, the options, and the idempotence of its batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_folkmoot.pipeline.fault import PipelineProblem
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.model import AnySink, DeltaSink, FormatSink, MqttSink, ParquetSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["Say", "start_quarantine", "start_sink", "write_static"]

Say = Callable[[str], None]
"""Prints a line for the user."""


def start_sink(
    loaded: Loaded,
    sink: AnySink,
    frame: DataFrame,
    checkpoint: Path,
    trigger_ms: int | None,
    table: str | None,
    say: Say,
) -> StreamingQuery:
    """Start the query of `sink`; without `trigger_ms` it processes what is there and ends. `table`: another folder.

    `say` is called with a line for maintenance between batches.
    """
    writer = _writer(loaded, frame, sink.name, checkpoint, trigger_ms)
    if isinstance(sink, DeltaSink):
        return _delta(sink, writer, checkpoint, table or loaded.path(sink.delta), say)
    if isinstance(sink, ParquetSink):
        return writer.format("parquet").partitionBy(*sink.partition_by).start(loaded.path(sink.parquet))
    if isinstance(sink, MqttSink):
        cluster = loaded.model.cluster
        assert cluster is not None
        options = _texts({"url": cluster.url, "qos": sink.mqtt.qos, "retain": sink.mqtt.retain})
        options["patienceSeconds"] = str(max(1, sink.mqtt.patience // 1000))
        if loaded.token is not None:
            options["token"] = loaded.token
        return writer.format("folkmoot").options(**options).start()
    assert isinstance(sink, FormatSink)
    return writer.format(sink.format).outputMode(sink.mode).options(**_texts(sink.options)).start()


def start_quarantine(
    loaded: Loaded, name: str, frame: DataFrame, checkpoint: Path, trigger_ms: int | None
) -> StreamingQuery:
    """Start a query that writes into the quarantine."""
    writer = _writer(loaded, frame, name, checkpoint, trigger_ms)
    return writer.format("folkmoot_delta").start(loaded.quarantine)


def write_static(frame: DataFrame, table: str, partition_by: list[str]) -> None:
    """Replace a table in one commit."""
    writer = frame.write.format("folkmoot_delta").mode("overwrite")
    if partition_by:
        writer = writer.option("partitionBy", ",".join(partition_by))
    writer.save(table)


def _writer(loaded: Loaded, frame: DataFrame, name: str, checkpoint: Path, trigger_ms: int | None) -> DataStreamWriter:
    writer = frame.writeStream.queryName(f"{loaded.model.name}.{name}").option("checkpointLocation", str(checkpoint))
    if trigger_ms is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{trigger_ms} milliseconds")


def _texts(options: dict[str, Any]) -> dict[str, str]:
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}


def _delta(sink: DeltaSink, writer: DataStreamWriter, checkpoint: Path, table: str, say: Say) -> StreamingQuery:
    if sink.mode == "append":
        if sink.partition_by:
            writer = writer.option("partitionBy", ",".join(sink.partition_by))
        return writer.format("folkmoot_delta").start(table)
    make = _complete if sink.mode == "complete" else _update
    write = make(sink, checkpoint, table, say)
    return writer.outputMode(sink.mode).foreachBatch(write).start()


def _transaction(checkpoint: Path) -> str:
    """Return the id of the query of a checkpoint: with the batch number it makes a write idempotent."""
    return str(json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"])


def _complete(sink: DeltaSink, checkpoint: Path, table: str, say: Say) -> Callable[[DataFrame, int], None]:
    """Return a function that replaces the table by the whole result of a batch, in one commit."""

    def write(batch: DataFrame, number: int) -> None:
        options = {"txnAppId": _transaction(checkpoint), "txnVersion": str(number)}
        if sink.partition_by:
            options["partitionBy"] = ",".join(sink.partition_by)
        batch.write.format("folkmoot_delta").options(**options).mode("overwrite").save(table)
        _upkeep(sink, table, say)

    return write


def _update(sink: DeltaSink, checkpoint: Path, table: str, say: Say) -> Callable[[DataFrame, int], None]:
    """Return a function that merges the changed rows of a batch by their keys, in one commit."""

    def write(batch: DataFrame, number: int) -> None:
        from deltalake import CommitProperties, Transaction

        from pyspark_folkmoot.delta_write import empty_as_null

        found = _existing(batch, sink, table)
        app = _transaction(checkpoint)
        last = found.transaction_version(app)
        if last is not None and last >= number:
            return
        rows = empty_as_null(batch.toArrow().cast(_arrow_schema(batch)), sink.partition_by)
        if rows.num_rows == 0:
            return
        if rows.select(sink.keys).group_by(sink.keys).aggregate([]).num_rows < rows.num_rows:
            listed = ", ".join(sink.keys)
            raise PipelineProblem(f"sink '{sink.name}': a batch has several rows with the same keys ({listed})")
        # NULL is a key like any other: with = such a row would be added again in every batch.
        same = " AND ".join(f"(t.`{key}` IS NOT DISTINCT FROM s.`{key}`)" for key in sink.keys)
        properties = CommitProperties(app_transactions=[Transaction(app, number)])
        merger = found.merge(rows, same, source_alias="s", target_alias="t", commit_properties=properties)
        merger.when_matched_update_all().when_not_matched_insert_all().execute()
        _upkeep(sink, table, say)

    return write


def _arrow_schema(batch: DataFrame) -> Any:
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.schema([field.with_nullable(True) for field in to_arrow_schema(batch.schema, timezone="UTC")])


def _existing(batch: DataFrame, sink: DeltaSink, table: str) -> Any:
    from pyspark_folkmoot.delta import DeltaPlan
    from pyspark_folkmoot.delta_write import existing_table

    options = {"path": table, **({"partitionBy": ",".join(sink.partition_by)} if sink.partition_by else {})}
    plan = DeltaPlan(options)
    plan.check_write(batch.schema)
    return existing_table(plan, plan.arrow_schema(batch.schema))


def _upkeep(sink: DeltaSink, table: str, say: Say) -> None:
    """Compact between two batches: during a write that reads the table, compaction could make it fail."""
    from pyspark_folkmoot.pipeline.upkeep import keep_up

    done = keep_up(sink.name, table, sink.compact, sink.vacuum)
    if done:
        say(done)
