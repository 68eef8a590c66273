"""From a checked pipeline to DataFrames: sources, views, steps, in the order of the graph.

The origin of messages is an argument: the streams, or empty streams for the analyzer.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection
from copy import copy
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_folkmoot.column import COLUMNS, struct
from pyspark_folkmoot.pipeline.decode import Entry, decoded, entry_of, messages_of
from pyspark_folkmoot.pipeline.expect import observed, with_expectations
from pyspark_folkmoot.pipeline.fault import PipelineProblem, valid
from pyspark_folkmoot.pipeline.graph import DECODED, View
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.model import (
    DeltaSink,
    JsonDecode,
    PythonStep,
    SinkSource,
    SqlStep,
    StreamSource,
    TableSource,
)
from pyspark_folkmoot.pipeline.part import ORIGIN
from pyspark_folkmoot.pipeline.plan import query_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark_folkmoot.offset import Offsets

__all__ = ["Builder", "EmptyBuilder", "empty_messages", "import_function", "without_origin"]

Messages = Callable[[StreamSource], DataFrame]


class Builder:
    """Builds the views of a pipeline in a session. `schemas` are those of views with the schema `infer`."""

    def __init__(
        self, spark: SparkSession, loaded: Loaded, schemas: Mapping[str, str], messages: Messages | None = None
    ) -> None:
        self.spark = spark
        self.loaded = loaded
        self.schemas = schemas
        self._messages = messages
        self._entries: dict[str, list[Entry]] = {}
        self._starts: Mapping[str, Mapping[str, Offsets]] = {}
        self._ends: Mapping[str, Offsets] = {}

    def between(self, starts: Mapping[str, Mapping[str, Offsets]], ends: Mapping[str, Offsets]) -> Builder:
        """Return a builder that begins and ends at these offsets, where given.

        starts: by source and stream. ends: by stream.
        """
        found = copy(self)
        found._starts = starts  # noqa: SLF001 - its own
        found._ends = ends  # noqa: SLF001 - its own
        return found

    def entries(self, source: str) -> list[Entry]:
        """Return the entries of a stream source, ready for decoding."""
        if source not in self._entries:
            found = self.loaded.model.sources[source]
            assert isinstance(found, StreamSource)
            folder = self.loaded.folder
            self._entries[source] = [entry_of(item, folder, self._schema(item)) for item in found.decode]
        return self._entries[source]

    def _schema(self, item: Any) -> str | None:
        return self.schemas.get(item.view) if isinstance(item, JsonDecode) else None

    def frames(self, name: str, counted: Collection[str] = (), before: bool = False) -> dict[str, DataFrame]:
        """Return the views that `name` depends on, including itself.

        `counted` are the views whose expectations are observed here. With `before`, `name` itself still has the rows
        that its expectations drop, and no watermark.
        """
        frames: dict[str, DataFrame] = {}
        for known in self.loaded.graph.needed(name):
            view = self.loaded.graph.views[known]
            frame = self.made(view, frames)
            if known in counted:
                frame = observed(frame, known, view.expectations)
            if not (before and known == name):
                frame = self.finished(view, frame)
            frames[known] = frame
        return frames

    def made(self, view: View, frames: dict[str, DataFrame]) -> DataFrame:
        """Return a view as its source, decoding or step defines it, before expectations."""
        found = view.made_by
        if isinstance(found, StreamSource):
            return self._live(view.name, found) if self._messages is None else self._messages(found)
        if view.kind == DECODED:
            source = view.inputs[0]
            entries = self.entries(source)
            stream = self._stream(source)
            return decoded(frames[source], entries, stream)[view.name]
        if isinstance(found, TableSource):
            return self._table(found)
        if isinstance(found, SinkSource):
            return self._sink_table(found)
        if isinstance(found, SqlStep):
            for name in view.inputs:
                frames[name].createOrReplaceTempView(name)
            return _single_origin(self.spark.sql(query_text(self.spark, found.sql)))
        assert isinstance(found, PythonStep)
        function = import_function(self.loaded, found.python)
        made = function(*[frames[name] for name in view.inputs], **found.arguments)
        if not isinstance(made, DataFrame):
            raise PipelineProblem(f"step '{view.name}': {found.python} returned {type(made).__name__}, not a DataFrame")
        return _single_origin(made)

    def finished(self, view: View, frame: DataFrame) -> DataFrame:
        """Return a view with its expectations applied and its watermark set."""
        return self.watermarked(view, with_expectations(frame, view.name, view.expectations, self.loaded.masked))

    def watermarked(self, view: View, frame: DataFrame) -> DataFrame:
        """Return a view with its watermark set."""
        for column, delay_ms in view.watermark.items():
            if column not in frame.columns:
                text = f"view '{view.name}' has a watermark on '{column}', which is no column of it"
                raise PipelineProblem(text + valid(column, without_origin(frame).columns, "columns"))
            frame = frame.withWatermark(column, f"{delay_ms} milliseconds")
        return frame

    def _stream(self, source: str) -> str:
        found = self.loaded.model.sources[source]
        assert isinstance(found, StreamSource)
        return found.names[0] if found.streams is None else ""

    def _live(self, name: str, source: StreamSource) -> DataFrame:
        cluster = self.loaded.model.cluster
        assert cluster is not None
        starts = self._starts.get(name)
        return messages_of(self.spark, source, cluster.url, self.loaded.token, starts=starts, ends=self._ends)

    def _table(self, source: TableSource) -> DataFrame:
        reader = self.spark.read.format("folkmoot_delta" if source.format == "delta" else source.format)
        if source.schema_ is not None and source.format != "delta":
            reader = reader.schema(source.schema_)
        options = {name: _option(value) for name, value in source.options.items()}
        if source.format == "csv":
            options = {"header": "true", "mode": "FAILFAST", **options}
        return reader.options(**options).load(self.loaded.path(source.table))

    def _sink_table(self, source: SinkSource) -> DataFrame:
        (sink,) = [found for found in self.loaded.model.sinks if found.name == source.sink]
        assert isinstance(sink, DeltaSink)
        return self.spark.read.format("folkmoot_delta").load(self.loaded.path(sink.delta))


class EmptyBuilder(Builder):
    """Builds the views for the analyzer, on streams without rows and tables that need not exist."""

    def __init__(self, spark: SparkSession, loaded: Loaded, schemas: Mapping[str, str]) -> None:
        super().__init__(spark, loaded, schemas, lambda source: empty_messages(spark, source))

    def _sink_table(self, source: SinkSource) -> DataFrame:
        (sink,) = [found for found in self.loaded.model.sinks if found.name == source.sink]
        (name,) = [known for known in self.loaded.graph.views if known.lower() == sink.from_.lower()]
        return self.spark.createDataFrame([], without_origin(self.frames(name)[name]).schema)


def empty_messages(spark: SparkSession, source: StreamSource) -> DataFrame:
    """Return a stream with the columns of messages and without a row."""
    from pyspark.sql import functions as f

    rate = spark.readStream.format("rate").load()
    columns = [f.lit(None).cast(field.dataType).alias(field.name) for field in struct(COLUMNS)]
    if source.streams is not None:
        columns.append(f.lit("").alias("stream"))
    return rate.select(*columns)


def import_function(loaded: Loaded, place: str) -> Callable[..., Any]:
    """Return the function `module:function`, the module beside the pipeline's file first."""
    module, _, name = place.partition(":")
    folder = str(loaded.folder)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise PipelineProblem(f"the module '{module}' cannot be imported: {error}") from error
    except AttributeError:
        raise PipelineProblem(f"the module '{module}' has no function '{name}'") from None
    function: Callable[..., Any] = found
    return function


def without_origin(frame: DataFrame) -> DataFrame:
    """Return what a sink writes: all columns except `_origin`."""
    return frame.drop(ORIGIN)


def _single_origin(frame: DataFrame) -> DataFrame:
    """Return a frame with at most one origin: a join has two, and then the origin is unknown."""
    return frame.drop(ORIGIN) if frame.columns.count(ORIGIN) > 1 else frame


def _option(value: bool | int | float | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
