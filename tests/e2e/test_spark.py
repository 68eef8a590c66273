"""The formats in a real Spark: what only the JVM can show. Semantics are tested in tests/pyspark_folkmoot."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from folkmoot.mqtt.packet import Properties
from folkmoot.mqtt.property_encode import forward_properties
from folkmoot.store.record import encode_record
from folkmoot.streams.config import StreamConfig
from tests.harness.streamnode import Shelf, StreamNode

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

DRIVER = Path(__file__).with_name("driver.py")


@pytest.fixture
def node() -> Iterator[StreamNode]:
    with StreamNode(Shelf(StreamConfig("s", b"s/#", 3))) as node:
        yield node


def fill(node: StreamNode, count: int, first: int = 0) -> None:
    for number in range(first, first + count, 100):
        node.publish(f"s/{number // 100}", [b"%d" % n for n in range(number, number + 100)])


def load(spark: SparkSession, node: StreamNode, **options: str) -> DataFrame:
    return spark.read.format("folkmoot").options(url=node.url, stream="s", **options).load()


def stream(spark: SparkSession, node: StreamNode, **options: str) -> DataFrame:
    found = spark.readStream.format("folkmoot").options(url=node.url, stream="s", startingOffsets="earliest")
    return found.options(**options).load()


def payloads(table: Path) -> list[int]:
    """The payloads in a table as others read it."""
    return sorted(int(value) for value in DeltaTable(table).to_pyarrow_table().column("payload").to_pylist())


def test_all_columns_arrive(spark: SparkSession, node: StreamNode) -> None:
    properties = Properties()
    properties.content_type = "text/plain"
    properties.user_properties = [("k", "v"), ("ö", "ü")]
    properties.response_topic = b"answer"
    properties.correlation_data = b"\x00\xff"
    record = encode_record(b"s/1", b"p", 2, True, b"me", forward_properties(properties))
    node.run(lambda shelf: shelf.append(record))
    (row,) = load(spark, node).selectExpr("*", "cast(timestamp as long) as seconds").collect()
    found = row.asDict()
    assert found.pop("timestamp") is not None
    assert found.pop("partition") in (0, 1, 2)
    assert found == {
        "offset": 0,
        "topic": "s/1",
        "payload": b"p",
        "qos": 2,
        "retain": True,
        "publisher": "me",
        "content_type": "text/plain",
        "user_properties": {"k": "v", "ö": "ü"},
        "response_topic": "answer",
        "correlation_data": b"\x00\xff",
        "seconds": 1_700_000_000,
    }


def test_a_batch_is_counted_filtered_and_split(spark: SparkSession, node: StreamNode) -> None:
    fill(node, 3000)
    rows = load(spark, node, minPartitions="8")
    assert rows.count() == 3000
    assert rows.where("topic = 's/7'").count() == 100
    assert rows.selectExpr("spark_partition_id() as task").distinct().count() >= 8
    assert load(spark, node, columns="payload", topicPrefix="s/1").distinct().count() == 1100


def test_a_wrong_option_reaches_the_user(spark: SparkSession, node: StreamNode) -> None:
    with pytest.raises(AnalysisException, match="did you mean 'startingOffsets'"):
        load(spark, node, startingOffset="latest")


def run(frame: DataFrame, folder: Path) -> list[Any]:
    """Run a stream over all that is available into `folder/table`; return its progress."""
    writer = frame.writeStream.format("folkmoot_delta").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "table"))
    query.awaitTermination()
    return list(query.recentProgress)


def test_a_stream_fills_a_table_in_steps_and_goes_on(spark: SparkSession, node: StreamNode, tmp_path: Path) -> None:
    fill(node, 3000)
    progress = run(stream(spark, node, maxRecordsPerTrigger="1000"), tmp_path)
    assert [step["numInputRows"] for step in progress] == [1000, 1000, 1000]
    fill(node, 500, first=3000)
    assert sum(step["numInputRows"] for step in run(stream(spark, node), tmp_path)) == 500
    assert payloads(tmp_path / "table") == list(range(3500))
    table = spark.read.format("folkmoot_delta").load(str(tmp_path / "table"))
    assert table.selectExpr("sum(cast(cast(payload as string) as long))").collect()[0][0] == sum(range(3500))


def test_a_batch_that_was_committed_but_not_logged_is_not_written_twice(
    spark: SparkSession, node: StreamNode, tmp_path: Path
) -> None:
    fill(node, 300)
    run(stream(spark, node), tmp_path)
    # A driver killed between the commit of the table and the commit log of Spark leaves exactly this.
    (newest,) = (tmp_path / "checkpoint" / "commits").glob("[0-9]*")
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    version = DeltaTable(tmp_path / "table").version()
    run(stream(spark, node), tmp_path)
    assert DeltaTable(tmp_path / "table").version() == version
    assert payloads(tmp_path / "table") == list(range(300))


def test_a_table_is_written_by_batches_and_from_foreach_batch(
    spark: SparkSession, node: StreamNode, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    for mode, wanted in (("append", 10), ("append", 20), ("overwrite", 10)):
        spark.range(10).write.format("folkmoot_delta").mode(mode).save(path)
        assert spark.read.format("folkmoot_delta").load(path).count() == wanted
    fill(node, 200)

    def twice(batch: DataFrame, number: int) -> None:
        for _ in range(2):
            once = {"txnAppId": "job", "txnVersion": str(number)}
            batch.write.format("folkmoot_delta").options(**once).mode("append").save(str(tmp_path / "once"))

    query = stream(spark, node).writeStream.foreachBatch(twice).option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert payloads(tmp_path / "once") == list(range(200))


def test_the_formats_are_found_without_registration(node: StreamNode) -> None:
    fill(node, 100)
    code = (
        "from pyspark.sql import SparkSession\n"
        "import pyspark_folkmoot.session as s, os, sys\n"
        "os.environ.update(PYSPARK_PYTHON=sys.executable, PYTHONPATH=s._python_path(), SPARK_LOCAL_IP='127.0.0.1')\n"
        "home = s.java_home()\n"
        "home and os.environ.update(JAVA_HOME=str(home))\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        f"print('count', spark.read.format('folkmoot').options(url={node.url!r}, stream='s').load().count())\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert "count 100" in answer.stdout, answer.stderr


def test_the_examples_of_the_documentation_work(spark: SparkSession, tmp_path: Path) -> None:
    assert spark is not None  # the examples ask for a session and get this one
    page = (Path(__file__).parents[2] / "docs" / "pipeline" / "index.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    code = re.sub('"((tables|checkpoints)/[a-z]+)"', lambda found: f'"{tmp_path}/{found[1]}"', code)
    with StreamNode(Shelf(StreamConfig("readings", b"sensors/#", 8))) as node:
        node.publish("sensors/hall/temperature", [b'{"value": 20.%d, "unit": "C"}' % n for n in (1, 2, 3)])
        exec(code.replace("http://127.0.0.1:8080", node.url), {})
    for table, column in (("messages", "payload"), ("values", "value"), ("hourly", "count")):
        rows = DeltaTable(tmp_path / "tables" / table).to_pyarrow_table()
        assert rows.column(column).null_count == 0
        assert rows.num_rows == (1 if table == "hourly" else 3)


class Driver:
    """A driver in processes of its own, which all die with it."""

    def __init__(self, node: StreamNode, folder: Path) -> None:
        self.log = (folder / "driver.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, DRIVER, node.url, folder],
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def kill(self) -> None:
        """kill -9 of Python, the JVM and all workers, at once."""
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def told(self) -> str:
        """The end of its log."""
        return Path(self.log.name).read_text(encoding="utf-8")[-3000:]


def wait_for_rows(driver: Driver, table: Path, count: int) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        assert driver.process.poll() is None, driver.told()
        if (table / "_delta_log").exists() and DeltaTable.is_deltatable(str(table)) and len(payloads(table)) >= count:
            return
        time.sleep(0.05)
    raise AssertionError(f"{table} never had {count} rows")


@pytest.mark.soak("two killed drivers: one with a pipeline, thus the same source and sink, is always killed")
def test_killed_drivers_and_nodes_leave_each_message_exactly_once(
    spark: SparkSession, node: StreamNode, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    fill(node, 20_000)
    for number, wanted in enumerate((4_000, 14_000)):
        driver = Driver(node, tmp_path)
        try:
            wait_for_rows(driver, table, wanted)
            node.stop()
            node.start()
        finally:
            driver.kill()
        fill(node, 5_000, first=20_000 + 5_000 * number)
    run(stream(spark, node), tmp_path)
    assert payloads(table) == list(range(30_000))
    files = DeltaTable(table).file_uris()
    query = 'select count(*), count(distinct payload), count(distinct (partition, "offset")) from read_parquet(?)'
    found = duckdb.connect().execute(query, [files]).fetchall()
    assert found == [(30_000, 30_000, 30_000)]
    offsets = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert json.loads(offsets[0].read_text().splitlines()[-1])["start"] == {"0": 0, "1": 0, "2": 0}
