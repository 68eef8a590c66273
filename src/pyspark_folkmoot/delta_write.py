"""Writing a Delta table: tasks write files that are not visible yet, and the driver adds them in one commit.

Exactly once: a commit carries (query id, batch id) as the Delta transaction of its application. A batch that Spark
repeats after a crash finds its number there and adds nothing. Files of failed, repeated or late task attempts belong
to no commit: they are never rows, and `vacuum(full=True)` removes them.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from typing_extensions import override

from pyspark_folkmoot.delta import DeltaPlan

__all__ = ["DeltaStreamWriter", "DeltaWriter", "Written", "empty_as_null", "existing_table", "write_files"]

GROUP_BYTES: Final = 67_108_864
GROUP_ROWS: Final = 1_048_576
FILE_BYTES: Final = 268_435_456
OPEN_FILES_MAX: Final = 64
FOLDER_CHARACTERS_MAX: Final = 128
"""Of the folder name of a partition value. File systems permit names of 255 bytes and paths of 4,096 bytes."""

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"


class Written(WriterCommitMessage):
    """What one task wrote: its files, and the query that it worked for."""

    def __init__(self, query: str | None, files: list[dict[str, Any]]) -> None:
        self.query = query
        self.files = files


class DeltaStreamWriter(DataSourceStreamArrowWriter):
    """Appends the micro-batches of a query."""

    def __init__(self, plan: DeltaPlan, schema: pa.Schema) -> None:
        self.plan = plan
        self.schema = schema

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        if query is None:
            raise RuntimeError("Spark gave no query id to a task of a stream: this version of Spark is not supported")
        return Written(query, write_files(self.plan, self.schema, iterator))

    @override
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = [message for message in messages if isinstance(message, Written)]
        files = [file for message in written for file in message.files]
        table = existing_table(self.plan, self.schema)
        if files:
            assert written[0].query is not None
            _commit(table, self.plan, self.schema, files, "append", (written[0].query, batchId))

    @override
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # Spark also aborts when only the answer of a commit was lost: the files may be in the table, so they are kept.
        return


class DeltaWriter(DataSourceArrowWriter):
    """One batch write: appends or replaces; with txnAppId and txnVersion a repetition has no effect."""

    def __init__(self, plan: DeltaPlan, schema: pa.Schema, overwrite: bool) -> None:
        self.plan = plan
        self.schema = schema
        self.overwrite = overwrite

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Written(None, write_files(self.plan, self.schema, iterator))

    @override
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        files = [file for message in messages if isinstance(message, Written) for file in message.files]
        table = existing_table(self.plan, self.schema)
        if files or self.overwrite:
            transaction = None
            if self.plan.app is not None and self.plan.app_version is not None:
                transaction = (self.plan.app, self.plan.app_version)
            _commit(table, self.plan, self.schema, files, "overwrite" if self.overwrite else "append", transaction)

    @override
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        return  # as in DeltaStreamWriter.abort


def existing_table(plan: DeltaPlan, schema: pa.Schema) -> DeltaTable:
    """Return the table; create it empty if there is none, so that readers find it before the first batch."""
    table = plan.table()
    if table is None:
        Path(plan.path).mkdir(parents=True, exist_ok=True)
        DeltaTable.create(plan.path, Schema.from_arrow(schema), mode="ignore", partition_by=plan.partition_by or None)
        table = DeltaTable(plan.path)
    return table


def _commit(
    table: DeltaTable,
    plan: DeltaPlan,
    schema: pa.Schema,
    files: list[dict[str, Any]],
    mode: str,
    transaction: tuple[str, int] | None,
) -> None:
    """Make `files` visible, unless the transaction was committed before."""
    properties = None
    if transaction is not None:
        app, version = transaction
        last = table.transaction_version(app)
        if last is not None and last >= version:
            return
        properties = CommitProperties(app_transactions=[Transaction(app, version)])
    table.create_write_transaction(
        [AddAction(**file) for file in files],
        mode,
        Schema.from_arrow(schema),
        partition_by=plan.partition_by or None,
        commit_properties=properties,
    )


def write_files(plan: DeltaPlan, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Write rows as Parquet files under the table's folder and return the arguments of their `AddAction`s."""
    kept = pa.schema([field for field in schema if field.name not in plan.partition_by])
    open_files: dict[tuple[str | None, ...], _File] = {}
    done: list[dict[str, Any]] = []
    for batch in batches:
        if batch.num_rows == 0:
            continue
        # The session's time zone and nullability may differ from the table's; the values do not.
        rows = pa.Table.from_batches([batch]).rename_columns(schema.names).cast(schema)
        rows = empty_as_null(rows, plan.partition_by)
        for values, part in _parts(rows, plan.partition_by):
            file = open_files.get(values)
            if file is None:
                if len(open_files) >= OPEN_FILES_MAX:
                    done.append(open_files.pop(next(iter(open_files))).close())
                file = open_files[values] = _File(plan, kept, values)
            file.add(part.select(kept.names))
            if file.size >= FILE_BYTES:
                done.append(open_files.pop(values).close())
    done.extend(file.close() for file in open_files.values())
    return done


