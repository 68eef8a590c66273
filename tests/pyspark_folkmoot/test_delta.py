"""Delta tables, written and read as Spark does it, without a JVM."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from folkmoot.kernel.errors import FolkmootError
from pyspark_folkmoot.delta import DeltaPlan, DeltaTables
from pyspark_folkmoot.delta_write import Written, write_files
from pyspark_folkmoot.option import OptionError

SCHEMA = StructType(
    [
        StructField("id", LongType(), nullable=False),
        StructField("name", StringType()),
        StructField("at", TimestampType()),
        StructField("tags", MapType(StringType(), StringType())),
    ]
)


def rows(*numbers: int) -> pa.RecordBatch:
    """Rows as Spark hands them over: in the session's time zone, with its nullability."""
    at = [dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=n) for n in numbers]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(numbers, pa.int64()),
            pa.array([None if n == 0 else f"n{n}" for n in numbers]),
            pa.array(at, pa.timestamp("us", tz="Europe/Berlin")),
            pa.array([[("k", str(n))] for n in numbers], pa.map_(pa.string(), pa.string())),
        ],
        names=["id", "name", "at", "tags"],
    )


class Sink:
    """A streaming write of one query, task by task."""

    def __init__(self, path: Path, query: str, **options: str) -> None:
        self.query = query
        self.source = DeltaTables({"path": str(path), "checkpointLocation": "x", **options})
        self.writer = self.source.streamWriter(SCHEMA, False)

    def stage(self, *batches: pa.RecordBatch) -> Written:
        writer: Any = self.writer
        staged = Written(self.query, write_files(writer.plan, writer.schema, batches))
        copy: Written = pickle.loads(pickle.dumps(staged))
        return copy

    def commit(self, batch: int, *messages: Written | None) -> None:
        fresh = pickle.loads(pickle.dumps(self.source)).streamWriter(SCHEMA, False)
        fresh.commit(list(messages), batch)


def ids(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table().column("id").to_pylist())


def read(path: Path, **options: str) -> list[dict[str, Any]]:
    source = DeltaTables({"path": str(path), **options})
    schema = source.schema()
    reader = pickle.loads(pickle.dumps(source)).reader(schema)
    found: list[dict[str, Any]] = []
    for task in reader.partitions():
        for batch in pickle.loads(pickle.dumps(reader)).read(task):
            found.extend(batch.to_pylist())
    return found


def test_batches_become_rows_that_others_read(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "t", "q")
    sink.commit(0, sink.stage(rows(0, 1), rows(2)), sink.stage(rows(3)))
    sink.commit(1, sink.stage(rows(4)), None)
    assert ids(tmp_path / "t") == [0, 1, 2, 3, 4]
    files = DeltaTable(tmp_path / "t").file_uris()
    query = f"select count(*), count(distinct id), count(name) from read_parquet({files!r})"
    found = duckdb.connect().execute(query).fetchall()
    assert found == [(5, 5, 4)]
    wanted = [{"id": n, "name": f"n{n}" if n else None, "tags": [("k", str(n))]} for n in range(5)]
    got = sorted(read(tmp_path / "t"), key=lambda row: int(row["id"]))
    assert [{key: row[key] for key in ("id", "name", "tags")} for row in got] == wanted
    assert got[3]["at"] == dt.datetime(2026, 1, 1, 0, 0, 0, 3, tzinfo=dt.UTC)


def test_a_repeated_batch_adds_nothing(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "q")
    sink.commit(0, sink.stage(rows(1)))
    sink.commit(1, sink.stage(rows(2)))
    again = Sink(tmp_path, "q")
    again.commit(1, again.stage(rows(2)))
    again.commit(0, again.stage(rows(1)))
    assert ids(tmp_path) == [1, 2]
    again.commit(2, again.stage(rows(3)))
    assert ids(tmp_path) == [1, 2, 3]


def test_queries_do_not_take_each_other_for_themselves(tmp_path: Path) -> None:
    for query in ("q1", "q2"):
        sink = Sink(tmp_path, query)
        sink.commit(0, sink.stage(rows(1)))
    assert ids(tmp_path) == [1, 1]


