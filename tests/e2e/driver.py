"""A Spark driver as a user would write it, to be killed: a stream into a Delta table."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark_folkmoot import spark_session


def main(url: str, folder: str) -> None:
    spark = spark_session("driver", master="local[2]")
    rows = (
        spark.readStream.format("folkmoot")
        .option("url", url)
        .option("stream", "s")
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerTrigger", "2000")
        .load()
    )
    writer = rows.writeStream.format("folkmoot_delta").option("checkpointLocation", str(Path(folder) / "checkpoint"))
    writer.start(str(Path(folder) / "table")).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
