"""Availability as users experience it, by day and month, for groups of clients and of topics.

See docs/pipeline/availability.md.

Defines service: a client is without it from the end of a connection that it did not close itself until it is connected
again; a topic is without it while messages wait and none is acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_folkmoot.ready.event import decode
from pyspark_folkmoot.ready.latency import deliveries, figures, intervals
from pyspark_folkmoot.ready.session import gaps, sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ALL", "CLIENT_GROUP", "OTHERS", "Wishes", "availability", "costs", "report"]

ALL: Final = "(all)"
OTHERS: Final = "(others)"
CLIENT_GROUP: Final = "^([A-Za-z]+)"
"""The first parentheses match a client's group in its id: the letters at the start."""

PERIODS: Final = "array(struct('day' AS period, day AS start), struct('month' AS period, trunc(day, 'MM') AS start))"


class Wishes:
    """The parameters of a report.

    objective_us: an objective instead of that of the nodes. target: the share of messages that should meet it.
    client_group: a regular expression (Java) with one pair of parentheses. longest_s: a client that is not connected
    for longer counts as switched off.
    """

    def __init__(
        self,
        objective_us: int | None = None,
        target: float = 0.99,
        client_group: str = CLIENT_GROUP,
        longest_s: int = 3600,
    ) -> None:
        self.objective_us = objective_us
        self.target = target
        self.client_group = client_group
        self.longest_s = longest_s


def report(messages: DataFrame, wishes: Wishes | None = None) -> DataFrame:
    """Return `availability` for the rows of a stream of `$events/#`."""
    return availability(decode(messages), wishes or Wishes())


def availability(events: DataFrame, wishes: Wishes) -> DataFrame:
    """Return a row per period (day, month), kind (clients, topics) and group, and one for all of a kind.

    Columns: period, start, kind, name, service_s (time in which service was wanted: client seconds, or seconds of nodes
    to which the topic was published), down_s (without it), gaps, availability, nines, cause (of most of it), messages,
    within, share, met (the target), p50_us, p99_us (of publish-to-ack), delivered, delivered_share, delivered_p50_us,
    delivered_p99_us (of publish-to-deliver). Clients have no messages; the gaps of topics are intervals.
    """
    found = _clients(events, wishes).unionByName(_topics(events, wishes), allowMissingColumns=True)
    found = found.selectExpr(
        "period", "start", "kind", "name", "service_s", "down_s", "gaps",
        "1 - down_s / nullif(service_s, 0) AS availability",
        "CASE WHEN down_s > 0 THEN -log10(down_s / service_s) END AS nines",
        "cause", "messages", "within", "share", "met", "p50_us", "p99_us",
        "delivered", "delivered_share", "delivered_p50_us", "delivered_p99_us",
    )  # fmt: skip
    return found.orderBy("period", "start", "kind", "name")


def costs(events: DataFrame, wishes: Wishes) -> DataFrame:
    """Return the causes of gaps: day, cause, node, view, gaps, clients, down_s; those with the most time first."""
    from pyspark.sql import functions as f

    found = _days(gaps(events, sessions(events), wishes.longest_s), "from_us", "to_us")
    found = found.groupBy("day", "cause", "node", "view").agg(
        f.count("*").alias("gaps"), f.countDistinct("client").alias("clients"), f.sum("span_s").alias("down_s")
    )
    return found.orderBy(f.desc("down_s"), "day", "cause", "node", "view")


def _days(rows: DataFrame, start: str, end: str) -> DataFrame:
    """Return rows divided at midnight UTC: with `day`, and `span_s`, the length of the part in that day."""
    from pyspark.sql import functions as f

    first, last = f"to_date(timestamp_micros({start}))", f"to_date(timestamp_micros(greatest({end} - 1, {start})))"
    split = rows.withColumn("day", f.explode(f.expr(f"sequence({first}, {last}, INTERVAL 1 DAY)")))
    begin = "unix_micros(CAST(day AS TIMESTAMP))"
    span = f"(least({end}, {begin} + 86400000000L) - greatest({start}, {begin})) / 1e6D"
    return split.withColumn("span_s", f.expr(span))


def _spread(rows: DataFrame) -> DataFrame:
    """Return each row once per period, for its group and for all."""
    from pyspark.sql import functions as f

    rows = rows.withColumn("place", f.explode(f.expr(PERIODS))).withColumn(
        "name", f.explode(f.expr(f"array(name, '{ALL}')"))
    )
    return rows.selectExpr("*", "place.period AS period", "place.start AS start").drop("place")


def _clients(events: DataFrame, wishes: Wishes) -> DataFrame:
    from pyspark.sql import functions as f

    connections = sessions(events)
    without = gaps(events, connections, wishes.longest_s)
    served = _days(connections.where("end_us > start_us"), "start_us", "end_us")
    parts = served.selectExpr(
        "client", "day", "span_s AS up_s", "0D AS down_s", "0L AS gap", "CAST(NULL AS STRING) AS cause"
    )
    lost = _days(without, "from_us", "to_us")
    first = "IF(to_date(timestamp_micros(from_us)) = day, 1L, 0L) AS gap"
    cause = "concat_ws(' ', cause, node, concat('view ', `view`)) AS cause"
    parts = parts.unionByName(lost.selectExpr("client", "day", "0D AS up_s", "span_s AS down_s", first, cause))
    group = f.regexp_extract("client", wishes.client_group, 1)
    parts = _spread(parts.withColumn("name", f.when(group != "", group).otherwise(OTHERS)))
    key = ["period", "start", "name"]
    dearest = parts.where("cause IS NOT NULL").groupBy(*key, "cause").agg(f.sum("down_s").alias("cost_s"))
    dearest = dearest.groupBy(*key).agg(f.expr("max_by(cause, struct(cost_s, cause))").alias("cause"))
    sums = parts.groupBy(*key).agg(
        (f.sum("up_s") + f.sum("down_s")).alias("service_s"),
        f.sum("down_s").alias("down_s"),
        f.sum("gap").alias("gaps"),
    )
    return sums.join(dearest, key, "left").withColumn("kind", f.lit("clients"))


def _topics(events: DataFrame, wishes: Wishes) -> DataFrame:
    from pyspark.sql import functions as f

    rows = _periods(intervals(events, wishes.objective_us))
    key = ["period", "start", "name"]
    wanted = rows.where("taken > 0 OR count > 0 OR waiting > 0")
    if_down = "CASE WHEN down_us > 0 THEN concat('no acknowledgement ', node) END"
    sums = wanted.groupBy(*key).agg(
        f.expr("sum(to_us - from_us) / 1e6D").alias("service_s"),
        f.expr("sum(down_us) / 1e6D").alias("down_s"),
        f.expr("count_if(down_us > 0)").alias("gaps"),
        f.expr(f"max_by({if_down}, down_us)").alias("cause"),
    )
    shares = figures(rows, *key).withColumn("met", f.col("share") >= wishes.target)
    came = figures(_periods(deliveries(events, wishes.objective_us)), *key).selectExpr(
        *key,
        "messages AS delivered",
        "share AS delivered_share",
        "p50_us AS delivered_p50_us",
        "p99_us AS delivered_p99_us",
    )
    found = sums.join(shares, key, "full").join(came, key, "full")
    return found.withColumn("kind", f.lit("topics")).drop("objective_us", "failed")


def _periods(rows: DataFrame) -> DataFrame:
    """Return each interval once per period that it belongs to, for its prefix and for all."""
    from pyspark.sql import functions as f

    days = rows.withColumn("day", f.expr("to_date(timestamp_micros(to_us))"))
    return _spread(days.withColumnRenamed("prefix", "name"))
