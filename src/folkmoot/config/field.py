"""Descriptions of what fields accept: owns the walk over the sections and the text after "valid:". Reads no values."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from pathlib import Path

from pydantic.fields import FieldInfo

from folkmoot.config.base import Section
from folkmoot.config.unit import Address, format_duration, format_size
from folkmoot.kernel.limits import AUTO_BYTES

__all__ = ["default_text", "element", "find", "format_value", "heading", "kind", "sections", "valid_text", "walk"]

# Placeholders for what the user chooses: the name of a stream, the number of a listener.
NAME = "NAME"


def kind(field: FieldInfo) -> str:
    """Return the kind of value of a field: duration, size, address, or the name of its Python type."""
    plain = strip_optional(field.annotation)
    inner = field.metadata
    if typing.get_origin(plain) is typing.Annotated:
        inner = [*inner, *typing.get_args(plain)[1:]]
        plain = typing.get_args(plain)[0]
    for mark in inner:
        if mark in ("duration", "size", "size or auto", "address", "addresses", "filter"):
            return str(mark)
    if typing.get_origin(plain) is typing.Literal:
        return "choice"
    if plain is Path:
        return "path"
    return plain.__name__ if isinstance(plain, type) else "list"


def strip_optional(annotation: object) -> object:
    """Return the type of `X | None` without None."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        rest = [part for part in typing.get_args(annotation) if part is not types.NoneType]
        if len(rest) == 1:
            return rest[0]
    return annotation


def element(annotation: object) -> type[Section] | None:
    """Return the section in a field, or in the entries of its list or table; None for a plain value."""
    plain = strip_optional(annotation)
    candidates = [plain, *typing.get_args(plain)]
    for candidate in candidates:
        # In Python 3.11, list[X] is a class for isinstance, but has an origin.
        if isinstance(candidate, type) and typing.get_origin(candidate) is None and issubclass(candidate, Section):
            return candidate
    return None


def sections(field: FieldInfo) -> str:
    """Return the suffix of the path of a field with sections: "" for one, "[]" for a list, ".NAME" for a table."""
    origin = typing.get_origin(strip_optional(field.annotation))
    return "[]" if origin is list else f".{NAME}" if origin is dict else ""


def heading(path: str, field: FieldInfo) -> str:
    """Return the TOML header of the section in a field: [tls], [[listeners]], [listeners.tls]."""
    plain = path.replace("[]", "")  # TOML refers to the last entry of the list
    return f"[[{plain}]]" if sections(field) == "[]" else f"[{plain}{sections(field)}]"


def walk(section: type[Section], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every field below a section, in the order of the documentation, with its path ("streams.NAME.filter")."""
    for name, field in section.model_fields.items():
        path = f"{prefix}{name}"
        yield path, field
        inner = element(field.annotation)
        if inner is not None:
            yield from walk(inner, f"{path}{sections(field)}.")


def find(section: type[Section], location: tuple[str | int, ...]) -> FieldInfo | None:
    """Return the field at a location such as ("listeners", 0, "address"), or None."""
    field: FieldInfo | None = None
    inner: type[Section] | None = section
    steps = list(location)
    while steps:
        name = steps.pop(0)
        if inner is None or not isinstance(name, str) or name not in inner.model_fields:
            return field if inner is None and isinstance(name, int) else None
        field = inner.model_fields[name]
        inner = element(field.annotation)
        if inner is not None and sections(field) and steps:
            steps.pop(0)
            field = field if not steps else None
    return field


def format_value(value: object, sort: str) -> str:
    """Return a value as TOML, durations and sizes with their units."""
    if sort == "duration" and isinstance(value, int):
        return f'"{format_duration(value)}"' if value else "0"
    if sort == "size or auto" and value == AUTO_BYTES:
        return '"auto"'
    if sort in ("size", "size or auto") and isinstance(value, int):
        return f'"{format_size(value)}"' if value >= 1000 and not format_size(value).endswith("5B") else str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | Path | Address):
        return f'"{value}"'
    return str(value)


def valid_text(field: FieldInfo) -> str:
    """Return what a field accepts: its kind and its bounds."""
    sort = kind(field)
    plain = strip_optional(field.annotation)
    if sort == "choice":
        return "one of " + ", ".join(f'"{value}"' for value in typing.get_args(plain))
    words = {
        "duration": 'a duration such as "250ms", "10s", "7d"',
        "size": 'a number of bytes or a size such as "64KiB", "10GB"',
        "size or auto": '"auto", a number of bytes, or a size such as "64KiB", "10GB"',
        "address": '"HOST:PORT"',
        "addresses": 'a list of "HOST:PORT"',
        "filter": 'a topic filter such as "sensors/+/temperature", "sensors/#"',
        "path": "a path",
        "bool": "true or false",
        "int": "a whole number",
        "str": "text",
        "list": "a list",
    }.get(sort, "a table")
    low, high = bound(field, "ge"), bound(field, "le")
    if low is not None and high is not None:
        words += f", from {format_value(low, sort)} to {format_value(high, sort)}"
    elif low is not None:
        words += f", at least {format_value(low, sort)}"
    elif high is not None:
        words += f", at most {format_value(high, sort)}"
    step = bound(field, "multiple_of")
    if step is not None:
        words += f", in steps of {format_value(step, sort)}"
    return words


def bound(field: FieldInfo, name: str) -> object:
    """Return the value of a constraint (ge, le, multiple_of) of a field, or None."""
    for mark in field.metadata:
        value = getattr(mark, name, None)
        if value is not None:
            return typing.cast("object", value)
    return None


def default_text(field: FieldInfo) -> str:
    """Return the default as TOML, or words if there is none."""
    if field.is_required():
        return "none, it must be set"
    if element(field.annotation) is None and field.default_factory is list:
        return "[]"
    if element(field.annotation) is not None or field.default_factory is not None:
        return "see its fields" if not sections(field) else "see above"
    return "not set" if field.default is None else format_value(field.default, kind(field))