def test_what_was_never_committed_is_no_row(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "q")
    lost = sink.stage(rows(1))
    sink.commit(0, sink.stage(rows(1)))
    sink.writer.abort([lost], 0)
    assert ids(tmp_path) == [1]
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    DeltaTable(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert len(list(tmp_path.glob("*.parquet"))) == 1


def test_an_empty_batch_makes_an_empty_table(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "t", "q")
    sink.commit(0)
    sink.commit(1, sink.stage())
    assert read(tmp_path / "t") == []
    assert DeltaTable(tmp_path / "t").version() == 0


def test_a_table_with_partitions(tmp_path: Path) -> None:
    schema = StructType(
        [
            StructField("id", LongType()),
            StructField("day", DateType()),
            StructField("place", StringType()),
            StructField("late", BooleanType()),
        ]
    )
    days = [dt.date(2026, 1, 1), dt.date(2026, 1, 2), None]
    table = [(n, days[n % 3], ["a b/ö=%", None][n % 2], n % 5 == 0) for n in range(60)]
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in table],
        pa.schema([("id", pa.int64()), ("day", pa.date32()), ("place", pa.string()), ("late", pa.bool_())]),
    )
    source = DeltaTables({"path": str(tmp_path), "partitionBy": "day, place,late"})
    writer: Any = source.writer(schema, False)
    writer.commit([Written(None, write_files(writer.plan, writer.schema, [batch, batch.slice(0, 0)]))])
    assert DeltaTable(tmp_path).metadata().partition_columns == ["day", "place", "late"]
    by_others = DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["day"], row["place"], row["late"]) for row in by_others) == table
    assert sorted((row["id"], row["day"], row["place"], row["late"]) for row in read(tmp_path)) == table
    with pytest.raises(OptionError, match=r"'partitionBy'.*differs from the table's"):
        DeltaTables({"path": str(tmp_path), "partitionBy": "day"}).writer(schema, False)
    DeltaTables({"path": str(tmp_path)}).writer(schema, False)


def test_batch_writes_append_replace_and_happen_once(tmp_path: Path) -> None:
    def write(batch: pa.RecordBatch, overwrite: bool, **options: str) -> None:
        writer: Any = DeltaTables({"path": str(tmp_path), **options}).writer(SCHEMA, overwrite)
        writer.commit([Written(None, write_files(writer.plan, writer.schema, [batch]))])

    write(rows(1), False)
    write(rows(2), False)
    assert ids(tmp_path) == [1, 2]
    write(rows(3), True)
    assert ids(tmp_path) == [3]
    for version in ("7", "7", "6", "8"):
        write(rows(int(version)), False, txnAppId="job", txnVersion=version)
    assert ids(tmp_path) == [3, 7, 8]


def pairs(kind: Any, values: pa.Array) -> tuple[StructType, pa.RecordBatch]:
    """Rows with the columns `id`, 0 to n - 1, and `p`."""
    schema = StructType([StructField("id", LongType()), StructField("p", kind)])
    return schema, pa.RecordBatch.from_arrays([pa.array(range(len(values)), pa.int64()), values], names=["id", "p"])


def save(path: Path, rows: tuple[StructType, pa.RecordBatch], overwrite: bool = False, **options: str) -> None:
    writer: Any = DeltaTables({"path": str(path), **options}).writer(rows[0], overwrite)
    writer.commit([Written(None, write_files(writer.plan, writer.schema, [rows[1]]))])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (DoubleType(), pa.array([1.5, float("nan")])),
        (FloatType(), pa.array([1.5], pa.float32())),
        (BinaryType(), pa.array([b"\xff"])),
        (ArrayType(LongType()), pa.array([[1]])),
    ],
)
def test_partitions_that_would_not_come_back(tmp_path: Path, kind: Any, values: pa.Array) -> None:
    rows = pairs(kind, values)
    with pytest.raises(OptionError, match=r"'partitionBy'.* names 'p', which is .*: a table can be partitioned"):
        save(tmp_path / "new", rows, partitionBy="p")
    DeltaTable.create(tmp_path / "old", pa.schema([("id", pa.int64()), ("p", pa.float64())]), partition_by=["p"])
    if kind == DoubleType():
        with pytest.raises(OptionError, match="names 'p', which is double"):
            save(tmp_path / "old", rows)


