"""From messages to rows: views of decoded payloads, and the messages that could not be decoded, with the reason.

Uses column expressions where Spark has them (JSON, CSV, numbers, text), and Arrow functions for Protobuf and Sparkplug
B. Works on streams and batches. A message belongs to the first entry whose topic matches; it is either in the view of
that entry or in `undecoded`, never in both or neither.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from pyspark_folkmoot.offset import Offsets, to_json
from pyspark_folkmoot.pipeline.bound import LONG, far_time, infinite, wrapped_time
from pyspark_folkmoot.pipeline.model import (
    CsvDecode,
    Decode,
    JsonDecode,
    NumberDecode,
    ProtobufDecode,
    RawDecode,
    SparkplugDecode,
    StreamSource,
    TextDecode,
)
from pyspark_folkmoot.pipeline.part import ORIGIN
from pyspark_folkmoot.pipeline.row import REASON
from pyspark_folkmoot.pipeline.sparkplug import COLUMNS as SPARKPLUG_COLUMNS
from pyspark_folkmoot.pipeline.topic import TopicPattern

__all__ = ["Entry", "decoded", "entry_of", "messages_of", "observed_entries", "source_options", "undecoded"]

CORRUPT: Final = "_folkmoot_corrupt"
WHICH: Final = "_folkmoot_entry"
PARSED: Final = "_folkmoot_parsed"
END: Final = "_folkmoot_end"
"""Appended to a JSON payload to check that the parser reaches the end: it stops after the first object."""

# One pair of braces, the closing one at the end: nothing can follow. This check is faster and suffices for most
# payloads.
FLAT: Final = r"\A\s*+\{[^{}]*+\}\s*+\z"
LINE_ENDS: Final = r"[\r\n]++\z"
QUOTED: Final = '"[^"]*+"'
SHOWN_CHARACTERS: Final = 40

STRICT: Final = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
"""Options for JSON according to RFC 8259: by default Spark accepts {'a': NaN}."""

JSON_LIMIT: Final = 1_000
"""The limits of Spark's parser: levels of an object, and digits of a number."""

# What Spark's cast takes without the letters that a number of Java may end with: 1f and 1d are ids.
NUMERAL: Final = r"\A[\x00-\x20]*+[-+]?+(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?+\d++)?+[\x00-\x20]*+\z"
YEARS: Final = "from year 1 to 9999"

_DECODE: Final[TypeAdapter[Any]] = TypeAdapter(Decode)


class Entry:
    """One entry of `decode`, ready for decoding: its schema is known, its descriptor has been read."""

    def __init__(self, entry: Any, schema: str = "", descriptor: bytes = b"") -> None:
        self.view: str = entry.view
        self.entry = entry
        self.pattern = TopicPattern(entry.topic)
        self.schema = schema
        self.descriptor = descriptor


def entry_of(found: Any, folder: Path = Path(), schema: str | None = None) -> Entry:
    """Return the entry of a model, or of a mapping with the keys of the file; paths are relative to `folder`."""
    entry = _DECODE.validate_python(dict(found)) if isinstance(found, Mapping) else found
    if isinstance(entry, JsonDecode):
        return Entry(entry, schema or entry.schema_)
    if isinstance(entry, CsvDecode):
        return Entry(entry, entry.columns)
    if isinstance(entry, ProtobufDecode):
        from pyspark_folkmoot.pipeline.protobuf import message_columns

        columns = message_columns(folder / entry.descriptor, entry.message)
        return Entry(entry, _ddl(columns), (folder / entry.descriptor).read_bytes())
    if isinstance(entry, SparkplugDecode):
        return Entry(entry, _ddl(SPARKPLUG_COLUMNS))
    return Entry(entry)


