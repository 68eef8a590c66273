"""A pipeline as a tree of text: sources, views, steps and sinks, as they will run. Without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_folkmoot.pipeline.graph import DECODED, MESSAGES, SINK_TABLE, TABLE, View
from pyspark_folkmoot.pipeline.interval import interval_text
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.model import AnySink, DeltaSink, MqttSink, ParquetSink, StreamSource

if TYPE_CHECKING:
    from pyspark_folkmoot.pipeline.analyse import Analysis

__all__ = ["explain"]


def explain(loaded: Loaded, analysis: Analysis | None = None) -> str:
    """Return the tree; with the result of the analyzer (columns, state), if there is one."""
    model = loaded.model
    lines = [f"pipeline {model.name}"]
    trigger = (
        "once: what is there, then it ends" if model.trigger == "once" else f"every {interval_text(model.trigger)}"
    )
    lines += [f"  trigger     {trigger}", f"  Spark       {model.spark.master}", f"  state       {loaded.state}"]
    if model.cluster is not None:
        raw = loaded.document.raw["cluster"]
        token = "" if model.cluster.token is None else " (with a token)"
        lines.append(f"  cluster     {raw.get('url')}{token}")
    for view in loaded.graph.views.values():
        lines += ["", *_view(loaded, view, analysis)]
    for sink in model.sinks:
        lines += ["", *_sink(loaded, sink)]
    decoding = [name for name, source in model.sources.items() if isinstance(source, StreamSource) and source.decode]
    dropping = [
        view.name
        for view in loaded.graph.views.values()
        if loaded.graph.streaming(view.name) and any(found.otherwise == "drop" for found in view.expectations)
    ]
    if decoding or dropping:
        lines += ["", f"quarantine    Delta table {loaded.quarantine}"]
        lines += [
            f"  what of {name} cannot be decoded    {_checkpoint(loaded, 'quarantine-' + name)}" for name in decoding
        ]
        lines += [
            f"  what expectations of {name} drop    {_checkpoint(loaded, 'quarantine-' + name)}" for name in dropping
        ]
    return loaded.masked("\n".join(lines))


def _view(loaded: Loaded, view: View, analysis: Analysis | None) -> list[str]:
    lines = [f"{_kind(view)} {view.name}{_from(loaded, view)}"]
    for column, delay_ms in view.watermark.items():
        lines.append(f"  watermark   {column}, rows may come {interval_text(delay_ms)} late")
    lines += [f"  expects     {found.name}: {found.check}; otherwise {found.otherwise}" for found in view.expectations]
    if analysis is not None and view.kind != MESSAGES:
        kept = analysis.stateful.get(view.name, [])
        below = [part for name in view.inputs for part in analysis.stateful.get(name, [])]
        if len(kept) > len(below):
            lines.append(f"  keeps state {', '.join(dict.fromkeys(kept[: len(kept) - len(below)]))}")
        columns = ", ".join(f"{name} {kind.upper()}" for name, kind in analysis.columns.get(view.name, []))
        lines.append(f"  columns     {columns}")
    return lines


def _kind(view: View) -> str:
    return {MESSAGES: "source ", DECODED: "  view ", TABLE: "table  ", SINK_TABLE: "table  "}.get(view.kind, "step   ")


def _from(loaded: Loaded, view: View) -> str:
    made: Any = view.made_by
    if isinstance(made, StreamSource):
        limit = "" if made.rows_per_trigger is None else f", at most {made.rows_per_trigger:,} messages a batch"
        several = "streams" if len(made.names) > 1 else "stream"
        return f" <- {several} {', '.join(made.names)} from {made.start}{limit}"
    if view.kind == DECODED:
        return f" <- {made.format} on {made.topic}"
    if view.kind == TABLE:
        return f" <- {made.format} {loaded.path(made.table)}"
    if view.kind == SINK_TABLE:
        return f" <- the table of sink {made.sink}"
    return f" <- {', '.join(view.inputs)}" + (f" by {made.python}" if hasattr(made, "python") else "")


def _sink(loaded: Loaded, sink: AnySink) -> list[str]:
    lines = [f"sink    {sink.name} <- {sink.from_}"]
    if isinstance(sink, DeltaSink):
        keys = f" by {', '.join(sink.keys)}" if sink.keys else ""
        static = not loaded.graph.streaming(_name(loaded, sink))
        mode = "made anew when its tables change" if static else f"mode {sink.mode}{keys}"
        lines.append(f"  Delta table {loaded.path(sink.delta)}, {mode}")
        lines.append(f"  upkeep      compact: {_every(sink.compact)}, vacuum: {_every(sink.vacuum)}")
        if static:
            return lines
    elif isinstance(sink, ParquetSink):
        lines.append(f"  Parquet     {loaded.path(sink.parquet)}")
    elif isinstance(sink, MqttSink):
        lines.append(f"  MQTT        qos {sink.mqtt.qos}{', retained' if sink.mqtt.retain else ''}")
    else:
        # Options may contain a password in clear text: only their names are shown.
        lines.append(f"  format      {sink.format}, mode {sink.mode}, options: {', '.join(sink.options) or 'none'}")
    partitions: list[str] = getattr(sink, "partition_by", [])
    if partitions:
        lines.append(f"  partitions  {', '.join(partitions)}")
    lines.append(f"  {_checkpoint(loaded, sink.name)}")
    return lines


def _name(loaded: Loaded, sink: AnySink) -> str:
    return next(name for name in loaded.graph.views if name.lower() == sink.from_.lower())


def _every(milliseconds: int | None) -> str:
    return "never" if milliseconds is None else interval_text(milliseconds)


def _checkpoint(loaded: Loaded, name: str) -> str:
    return f"checkpoint  {loaded.state / 'checkpoints' / name}"
