"""The format `folkmoot_delta`: Delta Lake tables without a jar, written exactly once by streams, read as a batch.

Owns the options and the schemas. `delta_write` has what writes, `delta_read` what reads; the Delta protocol itself is
the work of the package `deltalake` (delta-rs).
"""

from __future__ import annotations

import json
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

from pyspark_folkmoot.option import Options

__all__ = ["DeltaPlan", "DeltaTables", "table_schema"]

VALID: Final = ("path", "columns", "version", "partitionBy", "txnAppId", "txnVersion")

# Spark adds these of its own to the options of a sink.
IGNORED: Final = ("checkpointLocation", "queryName", "outputMode")


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
        """Return the table as it is now, None when there is none."""
        try:
            return DeltaTable(self.path, version=self.version)
        except TableNotFoundError:
            return None

    def arrow_schema(self, schema: StructType) -> pa.Schema:
        """Return the Arrow schema in which rows of `schema` are written; everything may be null."""
        arrow = to_arrow_schema(schema, timezone="UTC")
        return pa.schema([field.with_nullable(True) for field in arrow])

    def check_write(self, schema: StructType) -> None:
        """Refuse a write whose columns are not those of the table that is there."""
        if self.version is not None:
            raise self.options.wrong("version", "is for reading")
        wanted = self.arrow_schema(schema)
        for column in self.partition_by:
            if column not in wanted.names:
                raise self.options.wrong("partitionBy", f"names {column!r}: the columns are {', '.join(wanted.names)}")
        table = self.table()
        if table is None:
            return
        found = {field["name"]: json.dumps(field["type"]) for field in _fields(table.schema())}
        ours = {field["name"]: json.dumps(field["type"]) for field in _fields(Schema.from_arrow(wanted))}
        if found != ours:
            differ = sorted(name for name in found.keys() | ours.keys() if found.get(name) != ours.get(name))
            said = "; ".join(
                f"{name}: table {found.get(name, 'none')}, write {ours.get(name, 'none')}" for name in differ
            )
            raise self.options.wrong("path", f"is {self.path}, a table with other columns ({said})")
        partition_columns = table.metadata().partition_columns
        if self.partition_by and self.partition_by != partition_columns:
            raise self.options.wrong(
                "partitionBy", f"differs from the table's, which is {','.join(partition_columns)!r}"
            )
        self.partition_by = list(partition_columns)


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
        self.plan.version = table.version()  # what is read is the version that was looked at
        columns = self.plan.options.columns("columns", tuple(schema.names))
        return StructType([schema[column] for column in columns])

    @override
    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_folkmoot.delta_read import DeltaReader

        return DeltaReader(self._table(), schema)

    @override
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from pyspark_folkmoot.delta_write import DeltaWriter

        self.plan.check_write(schema)
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
