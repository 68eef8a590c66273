"""The format `folkmoot_delta`: Delta Lake tables without a jar, written exactly once by streams, read as a batch.

Contains the options and the schemas; `delta_write` writes, `delta_read` reads. The package `deltalake` (delta-rs)
implements the Delta protocol.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlparse

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import TableNotFoundError
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, DataSourceStreamArrowWriter
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from typing_extensions import override

from folkmoot.kernel.errors import FolkmootError
from pyspark_folkmoot.option import Options

__all__ = ["DeltaPlan", "DeltaTables", "check_known", "partition_fault", "table_schema"]

VALID: Final = ("path", "columns", "version", "partitionBy", "txnAppId", "txnVersion")

# Spark adds these of its own to the options of a sink.
IGNORED: Final = ("checkpointLocation", "queryName", "outputMode")


# Types whose values can be restored from their text in Delta's log. Floating-point numbers cannot (NaN equals nothing),
# bytes cannot (readers interpret them differently), and nested values have no text.
PARTITION_TYPES: Final = (
    *("string", "varchar", "char", "boolean", "date", "timestamp", "timestamp_ntz"),
    *("tinyint", "smallint", "int", "bigint", "decimal"),
)

# Features that change the meaning of a file's rows: a reader or writer without them would get the rows wrong.
UNKNOWN: Final = ("deletionVectors", "columnMapping")


class DeltaPlan:
    """The options of one read or write of a table, checked."""

    def __init__(self, given: Mapping[str, str]) -> None:
        options = Options("folkmoot_delta", given, VALID, IGNORED)
        self.options = options
        self.path = _folder(options)
        self.version = options.integer("version", 0)
        partition_by = options.text("partitionBy")
        self.partition_by = [part.strip() for part in partition_by.split(",") if part.strip()] if partition_by else []
        self.app = options.text("txnAppId")
        self.app_version = options.integer("txnVersion", 0)
        if (self.app is None) != (self.app_version is None):
            raise options.wrong("txnAppId", "and 'txnVersion' belong together: give both")

    def table(self) -> DeltaTable | None:
        """Return the current table, or None if there is none."""
        try:
            return DeltaTable(self.path, version=self.version)
        except TableNotFoundError:
            return None

    def arrow_schema(self, schema: StructType) -> pa.Schema:
        """Return the Arrow schema in which rows of `schema` are written; all columns are nullable."""
        arrow = to_arrow_schema(schema, timezone="UTC")
        return pa.schema([field.with_nullable(True) for field in arrow])

    def check_write(self, schema: StructType, overwrite: bool = False) -> None:
        """Refuse a write whose columns differ from those of the existing table; `overwrite` may change them."""
        if self.version is not None:
            raise self.options.wrong("version", "is for reading")
        wanted = self.arrow_schema(schema)
        for column in self.partition_by:
            if column not in wanted.names:
                raise self.options.wrong("partitionBy", f"names {column!r}: the columns are {', '.join(wanted.names)}")
        table = self.table()
        partition_columns = self.partition_by if table is None else list(table.metadata().partition_columns)
        if self.partition_by and self.partition_by != partition_columns:
            raise self.options.wrong(
                "partitionBy", f"differs from the table's, which is {','.join(partition_columns)!r}"
            )
        self.partition_by = partition_columns
        if table is not None:
            check_known(table)
            if not overwrite:
                self._check_columns(table, wanted)
        for column in self.partition_by:
            if column not in wanted.names:
                why = (
                    f"is {self.path}, a table partitioned by {column!r}, which the write lacks: remove the table first"
                )
                raise self.options.wrong("path", why)
            fault = partition_fault(schema[column].dataType.simpleString())
            if fault is not None:
                raise self.options.wrong("partitionBy", f"names {column!r}, which {fault}")

    def _check_columns(self, table: DeltaTable, wanted: pa.Schema) -> None:
        found = {field["name"]: json.dumps(field["type"]) for field in _fields(table.schema())}
        ours = {field["name"]: json.dumps(field["type"]) for field in _fields(Schema.from_arrow(wanted))}
        if found != ours:
            differ = sorted(name for name in found.keys() | ours.keys() if found.get(name) != ours.get(name))
            said = "; ".join(
                f"{name}: table {found.get(name, 'none')}, write {ours.get(name, 'none')}" for name in differ
            )
            raise self.options.wrong("path", f"is {self.path}, a table with other columns ({said})")


class DeltaTables(DataSource):
    """`spark.read`, `df.write` and `df.writeStream` with `.format("folkmoot_delta")`; see docs/pipeline/index.md."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)  # type: ignore[arg-type]
        self.plan = DeltaPlan(options)

    @classmethod
    @override
    def name(cls) -> str:
        return "folkmoot_delta"

    @override
    def schema(self) -> StructType:
        table = self._table()
        schema = table_schema(table)
        self.plan.version = table.version()  # read the version that was inspected
        columns = self.plan.options.columns("columns", tuple(schema.names))
        return StructType([schema[column] for column in columns])

    @override
    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_folkmoot.delta_read import DeltaReader

        return DeltaReader(self._table(), schema)

    @override
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from pyspark_folkmoot.delta_write import DeltaWriter

        self.plan.check_write(schema, overwrite)
        return DeltaWriter(self.plan, self.plan.arrow_schema(schema), overwrite)

    @override
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from pyspark_folkmoot.delta_write import DeltaStreamWriter

        if overwrite:
            raise self.plan.options.wrong("path", "can only be appended to by a stream: set outputMode('append')")
        if self.plan.app is not None:
            raise self.plan.options.wrong("txnAppId", "is for a batch write: a stream has its own id and version")
        self.plan.check_write(schema)
        return DeltaStreamWriter(self.plan, self.plan.arrow_schema(schema))

    def _table(self) -> DeltaTable:
        table = self.plan.table()
        if table is None:
            raise self.plan.options.wrong("path", f"is {self.plan.path}, where there is no table yet")
        return table


def check_known(table: DeltaTable) -> None:
    """Refuse a table with features that change the rows or columns of its files."""
    unknown = [name for name in table.protocol().reader_features or [] if name in UNKNOWN]
    # Tables of reader version 2 have no list of features; only a property says that columns are mapped.
    mode = table.metadata().configuration.get("delta.columnMapping.mode") or "none"
    if mode != "none" and "columnMapping" not in unknown:
        unknown.append(f"columnMapping ({mode})")
    if unknown:
        raise FolkmootError(
            f"the table {table.table_uri} uses {', '.join(unknown)}, which folkmoot_delta does not know: use Spark's "
            "own format 'delta'"
        )


def partition_fault(kind: str) -> str | None:
    """Return why a column of this Spark type, such as `decimal(20,0)`, cannot partition a table; None if it can."""
    if re.split("[(<]", kind)[0] in PARTITION_TYPES:
        return None
    return f"is {kind}: a table can be partitioned by text, integers, DECIMAL, BOOLEAN, DATE and TIMESTAMP"


def table_schema(table: DeltaTable) -> StructType:
    """Return the Spark schema of a table; Delta keeps it in Spark's own JSON."""
    return StructType.fromJson(json.loads(table.schema().to_json()))


def _fields(schema: Schema) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(schema.to_json())["fields"]
    return fields


def _folder(options: Options) -> str:
    """Return the folder of the table; every task writes there, so it must be local or mounted everywhere."""
    text = options.required("path")
    parsed = urlparse(text)
    if parsed.scheme == "file":
        return unquote(parsed.path)
    if parsed.scheme and "://" in text:
        raise options.wrong("path", f"is {text}: it must be a folder on a local or mounted disk")
    return str(Path(text).absolute())
