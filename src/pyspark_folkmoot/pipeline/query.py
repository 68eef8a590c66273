"""The queries of a pipeline: one per sink, one per source for what cannot be decoded, one per view that drops rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark_folkmoot.pipeline.analyse import Analysis
from pyspark_folkmoot.pipeline.build import Builder, without_origin
from pyspark_folkmoot.pipeline.checkpoint import checkpoint_of
from pyspark_folkmoot.pipeline.decode import observed_entries, undecoded
from pyspark_folkmoot.pipeline.expect import drops
from pyspark_folkmoot.pipeline.fault import PipelineProblem
from pyspark_folkmoot.pipeline.fingerprint import check_fingerprint, fingerprint, keep_fingerprint
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.model import ONCE, AnySink, DeltaSink, StreamSource
from pyspark_folkmoot.pipeline.part import ENTRIES
from pyspark_folkmoot.pipeline.plan import sources_read
from pyspark_folkmoot.pipeline.quarantine import of_dropped, of_undecoded
from pyspark_folkmoot.pipeline.sink import Say, start_quarantine, start_sink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from pyspark_folkmoot.offset import Offsets

__all__ = [
    "QUARANTINE",
    "Planned",
    "beside",
    "check_all",
    "counters",
    "plan_queries",
    "query_views",
    "sink_query",
    "static_sinks",
    "view_of",
]


QUARANTINE: Final = "quarantine-"
"""Prefix of the names of the quarantine's queries; a sink's name has no hyphen."""


def _silent(_text: str) -> None:
    """Print nothing."""


class Planned:
    """A query that is ready to start: what it writes, the streams it reads and how often it scans each."""

    def __init__(
        self, name: str, view: str, frame: DataFrame, checkpoint: Path, sink: AnySink | None, start: Callable[[], Any]
    ) -> None:
        self.name = name
        self.view = view
        self.frame = frame
        self.checkpoint = checkpoint
        self.sink = sink
        self.sources = sources_read(frame)
        self.fingerprint: dict[str, Any] = {}
        self._start = start

    def check(self) -> None:
        """Refuse an incompatible checkpoint."""
        check_fingerprint(self.checkpoint, self.fingerprint, self.name, self.sink is not None)

    def start(self) -> StreamingQuery:
        """Start it; from now on the checkpoint belongs to this fingerprint."""
        keep_fingerprint(self.checkpoint, self.fingerprint)
        query: StreamingQuery = self._start()
        return query


def check_all(all_planned: Sequence[Planned]) -> None:
    """Refuse incompatible checkpoints, all at once, so that the consequences of several changes are visible."""
    refused = []
    for planned in all_planned:
        try:
            planned.check()
        except PipelineProblem as problem:
            refused.append(str(problem))
    if refused:
        raise PipelineProblem("\n".join(refused))


def view_of(loaded: Loaded, sink: AnySink) -> str:
    """Return the view that a sink writes, by the name that it has."""
    return next(name for name in loaded.graph.views if name.lower() == sink.from_.lower())


def static_sinks(loaded: Loaded) -> list[DeltaSink]:
    """Return the sinks of views of tables alone, each after those whose tables it reads."""
    places = {name: number for number, name in enumerate(loaded.graph.views)}
    found = [
        sink
        for sink in loaded.model.sinks
        if isinstance(sink, DeltaSink) and not loaded.graph.streaming(view_of(loaded, sink))
    ]
    return sorted(found, key=lambda sink: places[view_of(loaded, sink)])


def counters(loaded: Loaded) -> dict[str, str]:
    """Return by view with expectations the one query that counts them: its quarantine's, or the first sink's."""
    found: dict[str, str] = {}
    graph = loaded.graph
    for name, view in graph.views.items():
        if not view.expectations or not graph.streaming(name):
            continue
        if drops(view.expectations):
            found[name] = f"{QUARANTINE}{name}"
            continue
        for sink in loaded.model.sinks:
            if name in graph.needed(view_of(loaded, sink)):
                found[name] = sink.name
                break
    return found


def query_views(loaded: Loaded) -> dict[str, str]:
    """Return the names of all streaming queries of a pipeline, in their order, with the view that each is about."""
    graph = loaded.graph
    found = {sink.name: view_of(loaded, sink) for sink in loaded.model.sinks if graph.streaming(view_of(loaded, sink))}
    for name, source in loaded.model.sources.items():
        if isinstance(source, StreamSource) and source.decode:
            found[f"{QUARANTINE}{name}"] = name
    # Rows of a view without a sink are not lost: they are in the stream, and in no table.
    used = {known for sink in loaded.model.sinks for known in graph.needed(view_of(loaded, sink))}
    for name, view in graph.views.items():
        if name in used and drops(view.expectations) and graph.streaming(name):
            found[f"{QUARANTINE}{name}"] = name
    return found


def beside(loaded: Loaded, views: Mapping[str, str]) -> dict[str, list[str]]:
    """Return for each query of the quarantine the sinks that omit its rows; `views`: of `query_views`."""
    sinks = {name: loaded.graph.needed(view) for name, view in views.items() if not name.startswith(QUARANTINE)}
    return {
        name: [sink for sink, needed in sinks.items() if view in needed]
        for name, view in views.items()
        if name.startswith(QUARANTINE)
    }


def plan_queries(
    loaded: Loaded,
    builder: Builder,
    analysis: Analysis,
    say: Say = _silent,
    starts: Mapping[str, Mapping[str, Mapping[str, Offsets]]] | None = None,
    ends: Mapping[str, Offsets] | None = None,
) -> list[Planned]:
    """Return all streaming queries of a pipeline; `say` is told what they do between batches.

    starts: by query, source and stream, where it begins, instead of the file's start. ends: by stream, where all end.
    """
    planned = []
    sinks = {sink.name: sink for sink in loaded.model.sinks}
    for name, view in query_views(loaded).items():
        mine = builder.between((starts or {}).get(name, {}), ends or {})
        if name in sinks:
            query = sink_query(loaded, mine, analysis, sinks[name], checkpoint_of(loaded.state, name), say=say)
        elif view in loaded.model.sources:
            query = _undecoded_query(loaded, mine, view)
        else:
            query = _dropped_query(loaded, mine, view)
        stateful = analysis.stateful
        query.fingerprint = fingerprint(loaded, query.view, query.frame, query.sink, stateful, builder.schemas)
        planned.append(query)
    return planned


def sink_query(
    loaded: Loaded,
    builder: Builder,
    analysis: Analysis,
    sink: AnySink,
    checkpoint: Path,
    table: str | None = None,
    say: Say = _silent,
) -> Planned:
    """Return the query of a sink; `table` is a folder to write instead of the sink's own."""
    view = view_of(loaded, sink)
    counted = [name for name, query in counters(loaded).items() if query == sink.name]
    frame = without_origin(builder.frames(view, counted)[view])
    once = loaded.model.trigger == ONCE or table is not None
    trigger = None if once else int(loaded.model.trigger)
    planned = Planned(
        sink.name,
        view,
        frame,
        checkpoint,
        sink,
        lambda: start_sink(loaded, sink, frame, checkpoint, trigger, table, say),
    )
    planned.fingerprint = fingerprint(loaded, view, frame, sink, analysis.stateful, builder.schemas)
    return planned


