"""What an expectation drops is in the quarantine and nowhere else, whatever the moment, the start, and what changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from folkmoot.streams.config import StreamConfig
from pyspark_folkmoot.pipeline.analyse import analyse
from pyspark_folkmoot.pipeline.backfill import backfill
from pyspark_folkmoot.pipeline.chance import by_chance
from pyspark_folkmoot.pipeline.engine import run_pipeline
from pyspark_folkmoot.pipeline.fault import Faults, PipelineProblem
from pyspark_folkmoot.pipeline.loading import Loaded, load_pipeline
from pyspark_folkmoot.pipeline.status import read_status
from tests.harness.streamnode import Shelf, StreamNode

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize(
    ("step", "check", "told"),
    [
        ("SELECT value FROM r", "value > 1", ""),
        ("SELECT value, current_timestamp() AS c, rand() AS q, uuid() AS u FROM r", "value > 1", ""),
        ("SELECT value, explode(array(1, 2)) AS x, now() AS n FROM r", "x > 1", ""),
        ("SELECT value FROM r UNION ALL SELECT value + 1 FROM r", "value > 1", ""),
        ("SELECT value FROM r", "value > 1 AND current_user() <> 'x' AND current_timezone() = 'UTC'", ""),
        ("SELECT value, if(value < 0, raise_error('no'), value) AS v FROM r", "v > 1", ""),
        ("SELECT r.value, a.id FROM r JOIN (SELECT id, uuid() AS u FROM range(9)) a ON r.value = a.id", "id > 1", ""),
        ("SELECT value FROM r", "value > rand()", "rand()"),
        ("SELECT value FROM r", "value > random(5)", "rand"),
        ("SELECT value FROM r", "timestamp'2026-01-01' < now()", "now()"),
        ("SELECT value FROM r", "curdate() IS NOT NULL", "current_date()"),
        ("SELECT value FROM r", "localtimestamp() IS NOT NULL", "localtimestamp"),
        ("SELECT value FROM r", "current_time() IS NOT NULL", "current_time"),
        ("SELECT value FROM r", "unix_timestamp() > value", "current_timestamp()"),
        ("SELECT value FROM r", "monotonically_increasing_id() > 1", "monotonically_increasing_id()"),
        ("SELECT value FROM r", "shuffle(array(1, value))[0] = 1", "shuffle"),
        ("SELECT value FROM r", "reflect('java.util.UUID', 'randomUUID') > 'a'", "reflect"),
        ("SELECT value, spark_partition_id() AS s FROM r", "s > 1", "SPARK_PARTITION_ID()"),
        ("SELECT value, uuid() AS u FROM (SELECT * FROM r)", "u LIKE 'a%'", "uuid()"),
        ("SELECT value, u FROM (SELECT value, upper(uuid()) AS u FROM r)", "u LIKE 'a%'", "uuid()"),
        (
            "SELECT value FROM r WHERE timestamp > current_timestamp() - INTERVAL 1 HOUR",
            "value > 1",
            "current_timestamp()",
        ),
        ("SELECT value FROM r WHERE value IN (SELECT id FROM range(9) WHERE rand() > 0.5)", "value > 1", "rand()"),
        ("SELECT value FROM r TABLESAMPLE (10 PERCENT)", "value > 1", "TABLESAMPLE"),
        ("SELECT value, explode(array(rand(), 2)) AS x FROM r", "value > 1", "rand()"),
        ("WITH a AS (SELECT value, rand() AS z FROM r) SELECT value, z FROM a", "z > 1", "rand()"),
        ("SELECT value FROM r JOIN range(9) a ON r.value = a.id AND now() > r.timestamp", "value > 1", "now()"),
    ],
)
def test_what_drops_by_the_moment_or_by_chance(spark: SparkSession, step: str, check: str, told: str) -> None:
    spark.readStream.format("rate").load().createOrReplaceTempView("r")
    found = ", ".join(by_chance(spark.sql(step), check))
    assert told in found
    assert bool(told) == bool(found)


def test_a_function_that_is_not_deterministic(spark: SparkSession) -> None:
    rate = spark.readStream.format("rate").load()
    sure = f.udf(lambda value: value, "long")
    frame = rate.select(sure("value").alias("sure"), sure.asNondeterministic()("value").alias("unsure"))  # type: ignore[attr-defined]
    assert by_chance(frame, "sure > 1") == []
    assert by_chance(frame, "unsure > 1") == ["<lambda>(value)"]


FILE = """\
name: judged
cluster: {url: "%URL%"}
trigger: once
state: state
sources:
  in:
    stream: s
    start: latest
    decode:
      - topic: "s/{place}"
        view: numbers
        format: number
        expect: [{name: whole, check: "value > -1000", otherwise: fail}]