def empty_as_null(rows: pa.Table, partition_by: list[str]) -> pa.Table:
    """Return `rows` with NULL for empty texts in the columns of the partitions.

    The Delta protocol writes NULL as an empty text there: readers would read NULL, and a merge would not find the row.
    """
    for column in partition_by:
        found = rows.column(column)
        if pa.types.is_string(found.type):
            filled = pc.if_else(pc.equal(found, ""), pa.scalar(None, found.type), found)
            rows = rows.set_column(rows.schema.get_field_index(column), rows.schema.field(column), filled)
    return rows


def _parts(rows: pa.Table, partition_by: list[str]) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """Yield the rows of each combination of partition values, the values as Delta writes them."""
    if not partition_by:
        yield (), rows
        return
    keys = rows.select(partition_by).group_by(partition_by).aggregate([])
    for key in keys.to_pylist():
        mask = None
        for column, value in key.items():
            found = rows.column(column)
            same = pc.is_null(found) if value is None else pc.fill_null(pc.equal(found, value), False)
            mask = same if mask is None else pc.and_(mask, same)
        yield tuple(_text(value) for value in key.values()), rows.filter(mask)


def _text(value: object) -> str | None:
    """Return a partition value as the Delta protocol writes it."""
    if value is None:
        return None
    if isinstance(value, Decimal):
        return format(value, "f")  # without an exponent
    return str(value).lower() if isinstance(value, bool) else str(value)


def _folder_name(column: str, value: str | None) -> str:
    """Return the folder of a partition value.

    The log has the values. Folder names need not be exact, but must not need escapes. A topic level can be longer than
    a file name: a digest distinguishes values with the same beginning.
    """
    whole = f"{column}={NULL_FOLDER if value is None else value}"
    name = re.sub("[^A-Za-z0-9._=-]", "_", whole)
    if len(name) <= FOLDER_CHARACTERS_MAX:
        return name
    digest = hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:16]
    return f"{name[: FOLDER_CHARACTERS_MAX - len(digest) - 1]}-{digest}"


class _File:
    """A Parquet file that is being written; rows are collected into row groups of a useful size."""

    def __init__(self, plan: DeltaPlan, schema: pa.Schema, values: tuple[str | None, ...]) -> None:
        self.values = dict(zip(plan.partition_by, values, strict=True))
        folder = "/".join(_folder_name(column, value) for column, value in self.values.items())
        name = f"part-{uuid4()}.parquet"
        self.path = f"{folder}/{name}" if folder else name
        self.size = 0
        self._full = Path(plan.path) / self.path
        self._full.parent.mkdir(parents=True, exist_ok=True)
        self._schema = schema
        self._writer = pq.ParquetWriter(self._full, schema, compression="snappy")
        self._waiting: list[pa.Table] = []
        self._bytes = 0
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        self._rows += rows.num_rows
        if self._bytes >= GROUP_BYTES or self._rows >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting).combine_chunks(), row_group_size=GROUP_ROWS)
            self.size += self._bytes
            self._waiting = []
            self._bytes = self._rows = 0

    def close(self) -> dict[str, Any]:
        self._flush()
        self._writer.close()
        return {
            "path": self.path,
            "size": self._full.stat().st_size,
            "partition_values": self.values,
            "modification_time": int(time.time() * 1000),
            "data_change": True,
            "stats": json.dumps(_statistics(pq.read_metadata(self._full), self._schema)),
        }


def _statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, Any]:
    """Return the statistics that let readers skip the file: number of rows, and range of each integer column."""
    lows: dict[str, int] = {}
    highs: dict[str, int] = {}
    integers = {field.name for field in schema if pa.types.is_integer(field.type)}
    unknown: set[str] = set()
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            name = column.path_in_schema
            if name not in integers:
                continue
            found = column.statistics
            if found is None or not found.has_min_max:
                unknown.add(name)
                continue
            lows[name] = min(found.min, lows.get(name, found.min))
            highs[name] = max(found.max, highs.get(name, found.max))
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: value for name, value in lows.items() if name not in unknown},
        "maxValues": {name: value for name, value in highs.items() if name not in unknown},
        "nullCount": {},
    }
