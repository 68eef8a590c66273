"""Reading a version of a Delta table: its files are distributed over tasks, which read them with pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from typing_extensions import override

from pyspark_folkmoot.delta import check_known

__all__ = ["DeltaReader"]

TASK_BYTES: Final = 67_108_864
BATCH_ROWS: Final = 65_536


class Files(InputPartition):
    """The files of one task: path below the table and partition values as text."""

    def __init__(self, files: list[tuple[str, dict[str, str | None]]]) -> None:
        super().__init__(None)
        self.files = files


class DeltaReader(DataSourceReader):
    """Reads the table at its current version."""

    def __init__(self, table: DeltaTable, schema: StructType) -> None:
        check_known(table)
        self.root = unquote(table.table_uri.removeprefix("file://"))
        self.schema = schema
        self.partition_columns = list(table.metadata().partition_columns)
        self.files = _files(table, self.partition_columns)

    @override
    def partitions(self) -> Sequence[InputPartition]:
        tasks: list[InputPartition] = []
        waiting: list[tuple[str, dict[str, str | None]]] = []
        size = 0
        for path, bytes_, values in self.files:
            if waiting and size + bytes_ > TASK_BYTES:
                tasks.append(Files(waiting))
                waiting, size = [], 0
            waiting.append((path, values))
            size += bytes_
        if waiting:
            tasks.append(Files(waiting))
        return tasks

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Files):
            return  # Spark's stand-in for a table without files
        arrow = to_arrow_schema(self.schema, timezone="UTC")
        for path, values in partition.files:
            file = pq.ParquetFile(Path(self.root) / path)
            present = [name for name in arrow.names if name in file.schema_arrow.names]
            for batch in file.iter_batches(BATCH_ROWS, columns=present):
                yield _shaped(batch, arrow, values)


def _files(table: DeltaTable, partition_columns: list[str]) -> list[tuple[str, int, dict[str, str | None]]]:
    """Return path, size and partition values of every file of the table, in the order of the paths."""
    actions = pa.table(table.get_add_actions(flatten=False)).to_pylist()
    files = []
    for action in actions:
        found: dict[str, Any] = action.get("partition") or action.get("partition_values") or {}
        values = {column: _text(found.get(column)) for column in partition_columns}
        files.append((unquote(action["path"]), action["size_bytes"], values))
    return sorted(files, key=lambda file: file[0])


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shaped(batch: pa.RecordBatch, schema: pa.Schema, values: dict[str, str | None]) -> pa.RecordBatch:
    """Return `batch` with exactly the columns of `schema`: partition values added, missing columns null."""
    arrays = []
    for field in schema:
        if field.name in values:
            arrays.append(pa.array([values[field.name]], pa.string()).cast(field.type).take(_zeros(batch.num_rows)))
        elif field.name in batch.schema.names:
            arrays.append(batch.column(field.name).cast(field.type))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _zeros(count: int) -> pa.Array:
    return pa.array([0] * count, pa.int32())
