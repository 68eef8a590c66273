"""The Spark job: the stream `nyc` as a table of messages (bronze), of parsed events (silver), of delay figures (gold).

    python -m folkmoot.demo.pipeline URL[,URL...] FOLDER

Bronze and silver are streaming queries with a checkpoint each; killed at any moment, they go on and every message is
in the table once. Gold is a function of silver and is made anew every few seconds. A file `finish` in the folder ends
the job when everything that the stream has is in the tables.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from folkmoot.demo.flight import weather_columns
from pyspark_folkmoot import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["gold", "main", "silver"]

_TRIGGER = "2 seconds"
_GOLD_INTERVAL_S = 8.0
_FIELDS = (
    "time TIMESTAMP, hour TIMESTAMP, dest STRING, cancelled BOOLEAN, flight DOUBLE, dep_delay DOUBLE, "
    "arr_delay DOUBLE, air_time DOUBLE, distance DOUBLE, " + ", ".join(f"{name} DOUBLE" for name in weather_columns())
)


def silver(messages: DataFrame) -> DataFrame:
    """Return a row per message of the stream, with the levels of its topic and the fields of its JSON as columns."""
    level = f.split("topic", "/")
    fields = f.from_json(f.col("payload").cast("string"), _FIELDS)
    return messages.select(
        "partition",
        "offset",
        level[1].alias("kind"),
        level[2].alias("origin"),
        f.get(level, f.lit(3)).alias("carrier"),
        f.get(level, f.lit(4)).alias("tailnum"),
        fields.alias("fields"),
    ).select("partition", "offset", "kind", "origin", "carrier", "tailnum", "fields.*")


def gold(events: DataFrame) -> DataFrame:
    """Return the delays by carrier, origin and hour, with the weather of that hour at that airport."""
    flights = events.where("kind = 'flights'").groupBy("hour", "origin", "carrier")
    delays = flights.agg(
        f.count("*").alias("flights"),
        f.count_if("cancelled").alias("cancelled"),
        f.round(f.avg("dep_delay"), 2).alias("mean_delay"),
        f.max("dep_delay").alias("max_delay"),
    )
    weather = events.where("kind = 'weather'").select("hour", "origin", "temp", "wind_speed", "precip", "visib")
    return delays.join(weather, ["hour", "origin"], "left")


def start(spark: SparkSession, url: str, folder: Path, name: str) -> StreamingQuery:
    """Start the streaming query that fills the table bronze or silver."""
    rows = spark.readStream.format("folkmoot").option("url", url).option("stream", "nyc")
    messages = rows.option("startingOffsets", "earliest").option("maxRecordsPerTrigger", "50000").load()
    table = silver(messages) if name == "silver" else messages
    writer = table.writeStream.format("folkmoot_delta").queryName(name).trigger(processingTime=_TRIGGER)
    return writer.option("checkpointLocation", str(folder / "checkpoints" / name)).start(str(folder / "tables" / name))


def refresh(spark: SparkSession, folder: Path) -> None:
    """Make gold from what silver has now."""
    if (folder / "tables" / "silver" / "_delta_log").exists():
        events = spark.read.format("folkmoot_delta").load(str(folder / "tables" / "silver"))
        gold(events).coalesce(1).write.format("folkmoot_delta").mode("overwrite").save(str(folder / "tables" / "gold"))


def main(url: str, folder: Path) -> None:
    """Run until there is a file `finish`; what ends a query ends the job with its error."""
    spark = spark_session("nyc")
    queries = [start(spark, url, folder, name) for name in ("bronze", "silver")]
    print("ready", flush=True)
    while not (folder / "finish").exists():
        for query in queries:
            query.awaitTermination(1)
        refresh_due = time.monotonic() % _GOLD_INTERVAL_S < 2
        if refresh_due:
            refresh(spark, folder)
    for query in queries:
        query.processAllAvailable()
        query.stop()
    refresh(spark, folder)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
