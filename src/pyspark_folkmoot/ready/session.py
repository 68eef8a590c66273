"""Connections and the gaps between them, from events: when and where clients were connected, and why it ended.

A connection begins with `connected` and ends with the `disconnected` that says how long it lasted. A killed node
reports no end: its connections end when the other nodes lose it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["OPEN", "gaps", "losses", "sessions"]

LOST: Final = "lost"  # with its node
OPEN: Final = "open"  # at the end of the data
UNKNOWN: Final = "unknown"  # its end was not reported, and its client connected again

VIEW_S: Final = 10
"""A gap that begins this close to a view change is attributed to it."""


def losses(events: DataFrame) -> DataFrame:
    """Return the starts of nodes that ended without an event: node, incarnation, lost_us, lost_view.

    A start is lost if, after its last event, another node installed a view without it, or the node started again. The
    time is that of the first lost connection from another node to it, if there is an earlier event about one.
    """
    from pyspark.sql import functions as f

    starts = events.groupBy("node", "incarnation").agg(
        f.min("time_us").alias("first_us"), f.max("time_us").alias("last_us")
    )
    views = events.where("what = 'view_installed'").selectExpr("time_us AS view_us", "members", "`view` AS lost_view")
    without = (
        starts.join(views, f.expr("view_us > last_us AND NOT array_contains(members, node)"))
        .groupBy("node", "incarnation")
        .agg(f.min("view_us").alias("view_us"), f.expr("min_by(lost_view, view_us)").alias("lost_view"))
    )
    again = starts.selectExpr("node", "first_us AS again_us")
    restarted = (
        starts.join(again, "node")
        .where("again_us > last_us")
        .groupBy("node", "incarnation")
        .agg(f.min("again_us").alias("again_us"))
    )
    down = events.where("what IN ('peer_down', 'peer_dead')").selectExpr("peer AS node", "time_us AS down_us")
    broken = (
        starts.join(down, "node")
        .where("down_us >= last_us")
        .groupBy("node", "incarnation")
        .agg(f.min("down_us").alias("down_us"))
    )
    found = starts.join(without, ["node", "incarnation"], "left").join(restarted, ["node", "incarnation"], "left")
    found = found.join(broken, ["node", "incarnation"], "left").where("view_us IS NOT NULL OR again_us IS NOT NULL")
    return found.selectExpr("node", "incarnation", "least(view_us, again_us, down_us) AS lost_us", "lost_view")


def sessions(events: DataFrame) -> DataFrame:
    """Return the connections of all clients, one row each.

    Columns: client, node, start_us, end_us, next_us (when the client connected again; null: not yet), ended (client,
    node, network, lost, open, unknown), clean, code, reason, lost_view, bytes_in, bytes_out, messages_in (null if the
    end is unknown). Open connections end with the data.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    key = ["client", "node", "incarnation", "start_us"]
    came = events.where("kind = 'connected'").selectExpr("client", "node", "incarnation", "time_us AS start_us")
    went = events.where("kind = 'disconnected'").selectExpr(
        "client", "node", "incarnation", "time_us - connected_us AS start_us", "time_us AS told_us", "`by`", "clean",
        "code", "reason", "bytes_in", "bytes_out", "messages_in",
    )  # fmt: skip
    horizon = events.agg(f.max("time_us").alias("horizon_us"))
    found = came.join(went, key, "full").join(f.broadcast(losses(events)), ["node", "incarnation"], "left")
    found = found.crossJoin(f.broadcast(horizon))
    found = found.withColumn("next_us", f.lead("start_us").over(Window.partitionBy("client").orderBy("start_us")))
    lost = "told_us IS NULL AND lost_us >= start_us"
    return found.selectExpr(
        "client", "node", "start_us",
        f"coalesce(told_us, CASE WHEN {lost} THEN lost_us END, next_us, horizon_us) AS end_us",
        "next_us",
        f"CASE WHEN told_us IS NOT NULL THEN `by` WHEN {lost} THEN '{LOST}' WHEN next_us IS NOT NULL THEN '{UNKNOWN}' "
        f"ELSE '{OPEN}' END AS ended",
        "coalesce(clean, false) AS clean", "code", "reason",
        f"CASE WHEN {lost} THEN lost_view END AS lost_view",
        "bytes_in", "bytes_out", "messages_in",
    )  # fmt: skip


def gaps(events: DataFrame, connections: DataFrame, longest_s: int) -> DataFrame:
    """Return the gaps: from the end of a connection that its client did not close until the client connects again.

    connections: of `sessions`. A client that does not connect again within `longest_s` seconds counts as switched off.
    Columns: client, node, from_us, to_us, cause, view (of the view change that it is attributed to, or null).
    """
    from pyspark.sql import functions as f

    horizon = events.agg(f.max("time_us").alias("horizon_us"))
    # A client whose session was taken over (0x8E) has connected again by itself.
    found = connections.where(
        f"NOT clean AND coalesce(code, 0) <> 142 AND ended NOT IN ('{OPEN}', '{UNKNOWN}')"
    ).crossJoin(f.broadcast(horizon))
    found = found.withColumn("to_us", f.expr("coalesce(next_us, horizon_us)"))
    found = found.where(f"to_us > end_us AND to_us - end_us <= {longest_s} * 1000000L")
    found = found.withColumn("gap", f.monotonically_increasing_id())
    views = (
        events.where("what = 'view_installed'")
        .groupBy("view", "epoch")
        .agg(f.min("time_us").alias("view_us"))
        .selectExpr("`view` AS near_view", "view_us")
    )
    near = found.join(f.broadcast(views), f.expr(f"abs(view_us - end_us) <= {VIEW_S} * 1000000L"), "left")
    near = near.groupBy("gap", "client", "node", "end_us", "to_us", "ended", "reason", "lost_view").agg(
        f.expr("min_by(near_view, abs(view_us - end_us))").alias("near_view")
    )
    return near.selectExpr(
        "client", "node", "end_us AS from_us", "to_us",
        f"CASE WHEN ended = '{LOST}' THEN 'node lost' WHEN ended = 'node' THEN reason "
        "WHEN ended = 'client' THEN concat('client: ', reason) WHEN near_view IS NOT NULL THEN 'view change' "
        "ELSE 'network' END AS cause",
        "coalesce(lost_view, near_view) AS `view`",
    )  # fmt: skip
