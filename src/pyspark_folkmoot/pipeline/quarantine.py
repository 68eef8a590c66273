"""The quarantine: one Delta table of everything that was not decoded or was dropped, with reasons and original bytes.

Its queries are separate from those of the sinks, so that a row is added once however many sinks share a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pyspark_folkmoot.pipeline.model import Expectation
from pyspark_folkmoot.pipeline.part import ORIGIN

__all__ = ["COLUMNS", "of_dropped", "of_undecoded"]

# `time`: when the row was added; `sent`: the broker's time of the message.
COLUMNS: Final = (
    "time TIMESTAMP, source STRING, stream STRING, partition INT, offset BIGINT, topic STRING, payload BINARY, "
    "publisher STRING, sent TIMESTAMP, step STRING, expectation STRING, reason STRING, row STRING"
)


def of_undecoded(frame: DataFrame, source: str) -> DataFrame:
    """Return what `undecoded` made as rows of the quarantine."""
    none = f.lit(None).cast("string")
    return _rows(frame, source, f.col("_view"), none, none)


def of_dropped(
    frame: DataFrame,
    source: str | None,
    step: str,
    expectations: list[Expectation],
    masked: Callable[[str], str] = str,
) -> DataFrame:
    """Return the rows that the expectations of a step drop as rows of the quarantine; `source` where there is one.

    `masked` takes secrets out of the reason.
    """
    from pyspark_folkmoot.pipeline.expect import broken

    rows = broken(frame, expectations, masked)
    return _rows(rows, source, f.lit(step), f.col("_expectation"), f.col("_row"))


def _rows(frame: DataFrame, source: str | None, step: Column, expectation: Column, row: Column) -> DataFrame:
    known = ORIGIN in frame.columns

    def origin(name: str, kind: str) -> Column:
        return f.col(f"{ORIGIN}.{name}") if known else f.lit(None).cast(kind)

    return frame.select(
        f.current_timestamp().alias("time"),
        f.lit(source).cast("string").alias("source"),
        origin("stream", "string").alias("stream"),
        origin("partition", "int").alias("partition"),
        origin("offset", "bigint").alias("offset"),
        origin("topic", "string").alias("topic"),
        origin("payload", "binary").alias("payload"),
        origin("publisher", "string").alias("publisher"),
        origin("timestamp", "timestamp").alias("sent"),
        step.alias("step"),
        expectation.alias("expectation"),
        f.col("_reason").alias("reason"),
        row.alias("row"),
    )