def _undecoded_query(loaded: Loaded, builder: Builder, source: str) -> Planned:
    name = f"{QUARANTINE}{source}"
    found = loaded.model.sources[source]
    assert isinstance(found, StreamSource)
    entries = builder.entries(source)
    messages = observed_entries(builder.frames(source)[source], entries, ENTRIES + source)
    stream = found.names[0] if found.streams is None else ""
    frame = of_undecoded(undecoded(messages, entries, stream), source)
    return _quarantine(loaded, name, source, frame)


def _dropped_query(loaded: Loaded, builder: Builder, view: str) -> Planned:
    name = f"{QUARANTINE}{view}"
    rows = builder.frames(view, [view], before=True)[view]
    sources = loaded.graph.sources(view)
    source = sources[0] if len(sources) == 1 else None
    frame = of_dropped(rows, source, view, loaded.graph.views[view].expectations, loaded.masked)
    return _quarantine(loaded, name, view, frame)


def _quarantine(loaded: Loaded, name: str, view: str, frame: DataFrame) -> Planned:
    checkpoint = checkpoint_of(loaded.state, name)
    trigger = None if loaded.model.trigger == ONCE else int(loaded.model.trigger)
    start = lambda: start_quarantine(loaded, name, frame, checkpoint, trigger)  # noqa: E731 - one line, named where used
    return Planned(name, view, frame, checkpoint, None, start)
