"""The keys of a pipeline file: names, types, defaults. `graph` checks how they relate."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, SecretStr, Tag

from folkmoot.client.nodes import split_urls
from folkmoot.client.position import parse_time
from pyspark_folkmoot.master import check_master
from pyspark_folkmoot.pipeline.ddl import parse_schema
from pyspark_folkmoot.pipeline.interval import parse_interval
from pyspark_folkmoot.pipeline.scalar import qos, setting, switch, whole
from pyspark_folkmoot.pipeline.topic import TopicPattern

__all__ = [
    "INFER",
    "ONCE",
    "AnySink",
    "AnySource",
    "AnyStep",
    "ClusterKey",
    "CsvDecode",
    "Decode",
    "DeltaSink",
    "Expectation",
    "FormatSink",
    "JsonDecode",
    "MqttKey",
    "MqttSink",
    "NumberDecode",
    "ParquetSink",
    "Pipeline",
    "ProtobufDecode",
    "PythonStep",
    "RawDecode",
    "SinkSource",
    "SparkKey",
    "SparkplugDecode",
    "SqlStep",
    "StreamSource",
    "TableSource",
    "TextDecode",
    "kinds",
]

ONCE: Final = "once"
INFER: Final = "infer"


def _name(value: object) -> object:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", value):
        raise ValueError(
            f"{value!r} is no name: write letters, digits and _, beginning with a letter, 64 characters at most"
        )
    return value


def _schema(value: str) -> str:
    parse_schema(value)
    return value


def _schema_or_infer(value: str) -> str:
    return value if value == INFER else _schema(value)


def _topic(value: str) -> str:
    TopicPattern(value)
    return value


def _trigger(value: object) -> object:
    return value if value == ONCE else parse_interval(value)


def _or_never(value: object) -> object:
    return None if value in (None, "never") else parse_interval(value)


def _urls(value: str) -> str:
    return ",".join(split_urls(value))


def _start(value: object) -> object:
    if isinstance(value, dict):
        numbers = [*value, *value.values()]
        if all(type(number) is int and 0 <= number < 2**63 for number in numbers):
            return value
    elif value in ("earliest", "latest"):
        return value
    elif isinstance(value, str):
        with suppress(ValueError):
            parse_time(value)
            return value
    raise ValueError(
        "is where to begin: earliest, latest, a time such as 2026-03-01T12:00:00Z, or offsets such as {0: 12, 1: 0}"
    )


def _function(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
        raise ValueError(f"{value!r} is no function: write 'module:function', the module beside the pipeline's file")
    return value


Name = Annotated[str, BeforeValidator(_name)]
Interval = Annotated[int, BeforeValidator(parse_interval)]
IntervalOrNever = Annotated[int | None, BeforeValidator(_or_never)]
Schema = Annotated[str, AfterValidator(_schema)]
Watermark = dict[str, Interval]
Setting = Annotated[bool | int | float | str, BeforeValidator(setting)]
Qos = Annotated[Literal[0, 1, 2], BeforeValidator(qos)]
Switch = Annotated[bool, BeforeValidator(switch)]
Rows = Annotated[int, BeforeValidator(lambda value: whole(value, 1, 2**31 - 1))]
Tasks = Annotated[int, BeforeValidator(lambda value: whole(value, 1, 100_000))]


class Key(BaseModel):
    """The base of all parts: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ClusterKey(Key):
    """Where the nodes are."""

    url: Annotated[str, AfterValidator(_urls)] = Field(description="admin addresses of nodes, separated by commas")
    token: SecretStr | None = Field(None, description="the nodes' admin token; write ${NAME}, not the token")


class SparkKey(Key):
    """The Spark session."""

    master: Annotated[str, AfterValidator(check_master)] = Field(
        "local[*]", description="where Spark runs: local[*], spark://, yarn, k8s://"
    )
    conf: dict[str, Setting] = Field(default_factory=dict, description="Spark settings")


class Expectation(Key):
    """What must hold for every row of a view; NULL passes, as in a SQL CHECK constraint."""

    name: Name = Field(description="name, unique in its view")
    check: str = Field(min_length=1, description="a boolean SQL expression over the columns of a row")
    otherwise: Literal["drop", "keep", "fail"] = Field("drop", description="what to do with other rows")


class _Decode(Key):
    topic: Annotated[str, AfterValidator(_topic)] = Field(description="pattern of topics; {name} binds a level")
    view: Name = Field(description="name of the view that it creates")
    watermark: Watermark = Field(default_factory=dict, description="a time column, and how late rows may arrive")
    expect: list[Expectation] = Field(default_factory=list, description="what must hold for every row")


