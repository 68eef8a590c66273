"""Invalid values that Spark reads from text: times beyond the years 1 to 9999, numbers that become infinite.

Spark reads a JSON number in a TIMESTAMP as seconds since 1970, whatever its size: milliseconds give the year 58133, and
seconds that exceed 64 bits of microseconds give an arbitrary time. Python, Arrow and Delta have four digits for a year,
and after such a time a watermark would drop all following rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

__all__ = ["LONG", "far_time", "infinite", "wrapped_time"]

FIRST_S: Final = -62_135_596_800
LAST_S: Final = 253_402_300_799
"""The first and the last second of the years 1 to 9999."""

LONG: Final = r"\d{13}"
"""Longer than the seconds up to the year 9999; only such numbers can exceed 64 bits of microseconds."""

_TIMES: Final = (TimestampType, TimestampNTZType, DateType)
_FLOATS: Final = (DoubleType, FloatType)

Judge = Callable[[Column, DataType], Column]


def far_time(found: Column, kind: DataType) -> Column | None:
    """Return whether a value of type `kind` has a time beyond the years 1 to 9999; None without times."""
    return _any(found, kind, _TIMES, _far) if _has(kind, _TIMES) else None


def infinite(found: Column, kind: DataType) -> Column | None:
    """Return whether a value of type `kind` has an infinite number; None if it can have none."""
    return _any(found, kind, _FLOATS, lambda item, _: f.abs(item) == float("inf")) if _has(kind, _FLOATS) else None


def wrapped_time(text: Column, schema: StructType, options: Mapping[str, str]) -> Column | None:
    """Return whether JSON has a number in a TIMESTAMP that may exceed 64 bits of microseconds; None if it cannot.

    Spark's result does not show this, so the text is parsed again if it has numbers that long.
    """
    fields = StructType([field for field in schema if _has(field.dataType, (TimestampType,))])
    if not fields.fields:
        return None
    shadow = StructType([StructField(field.name, _as_text(field.dataType)) for field in fields])
    texts = f.from_json(text, shadow, dict(options))
    # The array holds the parser's result once; each mention of it would parse again.
    found = f.exists(f.array(texts), lambda item: _any(item, fields, (TimestampType,), _long))
    return f.when(text.rlike(LONG), found).otherwise(f.lit(False))


def _long(item: Column, _kind: DataType) -> Column:
    return item.rlike(r"\A-?\d{13,}\z")


def _far(item: Column, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return ~f.unix_seconds(item).between(FIRST_S, LAST_S)
    return ~f.year(item).between(1, 9999)


def _has(kind: DataType, types: tuple[type[DataType], ...]) -> bool:
    if isinstance(kind, ArrayType):
        return _has(kind.elementType, types)
    if isinstance(kind, MapType):
        return _has(kind.valueType, types)
    if isinstance(kind, StructType):
        return any(_has(field.dataType, types) for field in kind)
    return isinstance(kind, types)


def _any(found: Column, kind: DataType, types: tuple[type[DataType], ...], judge: Judge) -> Column:
    """Return whether `judge` holds for any value in `found` of one of `types`; never NULL."""
    if isinstance(kind, ArrayType):
        inner = kind.elementType
        return f.coalesce(f.exists(found, lambda item: _any(item, inner, types, judge)), f.lit(False))
    if isinstance(kind, MapType):
        return _any(f.map_values(found), ArrayType(kind.valueType), types, judge)
    if isinstance(kind, StructType):
        parts = [_any(found[field.name], field.dataType, types, judge) for field in kind if _has(field.dataType, types)]
        return reduce(lambda one, other: one | other, parts)
    return f.coalesce(judge(found, kind), f.lit(False))


def _as_text(kind: DataType) -> DataType:
    """Return a type with STRING in the place of TIMESTAMP."""
    if isinstance(kind, ArrayType):
        return ArrayType(_as_text(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _as_text(kind.valueType))
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _as_text(field.dataType)) for field in kind])
    return StringType() if isinstance(kind, TimestampType) else kind
