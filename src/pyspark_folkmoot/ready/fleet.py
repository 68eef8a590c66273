"""The fleet: devices seen and silent, session lengths, top talkers, reconnect storms. docs/pipeline/fleet.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_folkmoot.ready.availability import CLIENT_GROUP, OTHERS
from pyspark_folkmoot.ready.event import decode
from pyspark_folkmoot.ready.session import OPEN, sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["devices", "lengths", "report", "silent", "storms", "talkers"]


def report(messages: DataFrame) -> DataFrame:
    """Return `devices` for the rows of a stream of `$events/#`."""
    return devices(decode(messages))


def devices(events: DataFrame, client_group: str = CLIENT_GROUP) -> DataFrame:
    """Return a row per client that was connected at least once.

    Columns: client, name (its group), first_at, last_at (when it last connected or disconnected), connected (at the end
    of the data), node (the last one), sessions, connected_s, messages_in, bytes_in, bytes_out (of ended connections).
    """
    from pyspark.sql import functions as f

    group = f.regexp_extract("client", client_group, 1)
    found = sessions(events).groupBy("client").agg(
        f.expr("timestamp_micros(min(start_us))").alias("first_at"),
        f.expr(f"timestamp_micros(max(IF(ended = '{OPEN}', start_us, end_us)))").alias("last_at"),
        f.expr(f"bool_or(ended = '{OPEN}')").alias("connected"),
        f.expr("max_by(node, start_us)").alias("node"),
        f.count("*").alias("sessions"),
        f.expr("sum(end_us - start_us) / 1e6D").alias("connected_s"),
        f.expr("coalesce(sum(messages_in), 0L)").alias("messages_in"),
        f.expr("coalesce(sum(bytes_in), 0L)").alias("bytes_in"),
        f.expr("coalesce(sum(bytes_out), 0L)").alias("bytes_out"),
    )  # fmt: skip
    named = found.withColumn("name", f.when(group != "", group).otherwise(OTHERS))
    return named.select("client", "name", *[column for column in found.columns if column != "client"]).orderBy("client")


def silent(events: DataFrame, after_s: int = 86_400) -> DataFrame:
    """Return the devices that are not connected and were not for this long before the end of the data."""
    from pyspark.sql import functions as f

    horizon = events.agg(f.expr("timestamp_micros(max(time_us))").alias("horizon"))
    found = devices(events).crossJoin(f.broadcast(horizon))
    found = found.where(f"NOT connected AND unix_micros(horizon) - unix_micros(last_at) >= {after_s} * 1000000L")
    return found.selectExpr("client", "name", "last_at", "node").orderBy("last_at", "client")


def lengths(events: DataFrame, client_group: str = CLIENT_GROUP) -> DataFrame:
    """Return how long connections lasted that have ended: name (a group), sessions, p50_s, p90_s, longest_s."""
    from pyspark.sql import functions as f

    group = f.regexp_extract("client", client_group, 1)
    found = sessions(events).where(f"ended <> '{OPEN}'")
    found = found.withColumn("name", f.when(group != "", group).otherwise(OTHERS))
    found = found.withColumn("length_s", f.expr("(end_us - start_us) / 1e6D"))
    found = found.groupBy("name").agg(
        f.count("*").alias("sessions"),
        f.expr("percentile(length_s, 0.5)").alias("p50_s"),
        f.expr("percentile(length_s, 0.9)").alias("p90_s"),
        f.max("length_s").alias("longest_s"),
    )
    return found.orderBy("name")


def talkers(events: DataFrame, count: int = 20) -> DataFrame:
    """Return the clients that sent most: client, messages_in, bytes_in, messages_s (per second of connection)."""
    from pyspark.sql import functions as f

    ended = sessions(events).where("messages_in IS NOT NULL")
    found = ended.groupBy("client").agg(
        f.sum("messages_in").alias("messages_in"),
        f.sum("bytes_in").alias("bytes_in"),
        f.expr("sum(messages_in) / nullif(sum(end_us - start_us) / 1e6D, 0)").alias("messages_s"),
    )
    return found.orderBy(f.desc("bytes_in"), "client").limit(count)


def storms(events: DataFrame, least: int = 100, times: float = 5.0) -> DataFrame:
    """Return the minutes in which far more clients connected than usual.

    At least `least`, and at least `times` the median of the minutes with any connection. Columns: minute, connects,
    clients, nodes, refused (in the same minute), usual.
    """
    from pyspark.sql import functions as f

    minute = f.expr("date_trunc('MINUTE', timestamp_micros(time_us))")
    found = events.where("kind IN ('connected', 'refused')").groupBy(minute.alias("minute")).agg(
        f.expr("count_if(kind = 'connected')").alias("connects"),
        f.expr("count(DISTINCT client)").alias("clients"),
        f.expr("count(DISTINCT node)").alias("nodes"),
        f.expr("count_if(kind = 'refused')").alias("refused"),
    )  # fmt: skip
    usual = found.agg(f.expr("percentile(connects, 0.5)").alias("usual"))
    found = found.crossJoin(f.broadcast(usual))
    return found.where(f"connects >= {least} AND connects >= {times} * usual").orderBy("minute")