class JsonDecode(_Decode):
    """Payloads that are JSON objects."""

    format: Literal["json"] = Field(description="format of the payloads, one of those below")
    schema_: Annotated[str, AfterValidator(_schema_or_infer)] = Field(alias="schema", description="columns, or infer")


class CsvDecode(_Decode):
    """Payloads that are one line of CSV."""

    format: Literal["csv"] = Field(description="format of the payloads, one of those below")
    columns: Schema = Field(description="the columns in order, with types")
    separator: str = Field(",", min_length=1, max_length=4, description="separates the values")


class NumberDecode(_Decode):
    """Payloads that are a number as text."""

    format: Literal["number"] = Field(description="format of the payloads, one of those below")
    type: Literal["DOUBLE", "BIGINT", "INT", "FLOAT"] = Field("DOUBLE", description="type of the column")
    column: Name = Field("value", description="name of the column")


class TextDecode(_Decode):
    """Payloads that are text in UTF-8."""

    format: Literal["text"] = Field(description="format of the payloads, one of those below")
    column: Name = Field("value", description="name of the column")


class RawDecode(_Decode):
    """Payloads without decoding."""

    format: Literal["raw"] = Field(description="format of the payloads, one of those below")
    column: Name = Field("payload", description="name of the column")


class ProtobufDecode(_Decode):
    """Payloads that are a Protobuf message."""

    format: Literal["protobuf"] = Field(description="format of the payloads, one of those below")
    descriptor: str = Field(min_length=1, description="file made by `protoc --include_imports --descriptor_set_out`")
    message: str = Field(min_length=1, description="full name of the message, with its package")


class SparkplugDecode(_Decode):
    """Payloads of Sparkplug B."""

    format: Literal["sparkplug"] = Field(description="format of the payloads, one of those below")


Decode = Annotated[
    JsonDecode | CsvDecode | NumberDecode | TextDecode | RawDecode | ProtobufDecode | SparkplugDecode,
    Field(discriminator="format"),
]


class StreamSource(Key):
    """Streams of the cluster, as one view of messages and one view per entry of `decode`."""

    stream: str | None = Field(None, min_length=1, description="name of the stream")
    streams: list[str] | None = Field(None, min_length=1, description="names of several streams, read as one")
    start: Annotated[str | dict[int, int], BeforeValidator(_start)] = Field(
        "earliest", description="where a query with a new checkpoint begins"
    )
    rows_per_trigger: Rows | None = Field(
        None,
        description="largest number of messages in a micro-batch, per stream; 100,000 if a sink with mqtt reads it",
    )
    tasks: Tasks | None = Field(None, description="smallest number of tasks of a micro-batch")
    patience: Interval = Field(120_000, description="how long all nodes may be unreachable")
    lost: Literal["fail", "skip"] = Field("fail", description="what to do if retention removed unread messages")
    decode: list[Decode] = Field(default_factory=list, description="how to decode; the first matching topic applies")

    @property
    def names(self) -> list[str]:
        """The streams."""
        return self.streams if self.streams is not None else [self.stream or ""]


class TableSource(Key):
    """A table that is read completely, for joins."""

    table: str = Field(min_length=1, description="file or folder")
    format: Literal["csv", "parquet", "delta"] = Field(description="format of the table")
    schema_: Schema | None = Field(None, alias="schema", description="columns; needed for csv")
    options: dict[str, Setting] = Field(default_factory=dict, description="options of Spark's reader")


class SinkSource(Key):
    """The table of a Delta sink of this pipeline, read completely: for views of tables alone."""

    sink: Name = Field(description="name of the sink")


class _Step(Key):
    name: Name = Field(description="name of the view that it creates")
    watermark: Watermark = Field(default_factory=dict, description="a time column, and how late rows may arrive")
    expect: list[Expectation] = Field(default_factory=list, description="what must hold for every row")


class SqlStep(_Step):
    """A SQL query."""

    sql: str = Field(min_length=1, description="a SELECT over views")


class PythonStep(_Step):
    """A function on DataFrames."""

    python: Annotated[str, AfterValidator(_function)] = Field(
        description="module:function; the module is beside the file"
    )
    inputs: list[str] = Field(min_length=1, description="the views that are passed to it, in order")
    arguments: dict[str, Any] = Field(default_factory=dict, description="further arguments, by name")


class _Sink(Key):
    name: Name = Field(description="name of the sink and of its checkpoint")
    from_: str = Field(alias="from", description="the view that it writes")


