"""Where queries begin and, with `trigger: once`, where they end: determined once, so that all agree.

A sink and its quarantine are separate queries. If each asked for the end of the stream at its own first batch, messages
between the two ends would be in neither.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from folkmoot.client.position import EARLIEST, LATEST, parse_time
from folkmoot.client.problem import StreamProblem
from folkmoot.client.streams import StreamClient
from pyspark_folkmoot.offset import Offsets, from_json, to_json
from pyspark_folkmoot.pipeline.checkpoint import begun, checkpoint_of, position
from pyspark_folkmoot.pipeline.fault import PipelineProblem
from pyspark_folkmoot.pipeline.fingerprint import streams_kept, write_json
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.model import StreamSource
from pyspark_folkmoot.pipeline.secret import mask, unmask

__all__ = ["Places", "begins", "common_ends"]

ENDS_PATIENCE_S: Final = 10.0
"""How long to ask where the streams end: if nodes are unreachable for longer, the queries report it."""

Places = dict[str, Offsets]
"""The next offset, by stream and partition."""


def begins(loaded: Loaded, views: Mapping[str, str], sinks: Mapping[str, list[str]]) -> dict[str, dict[str, Places]]:
    """Return for each query and source where it begins, if the file says `latest` or a time.

    views: the view of each query. sinks: the sinks of each query of the quarantine. All queries that begin in this run
    begin at the same position, which is kept before any of them starts; a new query of the quarantine begins where its
    sinks are. Raises StreamProblem if no node knows that position.
    """
    file = loaded.state / "starts.json"
    wanted = {name: _moving(loaded, view) for name, view in views.items()}
    known = _kept(loaded, file, wanted)
    fresh = [name for name in wanted if not begun(checkpoint_of(loaded.state, name))]
    missing = {source for name in fresh for source in wanted[name] if source not in known[name]}
    if not missing:
        return known
    now = {source: _place_now(loaded, source) for source in sorted(missing)}
    for name in fresh:
        for source in wanted[name]:
            if source not in known[name]:
                beside = [_places(loaded, sink, source, known) for sink in sinks.get(name, [])]
                known[name][source] = {stream: _least(at, stream, beside) for stream, at in now[source].items()}
    _keep(loaded, file, known)
    return known


def common_ends(loaded: Loaded) -> Places:
    """Return where the streams of a pipeline end now; empty if no node answers."""
    found: Places = {}
    for source in loaded.model.sources.values():
        if isinstance(source, StreamSource):
            patience_s = min(ENDS_PATIENCE_S, source.patience / 1000)
            try:
                found.update(_ask(loaded, source.names, patience_s, None))
            except StreamProblem:
                return {}
    return found


def _moving(loaded: Loaded, view: str) -> dict[str, str]:
    """Return the sources of a view that begin at `latest` or a time, with that start."""
    found = {}
    for name in loaded.graph.sources(view):
        source = loaded.model.sources[name]
        if isinstance(source, StreamSource) and isinstance(source.start, str) and source.start != EARLIEST:
            found[name] = source.start
    return found


def _kept(loaded: Loaded, file: Path, wanted: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Places]]:
    """Return the kept positions of the current queries and sources whose start in the file is unchanged."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        found = {}
    except ValueError:
        found = None
    try:
        return {
            name: {
                source: {unmask(loaded, stream): from_json(at) for stream, at in found[name][source]["streams"].items()}
                for source, start in sources.items()
                if found.get(name, {}).get(source, {}).get("start") == loaded.masked(start)
            }
            for name, sources in wanted.items()
        }
    except (AttributeError, KeyError):
        text = f"{file} is damaged: it has the positions of queries that begin at 'latest' or at a time. Remove it"
        raise PipelineProblem(text) from None


def _keep(loaded: Loaded, file: Path, known: Mapping[str, Mapping[str, Places]]) -> None:
    written: dict[str, dict[str, Any]] = {}
    for name, sources in known.items():
        written[name] = {}
        for source, places in sources.items():
            made = loaded.model.sources[source]
            assert isinstance(made, StreamSource)
            streams = {stream: to_json(at) for stream, at in places.items()}
            written[name][source] = {"start": loaded.masked(str(made.start)), "streams": mask(loaded, streams)}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, written)


def _place_now(loaded: Loaded, source: str) -> Places:
    found = loaded.model.sources[source]
    assert isinstance(found, StreamSource)
    assert isinstance(found.start, str)
    return _ask(loaded, found.names, found.patience / 1000, None if found.start == LATEST else parse_time(found.start))


def _ask(loaded: Loaded, streams: list[str], patience_s: float, time_us: int | None) -> Places:
    """Return where streams end now, or their first record at or after a time."""
    assert loaded.model.cluster is not None
    client = StreamClient(loaded.model.cluster.url, loaded.token, patience_s)
    try:
        if time_us is not None:
            return {stream: client.offsets(stream, time_us) for stream in streams}
        return {stream: {part.partition: part.next for part in client.describe(stream).ranges} for stream in streams}
    finally:
        client.close()


def _places(loaded: Loaded, sink: str, source: str, known: Mapping[str, Mapping[str, Places]]) -> Places:
    """Return the position of a sink, or where it begins if that is uncertain: earlier, so that nothing is skipped."""
    checkpoint = checkpoint_of(loaded.state, sink)
    found = position(checkpoint, streams_kept(loaded, checkpoint)) if begun(checkpoint) else None
    return known.get(sink, {}).get(source, {}) if found is None else found


def _least(now: Offsets, stream: str, places: list[Places]) -> Offsets:
    others = [place.get(stream, {}) for place in places]
    return {partition: min([at, *[other.get(partition, at) for other in others]]) for partition, at in now.items()}
