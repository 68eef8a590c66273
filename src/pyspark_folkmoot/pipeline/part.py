"""Checks within one source, view, step or sink, as far as they are possible without Spark."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from pyspark_folkmoot.pipeline.ddl import parse_schema
from pyspark_folkmoot.pipeline.document import Document, Path_
from pyspark_folkmoot.pipeline.fault import valid
from pyspark_folkmoot.pipeline.interval import interval_text, parse_interval
from pyspark_folkmoot.pipeline.model import (
    INFER,
    CsvDecode,
    Decode,
    DeltaSink,
    Expectation,
    JsonDecode,
    MqttSink,
    ParquetSink,
    Pipeline,
    ProtobufDecode,
    PythonStep,
    SparkplugDecode,
    StreamSource,
    TableSource,
)
from pyspark_folkmoot.pipeline.place import check_places
from pyspark_folkmoot.pipeline.topic import TopicPattern

__all__ = ["ENTRIES", "OBSERVED", "ORIGIN", "VACUUM_LEAST_MS", "check_parts"]

ORIGIN: Final = "_origin"
"""The column of a decoded view with the message that a row came from."""

OBSERVED: Final = "expect:"
"""Prefix of the names under which Spark counts the expectations of a view."""

ENTRIES: Final = "entries:"
"""Prefix of the names under which Spark counts the messages of a source's entries."""

VACUUM_LEAST_MS: Final = parse_interval("7 days")
"""Delta's own bound: a younger file may belong to a commit in progress, or to a reader of an older version."""


def check_parts(document: Document, model: Pipeline) -> None:
    """Add all errors to the document."""
    for name, source in model.sources.items():
        path: Path_ = ("sources", name)
        if isinstance(source, StreamSource):
            _stream(document, path, name, source)
        elif isinstance(source, TableSource):
            _table(document, path, name, source)
    for index, step in enumerate(model.steps):
        _expectations(document, ("steps", index, "expect"), step.expect)
        if isinstance(step, PythonStep):
            _function(document, ("steps", index, "python"), step.python)
    _sinks(document, model)
    check_places(document, model)
    asks = [sink.name for sink in model.sinks if isinstance(sink, MqttSink)]
    asks += [name for name, source in model.sources.items() if isinstance(source, StreamSource)]
    if asks and model.cluster is None:
        document.fault((), f"the pipeline needs the key 'cluster' with the 'url' of the nodes: {asks[0]} asks them")


def _stream(document: Document, path: Path_, name: str, source: StreamSource) -> None:
    if (source.stream is None) == (source.streams is None):
        document.fault(path, f"sources.{name} needs one of 'stream' and 'streams'")
    if source.streams is not None and len(set(source.streams)) < len(source.streams):
        document.fault((*path, "streams"), f"sources.{name}.streams names a stream twice")
    if isinstance(source.start, dict) and len(source.names) > 1:
        document.fault((*path, "start"), f"sources.{name}.start: offsets are of one stream, and there are several")
    seen: dict[str, int] = {}
    for index, entry in enumerate(source.decode):
        at: Path_ = (*path, "decode", index)
        pattern = TopicPattern(entry.topic)
        if pattern.regex in seen:
            text = f"view '{entry.view}' never gets a message: line {seen[pattern.regex]} matches the same topics first"
            document.fault((*at, "topic"), text)
        seen.setdefault(pattern.regex, document.line(at))
        _decode(document, at, entry, pattern)
        _expectations(document, (*at, "expect"), entry.expect)


def _decode(document: Document, path: Path_, entry: Decode, pattern: TopicPattern) -> None:
    names = [] if isinstance(entry, SparkplugDecode) else _columns(document, path, entry)
    for name in pattern.names:
        if name.lower() in [known.lower() for known in names]:
            document.fault((*path, "topic"), f"view '{entry.view}' gets '{name}' twice: from the topic and the payload")
    if ORIGIN in [*pattern.names, *names]:
        document.fault(path, f"view '{entry.view}': the name {ORIGIN} is reserved for the origin of a row")


