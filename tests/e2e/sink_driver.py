"""A Spark driver as a user would write it, to be killed: a stream, filtered, back to MQTT."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark_folkmoot import spark_session


def main(url: str, folder: str) -> None:
    spark = spark_session("driver", master="local[2]")
    rows = spark.readStream.format("folkmoot").options(url=url, stream="in", startingOffsets="earliest").load()
    alerts = rows.where("cast(cast(payload as string) as int) % 2 = 0").selectExpr(
        "concat('out/', cast(cast(payload as string) as int) % 7) as topic", "payload", "2 as qos"
    )
    writer = alerts.writeStream.format("folkmoot").option("url", url)
    writer = writer.option("checkpointLocation", str(Path(folder) / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