steps:
  - name: high
    sql: SELECT place, value, current_timestamp() AS taken, _origin FROM numbers
    expect:
      - {name: e, check: "value >= ${LIMIT}"}
sinks:
  - {name: out, from: high, delta: out}
"""


@pytest.fixture
def node() -> Iterator[StreamNode]:
    with StreamNode(Shelf(StreamConfig("s", b"s/#", 2))) as node:
        yield node


def write(folder: Path, node: StreamNode, old: str = "", new: str = "", limit: str = "1000") -> Loaded:
    (folder / "p.yaml").write_text(FILE.replace("%URL%", node.url).replace(old, new), encoding="utf-8")
    return load_pipeline(folder / "p.yaml", {"LIMIT": limit})


def run(spark: SparkSession, loaded: Loaded, status: int = 0) -> str:
    said: list[str] = []
    assert run_pipeline(spark, loaded, said.append, threading.Event()) == status, "\n".join(said)
    return "\n".join(said)


def rows(path: Path | str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return found


def test_rows_are_in_the_table_or_in_the_quarantine(spark: SparkSession, node: StreamNode, tmp_path: Path) -> None:
    node.publish("s/a", [b"1", b"2000"])
    run(spark, write(tmp_path, node))
    node.publish("s/a", [b"3", b"1000", b"5000"])
    run(spark, write(tmp_path, node))
    quarantine = tmp_path / "state" / "quarantine"
    assert sorted(row["value"] for row in rows(tmp_path / "out")) == [1000.0, 5000.0], "from the end on, the first time"
    assert [(row["payload"], row["reason"]) for row in rows(quarantine)] == [(b"3", "not value >= ${LIMIT}")]

    changed = write(tmp_path, node, limit="4000")
    node.publish("s/b", [b"4000", b"3999"])
    for newest in ("1", ".1.crc"):  # as if it had been killed before it noted that its batch is done
        (tmp_path / "state" / "checkpoints" / "quarantine-high" / "commits" / newest).unlink()
    with pytest.raises(PipelineProblem, match="what drops rows of 'high' has changed"):
        run(spark, changed)
    run(spark, write(tmp_path, node))  # what it was: it repeats its batch and goes on to where the sink gets to
    node.publish("s/b", [b"4001", b"3998"])
    run(spark, changed)
    assert sorted(row["value"] for row in rows(tmp_path / "out")) == [1000.0, 3999.0, 4000.0, 4001.0, 5000.0]
    assert sorted(row["payload"] for row in rows(quarantine)) == [b"3", b"3998"]

    node.publish("s/b", [b"-5000"])
    told = run(spark, changed, status=1)
    assert "expectation 'whole' of 'numbers' does not hold" in told
    for file in (tmp_path / "state").glob("*.json"):
        assert "4000" not in file.read_text(encoding="utf-8").replace("offset", ""), file


def test_who_drops_by_the_moment_is_refused(spark: SparkSession, node: StreamNode, tmp_path: Path) -> None:
    analyse(spark, write(tmp_path, node), {})
    for old, new in (
        ("value >= ${LIMIT}", "taken > '2026-01-01'"),
        ("FROM numbers", "FROM numbers WHERE rand() < 0.5"),
    ):
        with pytest.raises(
            Faults, match=r"p.yaml:18: expectation 'e' drops rows of 'high' by .*\(\), which differs at each evaluation"
        ):
            analyse(spark, write(tmp_path, node, old, new), {})
    keep = write(tmp_path, node, 'value >= ${LIMIT}"', "taken > '2026-01-01'\", otherwise: keep")
    analyse(spark, keep, {})
    # Decoding by a function is the same at every look.
    write(tmp_path, node, "sql: SELECT place, value,", "sql: SELECT place, 5 AS value, seq,")
    text = (tmp_path / "p.yaml").read_text(encoding="utf-8").replace("format: number\n", "format: sparkplug\n")
    (tmp_path / "p.yaml").write_text(text.replace("value > -1000", "seq >= 0").replace("value >=", "seq >="))
    analyse(spark, load_pipeline(tmp_path / "p.yaml", {"LIMIT": "1000"}), {})


def test_the_figures_after_a_backfill(spark: SparkSession, node: StreamNode, tmp_path: Path) -> None:
    def figures() -> tuple[int, int]:
        found = read_status(tmp_path / "state")
        assert found is not None
        query = found["queries"]["out"]
        assert "uncounted" not in query
        return query["batch"], query["rows"]

    for _ in range(3):
        node.publish("s/a", [b"1", b"2", b"3"])
        run(spark, write(tmp_path, node, "start: latest", "start: earliest", limit="0002"))
    assert figures() == (2, 9)
    loaded = write(tmp_path, node, "start: latest", "start: earliest", limit="0002")
    assert backfill(spark, loaded, "out", None, None, lambda _: None) == 0
    assert figures() == (0, 0)
    node.publish("s/a", [b"1", b"2"])
    run(spark, loaded)
    assert figures() == (1, 2)
    assert len(rows(tmp_path / "out")) == 7
    assert len(rows(tmp_path / "state" / "quarantine")) == 4


TABLES = """\
name: tables
trigger: 500 ms
state: state
sources:
  rooms: {table: rooms.csv, format: csv, schema: "room STRING"}
  made: {sink: copy}
