"""The columns of rows that become MQTT messages: their names and types, and how a row is encoded."""

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
from folkmoot.mqtt.field import BINARY_BYTES_MAX
from folkmoot.mqtt.packet import V5, Properties, Publish
from folkmoot.mqtt.text import has_wildcard
from folkmoot.mqtt.varint import VARINT_MAX, decode_varint

__all__ = ["ColumnError", "Encoder", "check_columns", "topic_of"]

SHOWN_CHARACTERS: Final = 80
"""Of a value in an error."""

EXPIRY_MAX_S: Final = 0xFFFF_FFFF
_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)

# For each column its permitted types, and their names in SQL.
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
    """A column is missing, unknown or of the wrong type, or a row has a value that a message cannot have."""


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
    """Encodes rows as MQTT 5 PUBLISH packets; `rows` counts them, for errors. qos, retain: the defaults."""

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
        name = self._topic("topic", topic, topic)
        if topic.startswith("$"):
            raise self._wrong("topic", f"is {_shown(topic)}, which begins with $: such topics belong to the server")
        if payload is None:
            raise self._wrong("payload", "is null: an empty message is ''", topic)
        qos = row.get("qos")
        qos = self.qos if qos is None else qos
        if qos not in (0, 1, 2):
            raise self._wrong("qos", f"is {qos}: it must be 0, 1 or 2", topic)
        retain = row.get("retain")
        retain = self.retain if retain is None else retain
        data = payload.encode() if isinstance(payload, str) else payload
        publish = Publish(name, data, qos, retain, False, 1 if qos else 0, self._properties(row, topic))
        try:
            return encode(publish, V5)
        except (AssertionError, ValueError, OverflowError):
            # Each column has been checked, so only their sum can be too large.
            why = f"has {len(data):,} bytes: a packet of MQTT has at most {VARINT_MAX:,} with all that is in it"
            raise self._wrong("payload", why, topic) from None

    def _properties(self, row: dict[str, Any], topic: str) -> Properties | None:
        found = Properties()
        content_type = row.get("content_type")
        if content_type is not None:
            self._text("content_type", content_type, topic)
        found.content_type = content_type
        answer_to = row.get("response_topic")
        found.response_topic = None if answer_to is None else self._topic("response_topic", answer_to, topic)
        data = row.get("correlation_data")
        data = data.encode() if isinstance(data, str) else data
        if data is not None and len(data) > BINARY_BYTES_MAX:
            raise self._wrong("correlation_data", f"has {len(data):,} bytes: at most {BINARY_BYTES_MAX:,}", topic)
        found.correlation_data = data
        expiry_s = row.get("message_expiry")
        if expiry_s is not None and not 0 <= expiry_s <= EXPIRY_MAX_S:
            raise self._wrong("message_expiry", f"is {expiry_s}: it must be 0 to {EXPIRY_MAX_S} seconds", topic)
        found.message_expiry = expiry_s
        for name, value in row.get("user_properties") or []:
            if value is None:
                raise self._wrong("user_properties", f"has no value for {_shown(name)}", topic)
            self._text("user_properties", name, topic)
            self._text("user_properties", value, topic)
            found.user_properties.append((name, value))
        return found

    def _topic(self, column: str, value: str, topic: str) -> bytes:
        """Return a topic name as bytes; `topic` is that of the row."""
        data = self._text(column, value, topic)
        if not data:
            raise self._wrong(column, "is empty: a topic has at least one character", topic)
        if has_wildcard(data):
            raise self._wrong(column, f"is {_shown(value)}, which contains a wildcard, + or #", topic)
        return data

    def _text(self, column: str, value: str, topic: str) -> bytes:
        """Return a text as bytes; raises ColumnError if it is longer than MQTT permits."""
        data = value.encode()
        if len(data) > BINARY_BYTES_MAX:
            why = f"is {_shown(value)}, which has {len(data):,} bytes: at most {BINARY_BYTES_MAX:,}"
            raise self._wrong(column, why, topic)
        if 0 in data:
            raise self._wrong(column, f"is {_shown(value)}, which contains U+0000", topic)
        return data

    def _wrong(self, column: str, why: str, topic: str | None = None) -> ColumnError:
        where = "" if topic is None or column == "topic" else f" (topic {_shown(topic)})"
        return ColumnError(f"row {self.rows} of the task: column '{column}' {why}{where}")


def topic_of(packet: bytes) -> str:
    """Return the topic of a PUBLISH packet in readable form, shortened if it is long."""
    _, start = decode_varint(packet, 1)
    end = start + 2 + int.from_bytes(packet[start : start + 2], "big")
    return _shown(packet[start + 2 : end].decode("utf-8", "replace"))


def _shown(value: str) -> str:
    return repr(value if len(value) <= SHOWN_CHARACTERS else value[:SHOWN_CHARACTERS] + "...")