def source_options(source: StreamSource, url: str, token: str | None, stream: str) -> dict[str, str]:
    """Return the options of the format `folkmoot` for one stream of a source, for a streaming read."""
    options = {"url": url, "stream": stream, "patienceSeconds": str(max(1, source.patience // 1000))}
    if token is not None:
        options["token"] = token
    if isinstance(source.start, dict):
        listed = ", ".join(f'"{partition}": {offset}' for partition, offset in sorted(source.start.items()))
        options["startingOffsets"] = "{" + listed + "}"
    elif source.start in ("earliest", "latest"):
        options["startingOffsets"] = source.start
    else:
        options["startingTimestamp"] = source.start
    if source.rows_per_trigger is not None:
        options["maxRecordsPerTrigger"] = str(source.rows_per_trigger)
    if source.tasks is not None:
        options["minPartitions"] = str(source.tasks)
    if source.lost == "skip":
        options["failOnDataLoss"] = "false"
    return options


def messages_of(
    spark: SparkSession,
    source: StreamSource,
    url: str,
    token: str | None = None,
    end: str | None = None,
    starts: Mapping[str, Offsets] | None = None,
    ends: Mapping[str, Offsets] | None = None,
) -> DataFrame:
    """Return the messages of a source as a stream; with the column `stream` when it has several.

    end: a time. starts, ends: offsets by name of the stream, instead of those of the source.
    """
    frames = []
    for name in source.names:
        begin = (starts or {}).get(name)
        begins = source if begin is None else source.model_copy(update={"start": begin})
        options = source_options(begins, url, token, name)
        if end is not None:
            options["endingTimestamp"] = end
        if ends is not None and name in ends:
            options["endingOffsets"] = json.dumps(to_json(ends[name]))
        frame = spark.readStream.format("folkmoot").options(**options).load()
        frames.append(frame if source.streams is None else frame.withColumn("stream", f.lit(name)))
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionAll(frame)
    return whole


def decoded(
    messages: DataFrame, entries: Sequence[Any], stream: str = "", folder: Path = Path()
) -> dict[str, DataFrame]:
    """Return the view of each entry; `stream` is the name of the stream where `messages` has no column of it.

    Columns: the levels that the topic binds, the fields of the payload, and `_origin`, the message that it came from.
    """
    ready = [found if isinstance(found, Entry) else entry_of(found, folder) for found in entries]
    views = {}
    for number, entry in enumerate(ready):
        mine = messages.where(_which(ready) == number)
        parsed, good, _ = _parts(entry)
        # One row or none for each message. With a filter after a column, Spark would parse every payload twice.
        rows = mine.select("*", f.explode(f.filter(f.array(parsed), good)).alias(PARSED))
        fields = [f.col(f"{PARSED}.`{name}`").alias(name) for name in _names(rows)]
        views[entry.view] = rows.select(*_levels(entry), *fields, _origin(messages, stream))
    return views


def undecoded(messages: DataFrame, entries: Sequence[Any], stream: str = "", folder: Path = Path()) -> DataFrame:
    """Return the messages that are in no view, with `_origin`, `_view` (null if no topic matches) and `_reason`."""
    ready = [found if isinstance(found, Entry) else entry_of(found, folder) for found in entries]
    rows = messages.withColumn(WHICH, _which(ready))
    reason: Any = f.when(f.col(WHICH).isNull(), f.lit("no entry of decode fits its topic"))
    view: Any = f.lit(None).cast("string")
    for number, entry in enumerate(ready):
        mine = f.col(WHICH) == number
        parsed, good, why = _parts(entry, f.when(mine, f.col("payload")))
        column = f"{PARSED}{number}"
        rows = rows.withColumn(column, f.when(mine, parsed))
        bad = mine & ~f.coalesce(good(f.col(column)), f.lit(False))
        reason = reason.when(bad, why(f.col(column)))
        view = f.when(mine, f.lit(entry.view)).otherwise(view)
    rows = rows.withColumn(REASON, reason).withColumn("_view", view)
    return rows.where(f.col(REASON).isNotNull()).select(_origin(messages, stream), "_view", REASON)


def observed_entries(messages: DataFrame, entries: Sequence[Entry], name: str) -> DataFrame:
    """Return `messages`, observed as `name`: how many belong to each entry, and how many have unknown fields.

    Metrics: `messages`, and by the number n of the entry `taken_n`, for JSON also `new_n` and one name as `field_n`.
    """
    rows = messages.withColumn(WHICH, _which(entries))
    metrics = [f.count(f.lit(1)).alias("messages")]
    extra_columns = []
    for number, entry in enumerate(entries):
        mine = f.col(WHICH) == number
        metrics.append(f.count_if(mine).alias(f"taken_{number}"))
        if not isinstance(entry.entry, JsonDecode):
            continue
        known = f.array(*[f.lit(name) for name in _struct(entry.schema).fieldNames()])
        extra = f.array_except(f.json_object_keys(f.when(mine, _text(f.col("payload")))), known)
        column = f"_folkmoot_new{number}"
        rows = rows.withColumn(column, extra)
        extra_columns.append(column)
        metrics.append(f.count_if(f.size(column) > 0).alias(f"new_{number}"))
        metrics.append(f.max(f.get(f.col(column), f.lit(0))).alias(f"field_{number}"))
    return rows.observe(name, *metrics).drop(WHICH, *extra_columns)


def _struct(schema: str) -> StructType:
    found = StructType.fromDDL(schema)
    assert isinstance(found, StructType)
    return found


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def _which(entries: Sequence[Entry]) -> Column:
    """Return the number of the first entry whose topic matches, null if there is none."""
    found: Any = f
    for number, entry in enumerate(entries):
        found = found.when(f.col("topic").rlike(entry.pattern.regex), f.lit(number))
    result: Column = found
    return result


def _levels(entry: Entry) -> list[Column]:
    level = f.split("topic", "/")
    pattern = entry.pattern
    return [f.get(level, f.lit(at)).alias(name) for name, at in zip(pattern.names, pattern.levels, strict=True)]


def _origin(messages: DataFrame, stream: str) -> Column:
    name = f.col("stream") if "stream" in messages.columns else f.lit(stream)
    rest = ("partition", "offset", "topic", "payload", "publisher", "timestamp")
    return f.struct(name.alias("stream"), *[f.col(column) for column in rest]).alias(ORIGIN)


def _names(rows: DataFrame) -> list[str]:
    """Return the columns of the payload, in order."""
    kind = rows.schema[PARSED].dataType
    assert isinstance(kind, StructType)
    return [name for name in kind.fieldNames() if name not in (CORRUPT, REASON)]


Parts = tuple[Column, Callable[[Column], Column], Callable[[Column], Column]]
"""A column with the parsed payload, and functions of it: whether it is valid, and why it is not."""


def _parts(entry: Entry, payload: Column | None = None) -> Parts:
    payload = f.col("payload") if payload is None else payload
    text = _text(payload)
    no_text = f.when(~f.coalesce(f.is_valid_utf8(text), f.lit(True)), f.lit("the payload is no text in UTF-8"))
    found = entry.entry
    if isinstance(found, JsonDecode | CsvDecode):
        return _texts(entry, text, no_text)
    if isinstance(found, NumberDecode):
        value = f.trim(text).try_cast(found.type)
        if found.type in ("DOUBLE", "FLOAT"):
            value = f.when(text.rlike(NUMERAL), text.try_cast(found.type))
            value = f.when(f.abs(value) != float("inf"), value)
        why = f.concat(f.lit("the payload is '"), _shown(text), f.lit(f"' and no {found.type}"))
        return (
            f.struct(value.alias(found.column)),
            lambda parsed: parsed[found.column].isNotNull(),
            lambda _parsed: f.coalesce(no_text, why),
        )
    if isinstance(found, TextDecode):
        whole = f.when(f.is_valid_utf8(text), text).alias(found.column)
        return f.struct(whole), lambda parsed: parsed[found.column].isNotNull(), lambda _parsed: no_text
    if isinstance(found, RawDecode):
        return f.struct(payload.alias(found.column)), lambda _parsed: f.lit(True), lambda _parsed: f.lit("")
    parsed = _function(entry)(payload)
    reason = f.lit("the payload ")
    return parsed, lambda parsed: parsed[REASON].isNull(), lambda parsed: f.concat(reason, parsed[REASON])


def _text(payload: Column) -> Column:
    return payload.cast("string")


def _shown(text: Column) -> Column:
    return f.substring(text, 1, SHOWN_CHARACTERS)


def _texts(entry: Entry, text: Column, no_text: Column) -> Parts:
    """Return the parts for JSON and CSV: Spark puts payloads that do not match the schema into a separate column."""
    struct = _struct(entry.schema)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    wrapped: Column | None = None
    json = isinstance(entry.entry, JsonDecode)
    if isinstance(entry.entry, CsvDecode):
        columns = f"{entry.schema}, {CORRUPT} STRING"
        line = f.regexp_replace(text, LINE_ENDS, "")
        parsed = f.from_csv(line, columns, {**options, "sep": entry.entry.separator})
        # Without `multiLine` a line break is part of a value: two lines would be one row.
        alone = (line != "") & ~f.regexp_replace(line, QUOTED, "").rlike("[\r\n]")
    else:
        parsed = f.from_json(text, _struct(entry.schema).add(CORRUPT, "string"), {**options, **STRICT})
        alone = f.rlike(text, f.lit(FLAT)) | _ends(text)
        wrapped = wrapped_time(text, struct, STRICT)
    # The parser would silently replace bytes that are not valid text.
    right = f.is_valid_utf8(text) & alone
    parsed = f.when(right if wrapped is None else right & ~wrapped, parsed)

    def good(found: Column) -> Column:
        bad = [far_time(found, struct), infinite(found, struct) if json else None]
        return reduce(lambda one, other: one if other is None else one & ~other, bad, _fits(found))

    def why(found: Column) -> Column:
        return f.coalesce(no_text, (_why_json if json else _why_csv)(struct, text, alone, wrapped, found))

    return parsed, good, why


def _fits(found: Column) -> Column:
    return found.isNotNull() & found[CORRUPT].isNull()


def _why_csv(struct: StructType, text: Column, _alone: Column, _wrapped: Column | None, found: Column) -> Column:
    """Return why a payload is not a valid CSV line."""
    shown = f.concat(f.lit("the payload does not fit the columns: '"), _shown(text), f.lit("'"))
    far = [
        f.when(beyond, f.lit(f"'{field.name}' is no {field.dataType.simpleString().upper()} {YEARS}"))
        for field in struct
        if (beyond := far_time(found[field.name], field.dataType)) is not None
    ]
    return f.concat_ws("; ", shown, *far)


def _why_json(struct: StructType, text: Column, alone: Column, wrapped: Column | None, found: Column) -> Column:
    """Return why a payload is not a valid row of `struct`."""
    raw = f.from_json(text, "MAP<STRING, STRING>", STRICT)
    fields, far = [], []
    for field in struct:
        name, kind = field.name, field.dataType
        told = f.concat(
            f.lit(f"field '{name}' is '"), _shown(raw[name]), f.lit(f"' and no {kind.simpleString().upper()}")
        )
        reason: Any = f.when(found[name].isNull() & raw[name].isNotNull(), told)
        beyond, endless = far_time(found[name], kind), infinite(found[name], kind)
        if beyond is not None:
            told = f.concat(told, f.lit(f" {YEARS}; a number is seconds since 1970"))
            reason = reason.when(beyond, told)
            far.append(f.when(raw[name].rlike(LONG), told))
        if endless is not None:
            held = f"field '{name}' has a number beyond what its type can hold: {kind.simpleString().upper()}"
            reason = reason.when(endless, f.lit(held))
        fields.append(reason)
    listed = f.concat_ws("; ", *fields)
    said = f.when(listed == "", f.lit("a field within another does not fit its type")).otherwise(listed)
    if wrapped is not None:
        said = f.when(wrapped, f.concat_ws("; ", *far)).otherwise(said)
    more = f.lit("the payload has something behind its first JSON object: send one object in each message")
    said = f.when(~alone, more).otherwise(said)
    deep = f.length(f.regexp_replace(text, r"[^\[{]+", "")) >= JSON_LIMIT
    large = text.rlike(r"\A\s*\{") & (deep | text.rlike(rf"\d{{{JSON_LIMIT}}}"))
    unread = f"the payload cannot be read as a JSON object: more than {JSON_LIMIT:,} levels, or digits of a number"
    none = f.when(large, f.lit(unread)).otherwise(f.lit("the payload is no JSON object"))
    return f.when(raw.isNull(), none).otherwise(said)


def _ends(text: Column) -> Column:
    """Whether a payload is a single JSON value and nothing else, according to `from_json`.

    In an array of the payload and a marker, the marker is the second item only if the payload is one value.
    """
    marked = f.concat(f.lit("["), text, f.lit(f',{{"{END}":true}}]'))
    items = f.from_json(marked, f"ARRAY<STRUCT<`{END}`: BOOLEAN>>", STRICT)
    return f.coalesce((f.size(items) == 2) & f.get(items, f.lit(1))[END], f.lit(False))


def _function(entry: Entry) -> Callable[[Column], Column]:
    """Return the Arrow function that decodes Protobuf or Sparkplug."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = _struct(entry.schema).add(REASON, "string")
    arrow = pa.struct(list(to_arrow_schema(schema, timezone="UTC")))
    descriptor = entry.descriptor
    message = entry.entry.message if isinstance(entry.entry, ProtobufDecode) else None

    def decode(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        from pyspark_folkmoot.pipeline.protobuf import decode_payloads
        from pyspark_folkmoot.pipeline.row import structs
        from pyspark_folkmoot.pipeline.sparkplug import decode_sparkplug

        for batch in batches:
            payloads = batch.to_pylist()
            if message is None:
                rows = decode_sparkplug(payloads)
            else:
                rows = decode_payloads(descriptor, message, payloads)
            yield structs(rows, arrow)

    decode.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
    made: Callable[[Column], Column] = f.arrow_udf(decode, schema)  # type: ignore[attr-defined]
    return made
