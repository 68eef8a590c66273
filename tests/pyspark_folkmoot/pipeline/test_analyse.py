"""What only Spark can tell of a pipeline: commands that are no queries, expressions that judge no row, formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_folkmoot.pipeline.analyse import analyse
from pyspark_folkmoot.pipeline.fault import Faults, PipelineProblem
from pyspark_folkmoot.pipeline.loading import load_pipeline
from pyspark_folkmoot.pipeline.plan import query_text, sources_read, streams_read

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

FILE = """\
name: p
cluster: {url: "127.0.0.1:1"}
sources:
  in: {stream: s, decode: [{topic: "s/{place}", view: r, format: number}]}
steps:
  - name: w
    sql: "SELECT place, value AS v FROM r"
    expect:
      - {name: e, check: "v > 1"}
sinks:
  - {name: out, from: w, delta: out}
"""
STEP, CHECK, SINK = 7, 9, 11
"""Lines of the file."""


def faults(spark: SparkSession, folder: Path, old: str, new: str) -> list[tuple[int, str]]:
    assert old in FILE
    (folder / "p.yaml").write_text(FILE.replace(old, new), encoding="utf-8")
    try:
        analyse(spark, load_pipeline(folder / "p.yaml", {}), {})
    except Faults as error:
        return [(fault.line, fault.text) for fault in error.faults]
    return []


QUERIES = [
    "SELECT 1 AS x",
    "SELECT 1 AS x; -- one\n",
    "SELECT '; -- DROP TABLE t' AS x",
    "-- INSERT\nSELECT 1",
    "VALUES (1)",
    "TABLE r",
    "FROM r",
    "FROM r SELECT v",
    "FROM r |> WHERE v > 1 |> SELECT v",
    "WITH a AS (SELECT 1) SELECT * FROM a",
    "WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a WHERE n < 3) SELECT * FROM a",
    "(SELECT 1) UNION (SELECT 2) ORDER BY 1 LIMIT 1",
    "SELECT * FROM STREAM r WATERMARK t DELAY OF INTERVAL 1 MINUTE",
]


@pytest.mark.parametrize("sql", QUERIES)
def test_queries(spark: SparkSession, sql: str) -> None:
    assert sql.startswith(query_text(spark, sql))


COMMANDS = {
    "INSERT OVERWRITE DIRECTORY '%s' USING json SELECT 1 AS x": "INSERT",
    "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a": "INSERT",
    "FROM r INSERT INTO t SELECT v": "INSERT",
    "FROM r INSERT INTO t SELECT v INSERT INTO u SELECT v": "INSERT",
    "/* SELECT */ CREATE TABLE t AS SELECT 1": "CREATE",
    "CREATE TEMP VIEW x AS SELECT 1;": "CREATE",
    "BEGIN SELECT 1; END": "BEGIN",
    "EXECUTE IMMEDIATE 'DROP TABLE t'": "EXECUTE",
    "MERGE INTO t USING u ON t.x = u.x WHEN MATCHED THEN DELETE": "MERGE",
    "CALL p()": "CALL",
    **{f"{words} t": words.split()[0] for words in ("DROP TABLE", "CACHE TABLE", "TRUNCATE TABLE", "USE", "DESCRIBE")},
    **{words: words.split()[0] for words in ("SET a = b", "SET", "RESET", "SET VAR x = 1", "ADD JAR '/x.jar'")},
    "DECLARE VARIABLE x INT": "DECLARE",
    "EXPLAIN SELECT 1": "EXPLAIN",
}


@pytest.mark.parametrize(("sql", "word"), COMMANDS.items())
def test_commands_are_refused(spark: SparkSession, sql: str, word: str) -> None:
    with pytest.raises(PipelineProblem, match=rf"sql is a command \({word}\), and steps are queries: write a SELECT"):
        query_text(spark, sql)


def test_a_check_runs_no_command(spark: SparkSession, tmp_path: Path) -> None:
    written = tmp_path / "written"
    command = f"INSERT OVERWRITE DIRECTORY '{written}' USING json SELECT value FROM r"
    ((line, told),) = faults(spark, tmp_path, "SELECT place, value AS v FROM r", command)
    assert line == STEP
    assert told.startswith("step 'w': sql is a command (INSERT)")
    ((line, told),) = faults(spark, tmp_path, "v > 1", command)
    assert line == CHECK
    assert told.startswith("expectation 'e' of 'w': ")
    assert not written.exists()
    assert faults(spark, tmp_path, "v > 1", "v < 1") == []


@pytest.mark.parametrize("otherwise", ["drop", "keep", "fail"])
@pytest.mark.parametrize(
    ("check", "told"),
    [
        ("max(v) > 1", "max(v)"),
        ("row_number() OVER (ORDER BY v) > 1", "window functions"),
        ("explode(array(true))", "explode(array(true))"),
    ],
)
def test_an_expectation_is_of_one_row(
    spark: SparkSession, tmp_path: Path, check: str, told: str, otherwise: str
) -> None:
    ((line, text),) = faults(spark, tmp_path, '"v > 1"', f'"{check}", otherwise: {otherwise}')
    assert line == CHECK
    assert text.startswith("expectation 'e' of 'w' must evaluate each row on its own: ")
    assert told in text


def test_formats(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("console", "json", "noop", "memory", "folkmoot"):
        assert faults(spark, tmp_path, "delta: out", f"format: {name}") == []
    ((line, told),) = faults(spark, tmp_path, "delta: out", "format: nosuch")
    assert line == SINK
    assert told.startswith("sink 'out': there is no format 'nosuch': ")
    ((line, told),) = faults(spark, tmp_path, "delta: out", "format: kafka")
    assert line == SINK
    assert "Failed to find data source: kafka" in told


def test_sources_as_the_progress_of_a_query_has_them(spark: SparkSession, tmp_path: Path) -> None:
    def stream(name: str, rows: int) -> DataFrame:
        options: dict[str, str | int] = {"rowsPerBatch": rows, "stream": name}
        return spark.readStream.format("rate-micro-batch").options(**options).load()

    one, two, other = stream("s", 5), stream("t", 3), stream("s", 2)
    frame = one.where("value >= 0").union(two).union(one).union(other).union(one)
    assert streams_read(frame) == ["s", "t", "s", "s", "s"]
    found = sources_read(frame)
    assert found == [("s", 3), ("t", 1), ("s", 1)]
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = json.loads(query.lastProgress.json)  # type: ignore[union-attr]
    rows = [source["numInputRows"] for source in progress["sources"]]
    ends = [source["endOffset"]["offset"] for source in progress["sources"]]
    assert rows == [end * scans for end, (_, scans) in zip(ends, found, strict=True)]
    assert len(set(ends)) == len(ends)