def test_partitions_that_come_back(tmp_path: Path) -> None:
    numbers = [Decimal("0E-10"), Decimal("12.5"), None]
    save(tmp_path / "d", pairs(DecimalType(20, 10), pa.array(numbers, pa.decimal128(20, 10))), partitionBy="p")
    assert sorted((row["id"], row["p"]) for row in read(tmp_path / "d")) == list(enumerate(numbers))
    assert "0E" not in (tmp_path / "d/_delta_log/00000000000000000001.json").read_text(encoding="utf-8")
    save(tmp_path / "s", pairs(StringType(), pa.array(["", None, " ", "a"])), partitionBy="p")
    wanted = [(0, None), (1, None), (2, " "), (3, "a")]
    assert sorted((row["id"], row["p"]) for row in read(tmp_path / "s")) == wanted
    log = (tmp_path / "s/_delta_log/00000000000000000001.json").read_text(encoding="utf-8")
    assert '"partitionValues":{"p":null}' in log
    assert '"p":""' not in log


def test_an_overwrite_may_change_the_columns(tmp_path: Path) -> None:
    save(tmp_path, pairs(LongType(), pa.array([1, 2])))
    changed = pairs(StringType(), pa.array(["x"]))
    with pytest.raises(OptionError, match="a table with other columns"):
        save(tmp_path, changed)
    save(tmp_path, changed, overwrite=True)
    assert read(tmp_path) == DeltaTable(tmp_path).to_pyarrow_table().to_pylist() == [{"id": 0, "p": "x"}]
    assert len(read(tmp_path, version="1")) == 2
    with pytest.raises(OptionError, match="differs from the table's"):
        save(tmp_path, changed, overwrite=True, partitionBy="p")


def test_an_overwrite_keeps_the_partitions(tmp_path: Path) -> None:
    save(tmp_path, pairs(LongType(), pa.array([1, 2])), partitionBy="p")
    save(tmp_path, pairs(StringType(), pa.array(["x"])), overwrite=True)
    assert read(tmp_path) == DeltaTable(tmp_path).to_pyarrow_table().to_pylist() == [{"id": 0, "p": "x"}]
    schema = StructType([StructField("id", LongType())])
    with pytest.raises(OptionError, match="a table partitioned by 'p', which the write lacks"):
        save(tmp_path, (schema, pa.RecordBatch.from_arrays([pa.array([1])], names=["id"])), overwrite=True)


def test_versions_and_columns(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "q")
    sink.commit(0, sink.stage(rows(1)))
    sink.commit(1, sink.stage(rows(2)))
    assert [row["id"] for row in read(tmp_path, version="1")] == [1]
    assert sorted(row["id"] for row in read(tmp_path, columns="id")) == [1, 2]
    assert list(read(tmp_path, columns="name,id")[0]) == ["id", "name"]


def test_a_table_that_grew_a_column_and_was_made_by_others(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"id": pa.array([1], pa.int64())}))
    write_deltalake(
        tmp_path,
        pa.table({"id": pa.array([2], pa.int64()), "more": ["x"]}),
        mode="append",
        schema_mode="merge",
    )
    assert sorted(read(tmp_path), key=lambda row: int(row["id"])) == [{"id": 1, "more": None}, {"id": 2, "more": "x"}]


def test_files_are_shared_among_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink(tmp_path, "q")
    for batch in range(6):
        sink.commit(batch, sink.stage(rows(batch)))
    source = DeltaTables({"path": str(tmp_path)})
    assert len(source.reader(source.schema()).partitions()) == 1
    monkeypatch.setattr("pyspark_folkmoot.delta_read.TASK_BYTES", 5000)
    assert 2 <= len(source.reader(source.schema()).partitions()) <= 6
    assert sorted(row["id"] for row in read(tmp_path)) == list(range(6))


