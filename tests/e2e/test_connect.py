"""Spark Connect: the source, its tables and both sinks in a session whose Spark runs in a server of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_folkmoot.java import java_home
from tests.integration.serving import Serving

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

DRIVER = """\
import sys

from pyspark.sql import SparkSession

from pyspark_folkmoot import register

url, folder = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", 2).getOrCreate()
register(spark)


def run(rows, form, **options):
    writer = rows.writeStream.format(form).options(checkpointLocation=f"{folder}/{form}-checkpoint", **options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.exception() is None


numbers = spark.range(500).selectExpr("concat('in/', id % 5) AS topic", "string(id) AS payload")
numbers.write.format("folkmoot").option("url", url).mode("append").save()
readings = spark.readStream.format("folkmoot").options(url=url, stream="in", startingOffsets="earliest").load()
run(readings, "folkmoot_delta", path=f"{folder}/bronze")
run(readings.selectExpr("replace(topic, 'in/', 'out/') AS topic", "payload", "2 AS qos"), "folkmoot", url=url)
read = spark.read.format("folkmoot").option("url", url)
print("read", read.option("stream", "in").load().count())
print("bronze", spark.read.format("folkmoot_delta").option("path", f"{folder}/bronze").load().count())
print("back", read.option("stream", "out").load().selectExpr("count(DISTINCT topic, payload)").first()[0])
print("session", type(spark).__module__)
"""


@pytest.mark.soak("a server of Spark Connect; source, tables and sinks are tested in sessions of the other kind")
def test_a_session_of_connect_reads_and_writes(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
    (tmp_path / "driver.py").write_text(DRIVER, encoding="utf-8")
    home = java_home()
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **({"JAVA_HOME": str(home)} if home else {})}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    streams = ["--stream", "in=in/#", "--stream", "out=out/#"]
    with Serving(tmp_path / "data", "--mqtt", "127.0.0.1:0", "--admin", "127.0.0.1:0", *streams).start() as node:
        url = f"http://127.0.0.1:{node.port('admin')}"
        words = [sys.executable, str(tmp_path / "driver.py"), url, str(tmp_path)]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)
    assert said["session"].startswith("pyspark.sql.connect")
    assert (said["read"], said["bronze"], said["back"]) == ("500", "500", "500")