def _columns(document: Document, path: Path_, entry: Decode) -> list[str]:
    """Return the columns of the payload, as far as the file says them."""
    if isinstance(entry, JsonDecode):
        return [] if entry.schema_ == INFER else list(parse_schema(entry.schema_))
    if isinstance(entry, CsvDecode):
        return list(parse_schema(entry.columns))
    if isinstance(entry, ProtobufDecode):
        from pyspark_folkmoot.pipeline.protobuf import ProtobufFault, message_columns

        try:
            return list(message_columns(document.file.parent / entry.descriptor, entry.message))
        except ProtobufFault as error:
            document.fault((*path, error.key), f"view '{entry.view}': {error}")
            return []
    return [entry.column] if not isinstance(entry, SparkplugDecode) else []


def _table(document: Document, path: Path_, name: str, source: TableSource) -> None:
    if source.format == "csv" and source.schema_ is None:
        document.fault(path, f"sources.{name} needs the key 'schema': a CSV file has no types")
    if "://" not in source.table and not (document.file.parent / source.table).exists():
        document.fault((*path, "table"), f"sources.{name}.table: there is no {source.table} beside the pipeline's file")


def _expectations(document: Document, path: Path_, expect: list[Expectation]) -> None:
    seen: set[str] = set()
    for index, expectation in enumerate(expect):
        if expectation.name.lower() in seen:
            document.fault((*path, index), f"the expectation '{expectation.name}' comes twice in its view")
        seen.add(expectation.name.lower())


def _function(document: Document, path: Path_, place: str) -> None:
    """Find a function in its module without running it; modules that are not beside the file are not checked."""
    module, _, function = place.partition(":")
    file = document.file.parent / Path(*module.split(".")).with_suffix(".py")
    if not file.is_file():
        if not (document.file.parent / module.split(".")[0]).is_dir():
            document.fault(path, f"there is no module '{module}' beside the pipeline's file: {file.name} is missing")
        return
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    except SyntaxError as error:
        document.fault(path, f"the module '{module}' is not valid Python: {file.name}:{error.lineno}: {error.msg}")
        return
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    others = [node for node in tree.body if isinstance(node, ast.Assign | ast.ImportFrom)]
    if function not in names and not others:
        document.fault(path, f"the module '{module}' has no function '{function}'{valid(function, names, 'functions')}")


def _sinks(document: Document, model: Pipeline) -> None:
    names: dict[str, int] = {}
    for index, sink in enumerate(model.sinks):
        path: Path_ = ("sinks", index)
        if sink.name.lower() in names:
            line = names[sink.name.lower()]
            document.fault(path, f"the name '{sink.name}' is taken: line {line} has a sink of that name")
        names.setdefault(sink.name.lower(), document.line(path))
        for key in ("partition_by", "keys"):
            _once(document, (*path, key), f"sink '{sink.name}': {key}", getattr(sink, key, []))
        if isinstance(sink, DeltaSink):
            _delta(document, path, sink)
        elif not isinstance(sink, ParquetSink | MqttSink) and sink.format == "folkmoot_delta":
            document.fault((*path, "format"), f"sink '{sink.name}': write 'delta: {'FOLDER'}' for a Delta table")


def _once(document: Document, path: Path_, what: str, columns: list[str]) -> None:
    lower = [column.lower() for column in columns]
    for column in dict.fromkeys(column for column in lower if lower.count(column) > 1):
        document.fault(path, f"{what} names '{columns[lower.index(column)]}' twice")


def _delta(document: Document, path: Path_, sink: DeltaSink) -> None:
    if "://" in sink.delta:
        text = f"sink '{sink.name}' writes to {sink.delta}: a Delta table must be on a local or mounted disk"
        document.fault((*path, "delta"), text)
    if (sink.mode == "update") != bool(sink.keys):
        text = f"sink '{sink.name}': mode update and 'keys', the columns that identify a row, belong together"
        document.fault((*path, "keys" if sink.keys else "mode"), text)
    if sink.vacuum is not None and sink.vacuum < VACUUM_LEAST_MS:
        text = f"sink '{sink.name}': vacuum is {interval_text(sink.vacuum)}: at least {interval_text(VACUUM_LEAST_MS)}"
        document.fault((*path, "vacuum"), f"{text}, younger files may belong to a commit in progress or to a reader")
    if sink.compact is not None and sink.compact < 1_000:
        document.fault((*path, "compact"), f"sink '{sink.name}': compact is shorter than 1 second")