def test_skipping_needs_statistics(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "q")
    sink.commit(0, sink.stage(rows(5, 9, 7)))
    action = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()[0]
    assert (action["num_records"], action["min.id"], action["max.id"]) == (3, 5, 9)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, r"option 'path'.*is required; valid options: path, columns"),
        ({"path": "s3://bucket/x"}, "local or mounted"),
        ({"path": "/x", "colums": "a"}, "did you mean 'columns'"),
        ({"path": "/x", "txnAppId": "a"}, "belong together"),
        ({"path": "/x", "version": "last"}, "option 'version'"),
    ],
)
def test_options_that_are_wrong(options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        DeltaTables(options)


def test_writes_that_cannot_be(tmp_path: Path) -> None:
    sink = Sink(tmp_path, "q")
    sink.commit(0, sink.stage(rows(1)))
    other = StructType([StructField("id", IntegerType()), StructField("name", StringType())])
    with pytest.raises(OptionError, match=r"a table with other columns \(at: .*; id: .*integer.*; tags:"):
        DeltaTables({"path": str(tmp_path)}).streamWriter(other, False)
    with pytest.raises(OptionError, match="outputMode"):
        DeltaTables({"path": str(tmp_path)}).streamWriter(SCHEMA, True)
    with pytest.raises(OptionError, match="has its own id"):
        DeltaTables({"path": str(tmp_path), "txnAppId": "a", "txnVersion": "1"}).streamWriter(SCHEMA, False)
    with pytest.raises(OptionError, match="names 'x'"):
        DeltaTables({"path": str(tmp_path / "new"), "partitionBy": "x"}).writer(SCHEMA, False)
    with pytest.raises(OptionError, match="is for reading"):
        DeltaTables({"path": str(tmp_path), "version": "0"}).writer(SCHEMA, False)


def test_reads_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no table yet"):
        DeltaTables({"path": str(tmp_path)}).schema()
    DeltaTable.create(
        tmp_path,
        pa.schema([("id", pa.int64())]),
        configuration={"delta.enableDeletionVectors": "true"},
        raise_if_key_not_exists=False,
    )
    source = DeltaTables({"path": str(tmp_path)})
    with pytest.raises(FolkmootError, match="deletionVectors"):
        source.reader(source.schema())


@pytest.mark.parametrize("mode", ["name", "id", "none"])
def test_columns_under_other_names_are_refused_also_by_the_old_protocol(tmp_path: Path, mode: str) -> None:
    save(tmp_path, pairs(LongType(), pa.array([1, 2])))
    for file in sorted((tmp_path / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for action in actions:
            if "protocol" in action:
                action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
            if "metaData" in action:
                action["metaData"]["configuration"] = {"delta.columnMapping.mode": mode}
                fields = json.loads(action["metaData"]["schemaString"])
                for number, field in enumerate(fields["fields"]):
                    names = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
                    field["metadata"] = names if mode != "none" else {}
                action["metaData"]["schemaString"] = json.dumps(fields)
        file.write_text("\n".join(map(json.dumps, actions)) + "\n", encoding="utf-8")
    if mode == "none":
        assert len(read(tmp_path)) == 2
        return
    with pytest.raises(FolkmootError, match=rf"uses columnMapping \({mode}\), which"):
        read(tmp_path)
    with pytest.raises(FolkmootError, match="columnMapping"):
        save(tmp_path, pairs(LongType(), pa.array([3])))


def test_partition_values_of_any_length_have_folders_of_their_own(tmp_path: Path) -> None:
    plan = DeltaPlan({"path": str(tmp_path / "t"), "partitionBy": "dev"})
    schema = pa.schema([("dev", pa.string()), ("n", pa.int64())])
    values = ["a" * 300, "a" * 299 + "b", "ü" * 200, "😀" * 300, "a" * 60_000]
    batch = pa.record_batch([pa.array(values), pa.array(range(len(values)))], schema=schema)
    files = write_files(plan, schema, [batch])
    folders = [file["path"].split("/")[0] for file in files]
    assert len(set(folders)) == len(values)
    assert max(len(folder.encode()) for folder in folders) <= 255
    assert [file["partition_values"]["dev"] for file in files] == values