steps:
  - {name: copied, sql: SELECT room FROM rooms}
  - {name: pairs, sql: SELECT a.room FROM made a CROSS JOIN rooms b}
sinks:
  - {name: copy, from: copied, delta: copy, every: 500 ms}
  - {name: pairs, from: pairs, delta: pairs, every: 500 ms}
"""


def await_that(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 180  # Spark may share the machine with other tests
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.2)


def test_tables_alone_are_made_and_followed_until_the_end(spark: SparkSession, tmp_path: Path) -> None:
    def counts() -> tuple[int, int]:
        try:
            return len(rows(tmp_path / "copy")), len(rows(tmp_path / "pairs"))
        except TableNotFoundError:
            return 0, 0

    (tmp_path / "rooms.csv").write_text("room\nhall\n", encoding="utf-8")
    (tmp_path / "p.yaml").write_text(TABLES, encoding="utf-8")
    loaded = load_pipeline(tmp_path / "p.yaml", {})
    stop = threading.Event()
    said: list[str] = []
    ended: list[int] = []
    thread = threading.Thread(target=lambda: ended.append(run_pipeline(spark, loaded, said.append, stop)))
    thread.start()
    try:
        await_that(lambda: counts() == (1, 1))
        (tmp_path / "rooms.csv").write_text("room\nhall\nattic\n", encoding="utf-8")
        await_that(lambda: counts() == (2, 4))
        assert thread.is_alive(), "\n".join(said)
    finally:
        stop.set()
        thread.join(60)
    assert ended == [0]
    versions = [DeltaTable(str(tmp_path / name)).version() for name in ("copy", "pairs")]
    loaded.model = loaded.model.model_copy(update={"trigger": "once"})
    run(spark, loaded)
    assert [DeltaTable(str(tmp_path / name)).version() for name in ("copy", "pairs")] == [n + 1 for n in versions]


def test_a_stop_is_bounded(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.streaming.stopTimeout") == "30s"
