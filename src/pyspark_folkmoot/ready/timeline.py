"""The course of a run: latencies and gaps of clients in buckets of time, and the marks that explain them.

Defines how wide a bucket is, and which events are marks. `picture` draws both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark_folkmoot.ready.availability import ALL, OTHERS, Wishes
from pyspark_folkmoot.ready.latency import figures, intervals
from pyspark_folkmoot.ready.session import gaps, losses, sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "BUCKETS_MAX", "DAY", "HOUR", "MINUTE", "WIDTHS_S", "Mark", "Span", "bucket_s", "marks", "parse_mark", "span_of",
    "timeline",
]  # fmt: skip

BUCKETS_MAX: Final = 150
MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WIDTHS_S: Final = (
    1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE,
    HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY,
)  # fmt: skip
"""Widths that a reader can count in: each divides a minute, an hour or a day."""


class Span:
    """The time that the events cover (seconds since 1970), and how the nodes report latencies.

    interval_s: between their reports. objective_us: their objective; None if there is no report.
    """

    def __init__(self, begin_s: float, end_s: float, interval_s: float = 0.0, objective_us: int | None = None) -> None:
        assert begin_s <= end_s
        self.begin_s = begin_s
        self.end_s = end_s
        self.interval_s = interval_s
        self.objective_us = objective_us


class Mark:
    """An event that explains a change: when (seconds since 1970), and a label of a few words."""

    def __init__(self, at_s: float, label: str) -> None:
        self.at_s = at_s
        self.label = label


def bucket_s(span_s: float, interval_s: float) -> int:
    """Return the width of a bucket for a span: at most BUCKETS_MAX of them, and none below the nodes' interval.

    Beyond the largest width it is a multiple of a day.
    """
    least_s = max(span_s / BUCKETS_MAX, round(interval_s))
    for width_s in WIDTHS_S:
        if width_s >= least_s:
            return width_s
    return -(-int(least_s) // DAY) * DAY


def parse_mark(text: str) -> Mark:
    """Return the mark in `TIME LABEL`, such as `2026-03-01T12:00:00Z deployed`; raises ValueError."""
    from folkmoot.client.position import parse_time

    time, _, label = text.strip().partition(" ")
    if not label.strip():
        raise ValueError(f"{text!r} has no label: write TIME LABEL, such as '2026-03-01T12:00:00Z deployed'")
    return Mark(parse_time(time) / 1e6, label.strip())


def span_of(events: DataFrame, wishes: Wishes) -> Span | None:
    """Return the span of the events, with the objective of `wishes`; None if there are no events."""
    from pyspark.sql import functions as f

    (row,) = events.agg(
        f.min("time_us").alias("begin"),
        f.max("time_us").alias("end"),
        f.expr("percentile(to_us - from_us, 0.5)").alias("interval"),
        f.max("objective_us").alias("objective"),
    ).collect()
    if row.begin is None:
        return None
    objective_us = row.objective if wishes.objective_us is None else wishes.objective_us
    return Span(row.begin / 1e6, row.end / 1e6, (row.interval or 0) / 1e6, objective_us)


def timeline(events: DataFrame, wishes: Wishes, width_s: int) -> DataFrame:
    """Return a row per bucket, kind (clients, topics) and group, and one for all of a kind; empty buckets have none.

    Columns: start (of the bucket), width_s, kind, name; of clients: clients (that were without service), gaps (that
    began), down_s, longest_s (the longest gap that began); of topics: messages, within, share, p50_us, p99_us of
    publish-to-ack. An interval that lies in several buckets counts in each by its part.
    """
    found = _clients(events, wishes, width_s).unionByName(_topics(events, wishes, width_s), allowMissingColumns=True)
    return found.selectExpr(
        "timestamp_seconds(slot) AS start", f"{width_s} AS width_s", "kind", "name",
        "clients", "gaps", "down_s", "longest_s", "messages", "within", "share", "p50_us", "p99_us",
    ).orderBy("start", "kind", "name")  # fmt: skip


def _buckets(rows: DataFrame, width_s: int) -> DataFrame:
    """Return rows once per bucket (`slot`: its start in seconds) that they touch, with their `part_us` of it."""
    from pyspark.sql import functions as f

    width_us = width_s * 1_000_000
    numbers = f"sequence(from_us DIV {width_us}, greatest(to_us - 1, from_us) DIV {width_us})"
    begin = f"(number * {width_us})"
    part = f"least(to_us, {begin} + {width_us}) - greatest(from_us, {begin})"
    split = rows.withColumn("number", f.explode(f.expr(numbers)))
    return split.selectExpr("*", f"number * {width_s} AS slot", f"{part} AS part_us").drop("number")


def _with_all(rows: DataFrame) -> DataFrame:
    """Return each row twice: for its group, and for all."""
    from pyspark.sql import functions as f

    return rows.withColumn("name", f.explode(f.expr(f"array(name, '{ALL}')")))


def _clients(events: DataFrame, wishes: Wishes, width_s: int) -> DataFrame:
    from pyspark.sql import functions as f

    group = f.regexp_extract("client", wishes.client_group, 1)
    found = gaps(events, sessions(events), wishes.longest_s)
    found = found.withColumn("name", f.when(group != "", group).otherwise(OTHERS))
    parts = _with_all(_buckets(found, width_s))
    begun = f"from_us DIV {width_s * 1_000_000} * {width_s} = slot"
    return parts.groupBy("slot", "name").agg(
        f.lit("clients").alias("kind"),
        f.countDistinct("client").alias("clients"),
        f.expr(f"count_if({begun})").alias("gaps"),
        f.expr("sum(part_us) / 1e6D").alias("down_s"),
        f.expr(f"max(IF({begun}, to_us - from_us, NULL)) / 1e6D").alias("longest_s"),
    )


def _topics(events: DataFrame, wishes: Wishes, width_s: int) -> DataFrame:
    from pyspark.sql import functions as f

    told = intervals(events, wishes.objective_us).where("count > 0 OR failed > 0").withColumnRenamed("prefix", "name")
    parts = _buckets(told.where("to_us > from_us"), width_s)
    weight = "part_us / (to_us - from_us)"
    scaled = parts.selectExpr(
        "slot", "name", "objective_us",
        *[f"{column} * {weight} AS {column}" for column in ("count", "within", "failed")],
        # Quantiles depend on ratios alone: thousandths of messages keep the parts whole numbers.
        f"transform(buckets, pair -> array(pair[0], CAST(1000 * pair[1] * {weight} AS BIGINT))) AS buckets",
    )  # fmt: skip
    found = figures(_with_all(scaled), "slot", "name")
    return found.drop("objective_us", "failed").withColumn("kind", f.lit("topics"))


def marks(events: DataFrame, given: Sequence[Mark] = ()) -> list[Mark]:
    """Return `given` and the marks of nodes that are lost, stop, leave or come back, in order of time."""
    lost = losses(events).selectExpr("lost_us AS at_us", "concat(node, ' lost') AS label")
    told = events.where("kind = 'node' AND what IN ('stopping', 'leaving')").selectExpr(
        "time_us AS at_us", "concat(node, IF(what = 'stopping', ' stops', ' leaves')) AS label"
    )
    starts = events.groupBy("node", "incarnation").agg({"time_us": "min"})
    first = starts.groupBy("node").agg({"min(time_us)": "min"}).withColumnRenamed("min(min(time_us))", "first_us")
    back = starts.join(first, "node").where("`min(time_us)` > first_us")
    back = back.selectExpr("`min(time_us)` AS at_us", "concat(node, ' is back') AS label")
    rows = lost.unionByName(told).unionByName(back).distinct().collect()
    found = [*given, *[Mark(row.at_us / 1e6, row.label) for row in rows]]
    return sorted(found, key=lambda mark: (mark.at_s, mark.label))