class DeltaSink(_Sink):
    """A Delta table."""

    delta: str = Field(min_length=1, description="folder of the table")
    mode: Literal["append", "update", "complete"] = Field("append", description="what a batch does to the table")
    keys: list[str] = Field(default_factory=list, description="mode update: the columns that identify a row")
    partition_by: list[str] = Field(default_factory=list, description="columns that partition the table")
    compact: IntervalOrNever = Field(3_600_000, description="how often small files are merged, or never")
    vacuum: IntervalOrNever = Field(
        604_800_000, description="age at which files that no longer belong to the table are removed, or never"
    )
    every: Interval | None = Field(None, description="a view of tables alone: how often to check for changes")


class ParquetSink(_Sink):
    """Parquet files, written by Spark's own sink."""

    parquet: str = Field(min_length=1, description="folder")
    partition_by: list[str] = Field(default_factory=list, description="columns that partition the files")


class MqttKey(Key):
    """How messages are published unless a row says otherwise."""

    qos: Qos = Field(1, description="QoS of messages; a column qos overrides it")
    retain: Switch = Field(False, description="whether messages are retained; a column retain overrides it")
    patience: Interval = Field(120_000, description="how long all nodes may be unreachable")


class MqttSink(_Sink):
    """Messages, published by the cluster."""

    mqtt: MqttKey = Field(description="options: {qos: 1}, or {} for the defaults")


class FormatSink(_Sink):
    """Any Spark format."""

    format: str = Field(min_length=1, description="name of the format")
    options: dict[str, Setting] = Field(default_factory=dict, description="its options")
    mode: Literal["append", "update", "complete"] = Field("append", description="output mode of Spark")


def _kind(value: Any, kinds: dict[str, str], other: str) -> str:
    if isinstance(value, dict):
        for key, tag in kinds.items():
            if key in value:
                return tag
    return other


def _source_kind(value: Any) -> str:
    return _kind(value, {"table": "<table>", "sink": "<sink>"}, "<stream>")


def _step_kind(value: Any) -> str:
    return _kind(value, {"python": "<python>"}, "<sql>")


def _sink_kind(value: Any) -> str:
    found = {"delta": "<delta>", "parquet": "<parquet>", "mqtt": "<mqtt>", "format": "<format>"}
    return _kind(value, found, "<delta>")


# The tags are in brackets to distinguish them from keys of the file: they occur in the locations of errors.
AnySource = Annotated[
    Annotated[StreamSource, Tag("<stream>")]
    | Annotated[TableSource, Tag("<table>")]
    | Annotated[SinkSource, Tag("<sink>")],
    Discriminator(_source_kind),
]
AnyStep = Annotated[
    Annotated[SqlStep, Tag("<sql>")] | Annotated[PythonStep, Tag("<python>")], Discriminator(_step_kind)
]
AnySink = Annotated[
    Annotated[DeltaSink, Tag("<delta>")]
    | Annotated[ParquetSink, Tag("<parquet>")]
    | Annotated[MqttSink, Tag("<mqtt>")]
    | Annotated[FormatSink, Tag("<format>")],
    Discriminator(_sink_kind),
]


class Pipeline(Key):
    """A pipeline file."""

    name: Name = Field(description="name of the pipeline")
    cluster: ClusterKey | None = Field(None, description="where the nodes are")
    spark: SparkKey = Field(default_factory=SparkKey, description="the Spark session")
    state: str | None = Field(
        None,
        min_length=1,
        description="folder of checkpoints, pinned schemas and status; state/NAME by default",
    )
    trigger: Annotated[int | Literal["once"], BeforeValidator(_trigger)] = Field(
        2_000, description="time between micro-batches, or once: process what is there and end"
    )
    sources: dict[Name, AnySource] = Field(min_length=1, description="streams and tables, by name")
    steps: list[AnyStep] = Field(default_factory=list, description="views computed from views")
    sinks: list[AnySink] = Field(min_length=1, description="what is written")
    quarantine: str | None = Field(
        None, description="Delta table of messages that were not decoded and rows that were dropped"
    )


def kinds() -> dict[str, tuple[type[Key], ...]]:
    """Return the models of each part of the file, as the reference lists them."""
    return {
        "pipeline": (Pipeline,),
        "cluster": (ClusterKey,),
        "spark": (SparkKey,),
        "sources": (StreamSource, TableSource, SinkSource),
        "decode": (JsonDecode, CsvDecode, NumberDecode, TextDecode, RawDecode, ProtobufDecode, SparkplugDecode),
        "expect": (Expectation,),
        "steps": (SqlStep, PythonStep),
        "sinks": (DeltaSink, ParquetSink, MqttSink, FormatSink),
        "mqtt": (MqttKey,),
    }
