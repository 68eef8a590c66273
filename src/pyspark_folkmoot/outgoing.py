"""The columns of rows that become MQTT messages: which there may be, of what types, and how a row is encoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from folkmoot.kernel.errors import FolkmootError
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, Properties, Publish

__all__ = ["ColumnError", "Encoder", "check_columns"]

EXPIRY_MAX_S: Final = 0xFFFF_FFFF
_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)

# Column: the types that it may have, and how they are called in SQL.
_TYPES: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "topic": ((StringType,), "string"),
    "payload": ((StringType, BinaryType), "string or binary"),
    "qos": (_INTEGERS, "int"),
    "retain": ((BooleanType,), "boolean"),
    "content_type": ((StringType,), "string"),
    "user_properties": ((MapType,), "map<string,string>"),
    "response_topic": ((StringType,), "string"),
    "correlation_data": ((BinaryType, StringType), "binary or string"),
    "message_expiry": (_INTEGERS, "int"),
}
_REQUIRED: Final = ("topic", "payload")


class ColumnError(FolkmootError, ValueError):
    """A column is missing, unknown or of another type, or a row has a value that no message can have."""


def check_columns(schema: StructType) -> None:
    """Raise ColumnError unless rows of this schema can become messages."""
    names = ", ".join(f"{name} ({kind})" for name, (_, kind) in _TYPES.items())
    for name in _REQUIRED:
        if name not in schema.names:
            there = ", ".join(schema.names)
            raise ColumnError(f"format 'folkmoot' needs column '{name}', there are: {there}; columns may be: {names}")
    for field in schema.fields:
        known = _TYPES.get(field.name)
        if known is None:
            raise ColumnError(
                f"format 'folkmoot' has no column '{field.name}': leave it out or rename it; columns may be: {names}"
            )
        if not isinstance(field.dataType, known[0]) or not _is_text_map(field.dataType):
            found = field.dataType.simpleString()
            raise ColumnError(f"column '{field.name}' has type {found}: it must be {known[1]}")


def _is_text_map(kind: DataType) -> bool:
    """Whether a type, if it is a map, is one from text to text."""
    if not isinstance(kind, MapType):
        return True
    return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)


class Encoder:
    """Makes MQTT 5 PUBLISH packets of rows; `rows` counts them, for errors. qos, retain: where a row has none."""

    def __init__(self, names: Sequence[str], qos: int, retain: bool) -> None:
        self.names = list(names)
        self.qos = qos
        self.retain = retain
        self.rows = 0

    def packets(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Yield the packets of a batch in order; raises ColumnError naming row, column and value."""
        columns = [batch.column(place).to_pylist() for place in range(batch.num_columns)]
        for values in zip(*columns, strict=True):
            yield self._packet(dict(zip(self.names, values, strict=True)))
            self.rows += 1

    def _packet(self, row: dict[str, Any]) -> bytes:
        topic, payload = row["topic"], row["payload"]
        if topic is None:
            raise self._wrong("topic", "is null: every message needs one")
        if payload is None:
            raise self._wrong("payload", f"is null, topic {topic!r}: an empty message is ''")
        qos = row.get("qos")
        qos = self.qos if qos is None else qos
        if qos not in (0, 1, 2):
            raise self._wrong("qos", f"is {qos}, topic {topic!r}: it must be 0, 1 or 2")
        retain = row.get("retain")
        retain = self.retain if retain is None else retain
        data = payload.encode() if isinstance(payload, str) else payload
        publish = Publish(topic.encode(), data, qos, retain, False, 1 if qos else 0, self._properties(row))
        try:
            return encode(publish, V5)
        except (AssertionError, ValueError, OverflowError) as error:
            raise self._wrong("topic", f"{topic[:80]!r}: the row is no message: {error}") from None

    def _properties(self, row: dict[str, Any]) -> Properties | None:
        found = Properties()
        found.content_type = row.get("content_type")
        answer_to = row.get("response_topic")
        found.response_topic = None if answer_to is None else answer_to.encode()
        data = row.get("correlation_data")
        found.correlation_data = data.encode() if isinstance(data, str) else data
        expiry_s = row.get("message_expiry")
        if expiry_s is not None and not 0 <= expiry_s <= EXPIRY_MAX_S:
            raise self._wrong("message_expiry", f"is {expiry_s}: it must be 0 to {EXPIRY_MAX_S} seconds")
        found.message_expiry = expiry_s
        for name, value in row.get("user_properties") or []:
            if value is None:
                raise self._wrong("user_properties", f"has no value for {name!r}")
            found.user_properties.append((name, value))
        return found

    def _wrong(self, column: str, why: str) -> ColumnError:
        return ColumnError(f"row {self.rows} of the task: column '{column}' {why}")
