"""The stream `readings` as tables of a declarative pipeline, and high readings as messages.

FOLKMOOT_URL has the admin addresses of the nodes.
"""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_folkmoot import register

session = SparkSession.active()
register(session)


@dp.table
def bronze() -> DataFrame:
    """Every message."""
    source = session.readStream.format("folkmoot").option("url", os.environ["FOLKMOOT_URL"])
    return source.option("stream", "readings").option("startingOffsets", "earliest").load()


@dp.materialized_view
def hourly() -> DataFrame:
    """Messages by topic and hour."""
    messages = session.read.table("bronze")
    return messages.groupBy(f.date_trunc("hour", "timestamp").alias("hour"), "topic").count()


dp.create_sink("alerts", "folkmoot", {"url": os.environ["FOLKMOOT_URL"], "qos": "2"})


@dp.append_flow(target="alerts", name="high")
def high() -> DataFrame:
    """Readings above 100, back to MQTT: each is published once, whatever is killed on the way."""
    value = f.col("payload").cast("string").cast("double")
    topic = f.regexp_replace("topic", "^readings/", "alerts/").alias("topic")
    return session.readStream.table("bronze").where(value > 100).select(topic, "payload")
