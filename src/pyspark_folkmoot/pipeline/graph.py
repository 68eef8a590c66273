"""The views of a pipeline and their inputs: names, order, cycles. Checks what can be checked without Spark."""

from __future__ import annotations

from typing import Final

from pyspark_folkmoot.pipeline.document import Document, Path_
from pyspark_folkmoot.pipeline.fault import Fault, valid
from pyspark_folkmoot.pipeline.model import (
    AnySink,
    Decode,
    DeltaSink,
    Expectation,
    MqttSink,
    Pipeline,
    PythonStep,
    SinkSource,
    SqlStep,
    StreamSource,
    TableSource,
)
from pyspark_folkmoot.pipeline.part import check_parts
from pyspark_folkmoot.pipeline.relation import relations

__all__ = ["DECODED", "MESSAGES", "SINK_TABLE", "STEP", "TABLE", "Graph", "View", "build_graph"]

MQTT_ROWS: Final = 100_000
"""The largest number of messages in a published micro-batch: it is one transaction, whose bytes the nodes limit.

Spark logs the contents of a batch before it runs: a batch that is too large could never be made smaller.
"""

MESSAGES: Final = "messages"
DECODED: Final = "decoded"
TABLE: Final = "table"
SINK_TABLE: Final = "sink table"
STEP: Final = "step"


class View:
    """A view: its kind (one of the constants), what made it, where that is in the file, and the views it reads."""

    def __init__(
        self,
        name: str,
        kind: str,
        made_by: StreamSource | TableSource | SinkSource | Decode | SqlStep | PythonStep,
        path: Path_,
        inputs: list[str],
    ) -> None:
        self.name = name
        self.kind = kind
        self.made_by = made_by
        self.path = path
        self.inputs = inputs
        self.unresolved = False  # it reads something that does not exist; this has been reported

    @property
    def expectations(self) -> list[Expectation]:
        """What must hold for the rows."""
        return list(getattr(self.made_by, "expect", []))

    @property
    def watermark(self) -> dict[str, int]:
        """Columns of time and how late rows may come, in milliseconds."""
        return dict(getattr(self.made_by, "watermark", {}))


class Graph:
    """All views by name, each after those that it reads."""

    def __init__(self, views: dict[str, View]) -> None:
        self.views = views

    def needed(self, name: str) -> list[str]:
        """Return the views that `name` depends on, including itself, in the order of the graph."""
        wanted = {name}
        for view in reversed(self.views.values()):
            if view.name in wanted:
                wanted.update(view.inputs)
        return [known for known in self.views if known in wanted]

    def streaming(self, name: str) -> bool:
        """Return whether a view grows with a stream."""
        return any(self.views[known].kind == MESSAGES for known in self.needed(name))

    def of_tables(self, name: str) -> bool:
        """Return whether a view depends on tables alone, as far as that is known."""
        return not self.streaming(name) and not any(self.views[known].unresolved for known in self.needed(name))

    def sources(self, name: str) -> list[str]:
        """Return the stream sources that a view depends on."""
        return [known for known in self.needed(name) if self.views[known].kind == MESSAGES]

    def source_of(self, name: str) -> str:
        """Return the stream source of a view of messages or of decoded ones."""
        return self.sources(name)[0]


def build_graph(document: Document, model: Pipeline) -> Graph:
    """Return the graph of `model`; errors are added to the document."""
    check_parts(document, model)
    found = _views(document, model)
    by_lower = {name.lower(): name for name in found}
    for view in found.values():
        _resolve(document, view, by_lower)
    ordered = _ordered(document, found, {sink.name: sink for sink in model.sinks})
    graph = Graph(ordered)
    _check_sinks(document, model, graph, by_lower)
    _check_joins(document, graph)
    _limit_batches(model, graph)
    return graph


def _views(document: Document, model: Pipeline) -> dict[str, View]:
    """Return all views in the order of the file; reports duplicate names."""
    listed: list[View] = []
    sinks = [sink.name for sink in model.sinks]
    for name, source in model.sources.items():
        path: Path_ = ("sources", name)
        if isinstance(source, StreamSource):
            listed.append(View(name, MESSAGES, source, path, []))
            for index, entry in enumerate(source.decode):
                listed.append(View(entry.view, DECODED, entry, (*path, "decode", index), [name]))
        elif isinstance(source, TableSource):
            listed.append(View(name, TABLE, source, path, []))
        else:
            if source.sink not in sinks:
                text = f"sources.{name} names the sink '{source.sink}', which there is not"
                document.fault((*path, "sink"), text + valid(source.sink, sinks, "sinks"))
                source = SinkSource(sink=model.sinks[0].name)
            listed.append(View(name, SINK_TABLE, source, path, []))
    for index, step in enumerate(model.steps):
        inputs = list(step.inputs) if isinstance(step, PythonStep) else []
        listed.append(View(step.name, STEP, step, ("steps", index), inputs))
    found: dict[str, View] = {}
    lines: dict[str, int] = {}
    for view in listed:
        lower = view.name.lower()
        if lower in lines:
            text = f"the name '{view.name}' is taken: line {lines[lower]} has a source, view or step of that name"
            document.fault(view.path, text)
            continue
        lines[lower] = document.line(view.path)
        found[view.name] = view
    return found


