"""Payloads of Sparkplug B (specification 3.0, section 6.4): metrics with their names, types and values.

Contains the descriptor, written by hand; `protobuf` parses the bytes. Aliases are not resolved: that would need the
birth certificates, which are separate messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from pyspark_folkmoot.pipeline.protobuf import message_class

__all__ = ["COLUMNS", "decode_sparkplug", "payload_descriptor"]

METRIC: Final = (
    "STRUCT<name: STRING, alias: BIGINT, time: TIMESTAMP, datatype: STRING, number: DOUBLE, integer: DECIMAL(20,0), "
    "text: STRING, boolean: BOOLEAN, bytes: BINARY, is_null: BOOLEAN, is_historical: BOOLEAN>"
)
COLUMNS: Final = {"seq": "BIGINT", "time": "TIMESTAMP", "uuid": "STRING", "metrics": f"ARRAY<{METRIC}>"}

# Number, name, label (1 optional, 3 repeated), type of Protobuf: the fields of version B that a table can hold.
_PAYLOAD: Final = (
    (1, "timestamp", 1, 4),
    (2, "metrics", 3, 11),
    (3, "seq", 1, 4),
    (4, "uuid", 1, 9),
    (5, "body", 1, 12),
)
_METRIC: Final = (
    (1, "name", 1, 9),
    (2, "alias", 1, 4),
    (3, "timestamp", 1, 4),
    (4, "datatype", 1, 13),
    (5, "is_historical", 1, 8),
    (6, "is_transient", 1, 8),
    (7, "is_null", 1, 8),
    (10, "int_value", 1, 13),
    (11, "long_value", 1, 4),
    (12, "float_value", 1, 2),
    (13, "double_value", 1, 1),
    (14, "boolean_value", 1, 8),
    (15, "string_value", 1, 9),
    (16, "bytes_value", 1, 12),
)
_VALUES: Final = tuple(name for _, name, _, _ in _METRIC if name.endswith("_value"))

DATATYPES: Final = [
    "Unknown",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Float",
    "Double",
    "Boolean",
    "String",
    "DateTime",
    "Text",
    "UUID",
    "DataSet",
    "Bytes",
    "File",
    "Template",
    "PropertySet",
    "PropertySetList",
    "Int8Array",
    "Int16Array",
    "Int32Array",
    "Int64Array",
    "UInt8Array",
    "UInt16Array",
    "UInt32Array",
    "UInt64Array",
    "FloatArray",
    "DoubleArray",
    "BooleanArray",
    "StringArray",
    "DateTimeArray",
]

# The widths of the signed types: their values are encoded as unsigned numbers (section 6.4.16).
_SIGNED: Final = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}

Decoded = tuple[dict[str, Any] | None, str | None]


@cache
def payload_descriptor() -> bytes:
    """Return a FileDescriptorSet with the message `folkmoot.sparkplug.Payload`."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    file = FileDescriptorProto(name="folkmoot_sparkplug.proto", package="folkmoot.sparkplug", syntax="proto2")
    for message, fields in (("Payload", _PAYLOAD), ("Metric", _METRIC)):
        kind = file.message_type.add(name=message)
        for number, name, label, type_ in fields:
            field = kind.field.add(number=number, name=name)
            field.label = label  # type: ignore[assignment]
            field.type = type_  # type: ignore[assignment]
            if name == "metrics":
                field.type_name = ".folkmoot.sparkplug.Metric"
    return FileDescriptorSet(file=[file]).SerializeToString()


def decode_sparkplug(payloads: Iterable[bytes | None]) -> list[Decoded]:
    """Return the columns of each payload, or why it has none."""
    kind = message_class(payload_descriptor(), "folkmoot.sparkplug.Payload")
    rows: list[Decoded] = []
    for payload in payloads:
        found: Any = kind()
        try:
            found.ParseFromString(payload or b"")
            rows.append((_row(found), None))
        except Exception as error:  # noqa: BLE001 - whatever the bytes do to the parser belongs into the quarantine
            rows.append((None, f"is no payload of Sparkplug B: {error}"))
    return rows


def _row(payload: Any) -> dict[str, Any]:
    return {
        "seq": _whole("seq", payload.seq) if payload.HasField("seq") else None,
        "time": _time(payload.timestamp) if payload.HasField("timestamp") else None,
        "uuid": payload.uuid if payload.HasField("uuid") else None,
        "metrics": [_metric(metric) for metric in payload.metrics],
    }


def _metric(metric: Any) -> dict[str, Any]:
    datatype = DATATYPES[metric.datatype] if metric.datatype < len(DATATYPES) else str(metric.datatype)
    value = next((getattr(metric, name) for name in _VALUES if metric.HasField(name)), None)
    if isinstance(value, int) and not isinstance(value, bool) and datatype in _SIGNED:
        value = _signed(value, _SIGNED[datatype])
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return {
        "name": metric.name if metric.HasField("name") else None,
        "alias": _whole("the alias of a metric", metric.alias) if metric.HasField("alias") else None,
        "time": _time(metric.timestamp) if metric.HasField("timestamp") else None,
        "datatype": datatype if metric.HasField("datatype") else None,
        "number": float(value) if number and value is not None else None,
        "integer": _decimal(value) if number and isinstance(value, int) else None,
        "text": value if isinstance(value, str) else None,
        "boolean": value if isinstance(value, bool) else None,
        "bytes": value if isinstance(value, bytes) else None,
        "is_null": bool(metric.is_null),
        "is_historical": bool(metric.is_historical),
    }


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _decimal(value: int) -> Any:
    from decimal import Decimal

    return Decimal(value)


def _whole(what: str, value: int) -> int:
    """Return an unsigned 64-bit number if a BIGINT can hold it; raises for larger aliases and sequence numbers."""
    if value >> 63:
        raise ValueError(f"{what} is {value}, which is no BIGINT")
    return value


def _time(milliseconds: int) -> datetime:
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise ValueError(f"the timestamp {milliseconds} is beyond the year 9999") from None
