"""The second half of a check, by Spark's analyzer: every view is built on streams without rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark_folkmoot.pipeline.document import Path_
from pyspark_folkmoot.pipeline.fault import Fault, Faults, PipelineProblem, valid
from pyspark_folkmoot.pipeline.graph import View
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.model import (
    DeltaSink,
    Expectation,
    FormatSink,
    JsonDecode,
    MqttSink,
    ParquetSink,
    SinkSource,
    SqlStep,
    StreamSource,
)
from pyspark_folkmoot.pipeline.part import ORIGIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Analysis", "analyse", "known_schemas", "quiet_spark"]

MQTT_COLUMNS = {"topic": "string", "payload": "binary or string"}


class Analysis:
    """The result: the columns of each view (name, type), and the views with state, with the operators that keep it."""

    def __init__(self) -> None:
        self.columns: dict[str, list[tuple[str, str]]] = {}
        self.stateful: dict[str, list[str]] = {}


def known_schemas(loaded: Loaded, pin: bool) -> dict[str, str]:
    """Return the schemas of the views that have `infer`: pinned, or inferred now; raises Faults."""
    from folkmoot.client.streams import StreamClient
    from pyspark_folkmoot.pipeline.infer import PATIENCE_S, schema_of_view

    found: dict[str, str] = {}
    document = loaded.document
    for name, source in loaded.model.sources.items():
        if not isinstance(source, StreamSource) or loaded.model.cluster is None:
            continue
        client = StreamClient(loaded.model.cluster.url, loaded.token, PATIENCE_S)
        for index, entry in enumerate(source.decode):
            if not isinstance(entry, JsonDecode) or entry.schema_ != "infer":
                continue
            earlier = [other.topic for other in source.decode[:index]]
            try:
                found[entry.view] = schema_of_view(loaded.state, source, entry, earlier, client, pin)
            except Exception as error:  # noqa: BLE001 - both the node's errors and ours are meant for the user
                document.fault(("sources", name, "decode", index), loaded.masked(str(error)))
        client.close()
    if document.faults:
        raise Faults(str(document.file), document.faults)
    return found


def analyse(spark: SparkSession, loaded: Loaded, schemas: Mapping[str, str]) -> Analysis:
    """Build every view and check every sink; raises Faults with all errors."""
    from pyspark_folkmoot.pipeline.build import EmptyBuilder

    found = _Analyser(loaded, EmptyBuilder(spark, loaded, schemas))
    with quiet_spark():
        found.views()
        found.sinks()
    if found.faults:
        raise Faults(str(loaded.document.file), found.faults)
    return found.analysis


@contextmanager
def quiet_spark() -> Iterator[None]:
    """Keep PySpark from logging errors that are reported in a clearer form."""
    import logging

    loggers = [logging.getLogger(name) for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def _of_many(frame: DataFrame, check: str) -> str | None:
    """Return why an expression uses several rows (max, a window) or produces rows; None if it uses one row."""
    from pyspark.sql import functions as f

    from pyspark_folkmoot.pipeline.plan import analysis_text

    try:
        frame.where(f.expr(check))
    except Exception as error:  # noqa: BLE001 - Spark's words are passed on
        return analysis_text(error)
    return None


class _Analyser:
    def __init__(self, loaded: Loaded, builder: Any) -> None:
        self.loaded = loaded
        self.builder = builder
        self.frames: dict[str, DataFrame] = {}
        self.faults: list[Fault] = []
        self.analysis = Analysis()

    def _fault(self, path: Path_, text: str, line: int | None = None) -> None:
        at = self.loaded.document.line(path) if line is None else line
        self.faults.append(Fault(at, self.loaded.masked(text)))

    def views(self) -> None:
        for view in self.loaded.graph.views.values():
            if any(name not in self.frames for name in [*view.inputs, *self._behind(view)]):
                continue  # one of its inputs is wrong, which has been reported
            try:
                frame = self.builder.made(view, self.frames)
            except Exception as error:  # noqa: BLE001 - a function of the user may raise anything
                self._wrong_step(view, error)
                continue
            right = self._expectations(view, frame)
            self._finished(view, frame, right)

    def _behind(self, view: View) -> list[str]:
        """Return the view that defines the columns of a sink's table."""
        if not isinstance(view.made_by, SinkSource):
            return []
        (written,) = [sink.from_ for sink in self.loaded.model.sinks if sink.name == view.made_by.sink]
        return [name for name in self.loaded.graph.views if name.lower() == written.lower()]

    def _finished(self, view: View, frame: DataFrame, right: bool) -> None:
        """Keep the view, with its expectations if they are `right`; views that read it are checked in any case."""
        from pyspark_folkmoot.pipeline.plan import analysis_text, stateful_parts

        try:
            finish = self.builder.finished if right else self.builder.watermarked
            self.frames[view.name] = finish(view, frame)
        except PipelineProblem as error:
            self._fault((*view.path, "watermark"), str(error))
            return
        except Exception as error:  # noqa: BLE001 - Spark's words are passed on
            self._fault((*view.path, "watermark"), f"view '{view.name}': {analysis_text(error)}")
            return
        kept = stateful_parts(frame)
        columns = [(name, kind) for name, kind in frame.dtypes if name != ORIGIN]
        self.analysis.columns[view.name] = columns
        lower = [name.lower() for name, _ in columns]
        twice = sorted({name for name in lower if lower.count(name) > 1})
        if twice:
            text = f"view '{view.name}' has the column '{twice[0]}' twice: rename one with AS"
            self._fault(view.path, text)
        if kept:
            self.analysis.stateful[view.name] = kept
            self._no_drops(view, kept)

    def _no_drops(self, view: View, kept: list[str]) -> None:
        for index, expectation in enumerate(view.expectations):
            if expectation.otherwise == "drop":
                text = (
                    f"expectation '{expectation.name}' drops rows of '{view.name}', which keeps state ({kept[0]}): "
                    "they cannot be traced for the quarantine. Put it on a later view, or use keep or fail"
                )
                self._fault((*view.path, "expect", index), text)

    def _wrong_step(self, view: View, error: Exception) -> None:
        from pyspark_folkmoot.pipeline.plan import analysis_text

        text = str(error) if isinstance(error, PipelineProblem) else analysis_text(error)
        if isinstance(view.made_by, SqlStep):
            path = (*view.path, "sql")
            match = re.search(r"\bline (\d+),? pos", text)
            line = self.loaded.document.text_line(path, int(match[1])) if match else None
            text = re.sub(r"[.;,]* ?\(?line \d+,? pos \d+\)?$", "", text)
            self._fault(path, f"step '{view.name}': {text}", line)
            return
        kind = "" if isinstance(error, PipelineProblem) else f"{type(error).__name__}: "
        self._fault(view.path, f"'{view.name}': {kind}{text}")

    def _expectations(self, view: View, frame: DataFrame) -> bool:
        """Check each expectation separately, so that all errors are reported."""
        from pyspark.sql import functions as f

        from pyspark_folkmoot.pipeline.plan import analysis_text

        right = True
        for index, expectation in enumerate(view.expectations):
            path = (*view.path, "expect", index)
            try:
                kind = frame.select(f.expr(expectation.check).alias("x")).dtypes[0][1]
            except Exception as error:  # noqa: BLE001 - Spark's words are passed on
                self._fault(path, f"expectation '{expectation.name}' of '{view.name}': {analysis_text(error)}")
                right = False
                continue
            if kind != "boolean":
                text = f"expectation '{expectation.name}' of '{view.name}' is {kind}: it must be true or false"
                self._fault(path, text)
                right = False
            elif (why := _of_many(frame, expectation.check)) is not None:
                text = f"expectation '{expectation.name}' of '{view.name}' must evaluate each row on its own: {why}"
                self._fault(path, text)
                right = False
            elif expectation.otherwise == "drop" and frame.isStreaming:
                self._no_chance(view, frame, expectation, path)
        return right

    def _no_chance(self, view: View, frame: DataFrame, expectation: Expectation, path: Path_) -> None:
        """Refuse to drop rows by values that differ between the queries of the sink and of the quarantine."""
        from pyspark_folkmoot.pipeline.chance import by_chance

        found = by_chance(frame, expectation.check)
        if found:
            text = (
                f"expectation '{expectation.name}' drops rows of '{view.name}' by {', '.join(found)}, which differs "
                "at each evaluation: a row could be neither in a table nor in the quarantine. Use the message's time "
                "(_origin.timestamp), put it into a later step, or use keep or fail"
            )
            self._fault(path, text)

    def sinks(self) -> None:
        from pyspark_folkmoot.pipeline.plan import format_refusal

        views = {name.lower(): name for name in self.loaded.graph.views}
        for index, sink in enumerate(self.loaded.model.sinks):
            name = views[sink.from_.lower()]
            if name not in self.frames:
                continue
            columns = [column for column, _ in self.analysis.columns[name]]
            path: Path_ = ("sinks", index)
            for key in ("partition_by", "keys"):
                for column in getattr(sink, key, []):
                    if column not in columns:
                        text = f"sink '{sink.name}': {key} names '{column}', which is no column of '{name}'"
                        self._fault((*path, key), text + valid(column, columns, "columns"))
            if isinstance(sink, FormatSink) and (why := format_refusal(self.builder.spark, sink.format)):
                self._fault((*path, "format"), f"sink '{sink.name}': {why}")
            if isinstance(sink, DeltaSink):
                self._partitions(path, sink, dict(self.analysis.columns[name]))
            if isinstance(sink, MqttSink):
                missing = [column for column in MQTT_COLUMNS if column not in columns]
                if missing:
                    text = f"sink '{sink.name}': '{name}' needs the columns topic and payload; {missing[0]} is missing"
                    self._fault((*path, "from"), f"{text}. Its columns: {', '.join(columns)}")
            if self.loaded.graph.streaming(name):
                self._mode(path, sink, name)

    def _partitions(self, path: Path_, sink: DeltaSink, kinds: dict[str, str]) -> None:
        from pyspark_folkmoot.delta import partition_fault

        for column in sink.partition_by:
            why = partition_fault(kinds[column]) if column in kinds else None
            if why is not None:
                self._fault((*path, "partition_by"), f"sink '{sink.name}': partition_by names '{column}', which {why}")

    def _mode(self, path: Path_, sink: DeltaSink | ParquetSink | MqttSink | FormatSink, name: str) -> None:
        from pyspark_folkmoot.pipeline.plan import refusal

        mode = getattr(sink, "mode", "append")
        why = refusal(self.frames[name], mode)
        if why is not None:
            advice = ""
            if mode == "append" and name in self.analysis.stateful:
                advice = ". A view with state needs a watermark in mode append; mode update with keys needs none"
            self._fault((*path, "mode"), f"sink '{sink.name}' cannot write '{name}' in mode {mode}: {why}{advice}")
