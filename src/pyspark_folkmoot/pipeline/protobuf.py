"""Protobuf payloads: the columns of a message from its descriptor, and rows from payloads.

Runs in Spark's workers: nothing here needs the driver. Needs the package `protobuf`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark_folkmoot.pipeline.fault import valid

if TYPE_CHECKING:
    from google.protobuf.message import Message

__all__ = ["ProtobufFault", "decode_payloads", "message_class", "message_columns"]

Decoded = tuple[dict[str, Any] | None, str | None]
"""The fields of a payload, or why it has none."""

_SCALARS: Final = {
    1: "DOUBLE",
    2: "FLOAT",
    3: "BIGINT",
    4: "DECIMAL(20,0)",
    5: "INT",
    6: "DECIMAL(20,0)",
    7: "BIGINT",
    8: "BOOLEAN",
    9: "STRING",
    12: "BINARY",
    13: "BIGINT",
    14: "STRING",
    15: "INT",
    16: "BIGINT",
    17: "INT",
    18: "BIGINT",
}
_UNSIGNED_64: Final = (4, 6)
_MESSAGE: Final = 11
_GROUP: Final = 10
_ENUM: Final = 14
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = "google.protobuf.wrappers"


class ProtobufFault(ValueError):
    """The descriptor or the message is invalid; `key` is the key of the file at fault."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


def message_class(descriptor: bytes, message: str, where: str = "the descriptor") -> type[Message]:
    """Return the class of `message` in a serialized FileDescriptorSet; raises ProtobufFault."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from google.protobuf.message import DecodeError
    except ImportError:
        raise ProtobufFault("format", "the package protobuf is missing: pip install 'folkmoot[spark]'") from None
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor)
    except DecodeError:
        files = descriptor_pb2.FileDescriptorSet()
    if not files.file:
        make = "protoc --include_imports --descriptor_set_out=FILE"
        raise ProtobufFault("descriptor", f"{where} is no descriptor set: make it with `{make}`")
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        names = [f"{file.package}.{kind.name}".lstrip(".") for file in files.file for kind in file.message_type]
        found = pool.FindMessageTypeByName(message)
    except KeyError:
        raise ProtobufFault("message", f"there is no message '{message}'{valid(message, names, 'messages')}") from None
    except TypeError as error:
        make = "make it with `protoc --include_imports`"
        raise ProtobufFault("descriptor", f"{where} lacks a file that it imports ({error}): {make}") from None
    return message_factory.GetMessageClass(found)


def message_columns(file: Path, message: str) -> dict[str, str]:
    """Return the columns of a message with their types as DDL; raises ProtobufFault."""
    try:
        descriptor = file.read_bytes()
    except OSError as error:
        raise ProtobufFault("descriptor", f"{file.name} cannot be read: {error.strerror}") from None
    return columns_of(message_class(descriptor, message, file.name).DESCRIPTOR)


def columns_of(kind: Any, around: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the columns of a message and their types as DDL."""
    if kind.full_name in around:
        path = " in ".join([kind.full_name, *reversed(around)])
        raise ProtobufFault("message", f"a message that has itself within has no table's columns: {path}")
    inside = (*around, kind.full_name)
    return {field.name: _type(field, inside) for field in kind.fields}


def _type(field: Any, around: tuple[str, ...]) -> str:
    if _is_map(field):
        key, value = field.message_type.fields
        return f"MAP<{_single(key, around)}, {_single(value, around)}>"
    single = _single(field, around)
    return f"ARRAY<{single}>" if field.is_repeated else single


def _single(field: Any, around: tuple[str, ...]) -> str:
    if field.type == _GROUP:
        raise ProtobufFault("message", f"the field {field.full_name} is a group, which is not supported")
    if field.type != _MESSAGE:
        return _SCALARS[field.type]
    if field.message_type.full_name == _TIMESTAMP:
        return "TIMESTAMP"
    if field.message_type.file.package == "google.protobuf" and _WRAPPERS in field.message_type.file.name.replace(
        "/", "."
    ):
        return _SCALARS[field.message_type.fields[0].type]
    inner = columns_of(field.message_type, around)
    return "STRUCT<" + ", ".join(f"`{name}`: {kind}" for name, kind in inner.items()) + ">"


def _is_map(field: Any) -> bool:
    return bool(field.type == _MESSAGE and field.message_type.GetOptions().map_entry)


@lru_cache(maxsize=16)
def _reader(descriptor: bytes, message: str) -> Callable[[bytes], dict[str, Any]]:
    kind = message_class(descriptor, message)

    def read(payload: bytes) -> dict[str, Any]:
        found = kind()
        found.ParseFromString(payload)
        return _fields(found)

    return read


def decode_payloads(descriptor: bytes, message: str, payloads: Iterable[bytes | None]) -> list[Decoded]:
    """Return the fields of each payload, or why it has none."""
    read = _reader(descriptor, message)
    short = message.rpartition(".")[2]
    rows: list[Decoded] = []
    for payload in payloads:
        try:
            rows.append((read(payload or b""), None))
        except Exception as error:  # noqa: BLE001 - whatever the bytes do to the parser belongs into the quarantine
            rows.append((None, f"is no {short} in Protobuf: {error}"))
    return rows


def _fields(message: Message) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Message, field: Any) -> Any:
    found = getattr(message, field.name)
    if _is_map(field):
        key, value = field.message_type.fields
        return [(_plain(key, name), _plain(value, found[name])) for name in found]
    if field.is_repeated:
        return [_plain(field, item) for item in found]
    # Only fields with presence can be missing; others have their default.
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain(field, found)


def _plain(field: Any, value: Any) -> Any:
    if field.type == _ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.type in _UNSIGNED_64:
        from decimal import Decimal

        return Decimal(value)
    if field.type != _MESSAGE:
        return value
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        from datetime import UTC, datetime, timedelta

        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if _single(field, ()) in _SCALARS.values() and len(field.message_type.fields) == 1:
        return _plain(field.message_type.fields[0], value.value)
    return _fields(value)
