"""Option `table` of the format `folkmoot`: the state of the cluster; each task reads some partitions and nodes.

Implements Spark's interface. `folkmoot.client.column` defines the tables; `folkmoot.client.table` reads the rows of a
partition as a snapshot.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from typing_extensions import override

from folkmoot.client.column import TABLES, columns_of
from folkmoot.client.table import Part, TableClient
from pyspark_folkmoot.option import Options

__all__ = ["TablePlan", "TableReader", "asks_for_table"]

VALID: Final = ("url", "table", "token", "payload", "columns", "patienceSeconds")
PATIENCE_S: Final = 60
BATCH_ROWS: Final = 10_000
TASKS_MAX: Final = 16
"""A cluster has hundreds of partitions, most with few rows; starting a task costs more than reading a partition."""

TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "integer": IntegerType(),
    "long": LongType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
    "binary": BinaryType(),
    "strings": ArrayType(StringType()),
}


def asks_for_table(given: Mapping[str, str]) -> bool:
    """Return whether the options of a read name a table instead of a stream."""
    return any(name.lower() == "table" for name in given)


class TablePlan:
    """The options of one read, checked."""

    def __init__(self, given: Mapping[str, str]) -> None:
        options = Options("folkmoot", given, VALID)
        self.options = options
        self.urls = options.urls("url")
        self.table = options.required("table")
        if self.table not in TABLES:
            raise options.wrong("table", f"is {self.table!r}: there are the tables {', '.join(TABLES)}")
        self.token = options.text("token")
        self.payload = options.boolean("payload", False)
        if self.payload and self.table != "retained":
            raise options.wrong("payload", "is for the table retained")
        self.patience_s = options.integer("patienceSeconds", 0)
        self.kinds = {column.name: column.kind for column in columns_of(self.table, self.payload)}
        self.columns = options.columns("columns", tuple(self.kinds))

    def struct(self) -> StructType:
        """Return the schema in Spark."""
        return StructType([StructField(column, TYPES[self.kinds[column]]) for column in self.columns])

    def client(self, first: int = 0) -> TableClient:
        """Return a client that begins with the node number `first`."""
        return TableClient(self.urls, self.token, PATIENCE_S if self.patience_s is None else self.patience_s, first)


class Task(InputPartition):
    """The part that one task reads; `number` says which node it asks first."""

    def __init__(self, parts: Sequence[Part], number: int) -> None:
        super().__init__(None)
        self.parts = parts
        self.number = number


class TableReader(DataSourceReader):
    """The current content of a table."""

    def __init__(self, plan: TablePlan, schema: StructType) -> None:
        self.plan = plan
        self.schema = schema

    @override
    def partitions(self) -> Sequence[InputPartition]:
        client = self.plan.client()
        try:
            parts = client.parts(self.plan.table)
        finally:
            client.close()
        count = min(len(parts), TASKS_MAX)
        return [Task(parts[at::count], at) for at in range(count)]

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Task):
            return  # Spark's stand-in for a read without tasks
        plan = self.plan
        arrow = to_arrow_schema(self.schema, timezone="UTC")
        client = plan.client(partition.number)
        try:
            for part in partition.parts:
                rows = client.rows(plan.table, part, plan.payload)
                for start in range(0, len(rows), BATCH_ROWS):
                    yield batch(rows[start : start + BATCH_ROWS], plan.kinds, arrow)
        finally:
            client.close()


def batch(rows: list[dict[str, Any]], kinds: Mapping[str, str], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as a record batch of `schema`."""
    arrays = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if kinds[field.name] == "binary":
            values = [None if value is None else b64decode(value) for value in values]
        arrays.append(pa.array(values, type=field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