def _resolve(document: Document, view: View, by_lower: dict[str, str]) -> None:
    """Find the views that a step reads; reports names that do not exist."""
    if isinstance(view.made_by, SqlStep):
        path = (*view.path, "sql")
        for name, line in relations(view.made_by.sql):
            if name.lower() in by_lower:
                view.inputs.append(by_lower[name.lower()])
                continue
            view.unresolved = True
            text = f"step '{view.name}' reads '{name}', and there is no such view"
            text += valid(name, by_lower.values(), "views")
            document.faults.append(Fault(document.text_line(path, line), text))
    elif isinstance(view.made_by, PythonStep):
        for index, name in enumerate(view.inputs):
            if name.lower() not in by_lower:
                view.unresolved = True
                text = f"step '{view.name}' has the input '{name}', and there is no such view"
                document.fault((*view.path, "inputs", index), text + valid(name, by_lower.values(), "views"))
        view.inputs = [by_lower[name.lower()] for name in view.inputs if name.lower() in by_lower]


def _ordered(document: Document, found: dict[str, View], sinks: dict[str, AnySink]) -> dict[str, View]:
    """Return the views in topological order; reports cycles, also those through tables of sinks."""
    done: dict[str, View] = {}
    told: set[str] = set()

    def visit(name: str, through: list[str]) -> None:
        if name in done or name in told:
            return
        view = found[name]
        if name in through:
            ring = through[through.index(name) :]
            told.update(ring)
            text = f"'{name}' is made of itself: {' <- '.join([*ring, name])}; one of them must read something else"
            document.fault(view.path, text)
            return
        behind = list(view.inputs)
        if isinstance(view.made_by, SinkSource):
            written = sinks[view.made_by.sink].from_
            behind += [known for known in found if known.lower() == written.lower()]
        for known in behind:
            visit(known, [*through, name])
        done.setdefault(name, view)

    for name in found:
        visit(name, [])
    return done


def _check_joins(document: Document, graph: Graph) -> None:
    """Report streams that are joined with the table of a sink: Spark would read it only once, at the start."""
    mixed: set[str] = set()
    for view in graph.views.values():
        tables = [graph.views[name].made_by for name in graph.needed(view.name)]
        found = [made.sink for made in tables if isinstance(made, SinkSource)]
        if not found or not graph.streaming(view.name):
            continue
        mixed.add(view.name)
        if mixed.isdisjoint(view.inputs):
            text = (
                f"'{view.name}' is made of a stream and of the table of sink '{found[0]}', which would stay what it "
                "was when the query started. Write the stream to a sink too and read that one with 'sink', so that all "
                "is made of tables; or, for a table that does not change, read it with 'table'"
            )
            document.fault(view.path, text)


def _limit_batches(model: Pipeline, graph: Graph) -> None:
    """Give the sources of sinks with mqtt a limit, if the file has none."""
    for sink in model.sinks:
        name = next((known for known in graph.views if known.lower() == sink.from_.lower()), None)
        for source in graph.sources(name) if name is not None and isinstance(sink, MqttSink) else []:
            found = model.sources[source]
            if isinstance(found, StreamSource) and found.rows_per_trigger is None:
                limited = found.model_copy(update={"rows_per_trigger": MQTT_ROWS})
                model.sources[source] = graph.views[source].made_by = limited


def _check_sinks(document: Document, model: Pipeline, graph: Graph, by_lower: dict[str, str]) -> None:
    """Report sinks of views that do not exist, and keys that are only for views of tables alone."""
    for index, sink in enumerate(model.sinks):
        path: Path_ = ("sinks", index)
        name = by_lower.get(sink.from_.lower())
        if name is None:
            text = f"sink '{sink.name}' writes '{sink.from_}', and there is no such view"
            document.fault((*path, "from"), text + valid(sink.from_, by_lower.values(), "views"))
            continue
        if name not in graph.views:
            continue  # part of a cycle, which has been reported
        if graph.streaming(name):
            if isinstance(sink, DeltaSink) and sink.every is not None:
                text = f"sink '{sink.name}': 'every' is for views of tables alone; '{name}' is made of a stream"
                document.fault((*path, "every"), text)
        elif not graph.of_tables(name):
            continue
        elif not isinstance(sink, DeltaSink):
            text = f"sink '{sink.name}' writes '{name}', which is made of tables alone: only a sink with 'delta' can"
            document.fault((*path, "from"), text)
        elif sink.mode == "update":
            text = f"sink '{sink.name}': '{name}' is made of tables alone and written whole: leave 'mode' out"
            document.fault((*path, "mode"), text)
    for view in graph.views.values():
        for index, expectation in enumerate(view.expectations):
            if expectation.otherwise != "fail" and graph.of_tables(view.name):
                text = (
                    f"expectation '{expectation.name}': '{view.name}' is made of tables alone, whose rows are neither "
                )
                text += "counted nor put into the quarantine: say fail, or use WHERE"
                document.fault((*view.path, "expect", index), text)
    table_of = {sink.name: sink for sink in model.sinks}
    for view in graph.views.values():
        if isinstance(view.made_by, SinkSource) and not isinstance(table_of.get(view.made_by.sink), DeltaSink):
            text = f"sources.{view.name}: sink '{view.made_by.sink}' has no Delta table to read"
            document.fault((*view.path, "sink"), text)
