"""Latencies of topics from events: how many messages were within the objective, quantiles, time without service.

Implements the arithmetic of sketches in SQL; docs/events.md defines the buckets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["deliveries", "figures", "intervals", "quantiles"]

# The middle of a bucket.
_SHIFT: Final = "(bucket DIV 64 - 1)"
_MIDDLE: Final = (
    f"CASE WHEN bucket < 128 THEN bucket ELSE CAST(((bucket - {_SHIFT} * 64) + 0.5D) * pow(2, {_SHIFT}) AS BIGINT) END"
)


def intervals(events: DataFrame, objective_us: int | None = None) -> DataFrame:
    """Return one row per interval, node and prefix.

    Columns: prefix, node, from_us, to_us, objective_us, taken, count, within, failed, waiting, down_us (the time in
    which messages waited and nothing was acknowledged), buckets. `objective_us`: an objective other than that
    of the nodes; then `within` is computed from the buckets, for a time that may differ from it by up to 0.8 %.
    """
    from pyspark.sql import functions as f

    wish = _wish(objective_us)
    return events.where("kind = 'latency'").select(
        "prefix", "node", "from_us", "to_us",
        f.expr(wish).alias("objective_us"),
        f.expr("ack.taken").alias("taken"),
        f.expr("ack.count").alias("count"),
        f.expr(_within("ack", wish)).alias("within"),
        f.expr("ack.failed").alias("failed"),
        f.expr("ack.waiting").alias("waiting"),
        f.expr(
            "IF(ack.count = 0 AND ack.waiting > 0, least(ack.waiting_us, to_us - from_us), 0L)"
        ).alias("down_us"),
        f.expr("ack.buckets").alias("buckets"),
    )  # fmt: skip


def deliveries(events: DataFrame, objective_us: int | None = None) -> DataFrame:
    """Return the same for publish-to-deliver, one row per interval, node and prefix with deliveries.

    Columns: prefix, node, from_us, to_us, objective_us, count, within, failed (0), buckets. Counts are
    estimated from samples, see docs/events.md.
    """
    from pyspark.sql import functions as f

    wish = _wish(objective_us)
    return events.where("kind = 'latency' AND deliver.count > 0").select(
        "prefix", "node", "from_us", "to_us",
        f.expr(wish).alias("objective_us"),
        f.expr("deliver.count").alias("count"),
        f.expr(_within("deliver", wish)).alias("within"),
        f.lit(0).cast("bigint").alias("failed"),
        f.expr("deliver.buckets").alias("buckets"),
    )  # fmt: skip


def _wish(objective_us: int | None) -> str:
    return "objective_us" if objective_us is None else f"CAST({objective_us} AS BIGINT)"


def _within(sketch: str, wish: str) -> str:
    """Return SQL for the number within the objective: the node's count, or computed from buckets for another one."""
    middles = _MIDDLE.replace("bucket", "pair[0]")
    return (
        f"CASE WHEN {wish} = objective_us THEN {sketch}.within ELSE "
        f"aggregate({sketch}.buckets, 0L, (sum, pair) -> sum + IF({middles} <= {wish}, pair[1], 0L)) END"
    )


def quantiles(rows: DataFrame, *groups: str) -> DataFrame:
    """Return p50_us and p99_us per group, for rows with `buckets`; sketches are merged by adding their counts."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    pairs = rows.select(*groups, f.explode("buckets").alias("pair"))
    sums = pairs.groupBy(*groups, f.expr("pair[0]").alias("bucket")).agg(f.sum(f.expr("pair[1]")).alias("n"))
    window = Window.partitionBy(*groups)
    ranked = sums.withColumn("seen", f.sum("n").over(window.orderBy("bucket"))).withColumn(
        "all", f.sum("n").over(window)
    )
    ranked = ranked.withColumn("middle_us", f.expr(_MIDDLE))
    return ranked.groupBy(*groups).agg(
        f.expr("min(middle_us) FILTER (WHERE seen >= 0.5D * `all`)").alias("p50_us"),
        f.expr("min(middle_us) FILTER (WHERE seen >= 0.99D * `all`)").alias("p99_us"),
    )


def figures(rows: DataFrame, *groups: str) -> DataFrame:
    """Return per group: messages, within, failed, share, p50_us, p99_us. A message that failed is not within."""
    from pyspark.sql import functions as f

    sums = rows.groupBy(*groups).agg(
        f.expr("sum(count) + sum(failed)").alias("messages"),
        f.sum("within").alias("within"),
        f.sum("failed").alias("failed"),
        f.max("objective_us").alias("objective_us"),
    )
    sums = sums.withColumn("share", f.expr("within / nullif(messages, 0)"))
    return sums.join(quantiles(rows, *groups), list(groups), "left")
