"""Where queries begin and, when they take what is there, where they all end: asked once, so that they agree.

A sink and the quarantine beside it are queries of their own. If each asked for the end of the stream at its own first
batch, what came between would be in neither.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from folkmoot.client.position import LATEST
from folkmoot.client.problem import StreamProblem
from folkmoot.client.streams import StreamClient
from pyspark_folkmoot.offset import Offsets, from_json, to_json
from pyspark_folkmoot.pipeline.checkpoint import begun, checkpoint_of, position
from pyspark_folkmoot.pipeline.fault import PipelineProblem
from pyspark_folkmoot.pipeline.fingerprint import streams_kept, write_json
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.model import StreamSource
from pyspark_folkmoot.pipeline.secret import mask, unmask

__all__ = ["common_ends", "latest_starts"]

ENDS_PATIENCE_S: Final = 10.0
"""How long to ask where the streams end: nodes that are away for longer are told of by the queries."""

Places = dict[str, Offsets]


def latest_starts(loaded: Loaded, views: Mapping[str, str], sinks: Mapping[str, list[str]]) -> dict[str, Places]:
    """Return by query where it begins in the streams of which the file says `start: latest`.

    views: the view of each query. sinks: of each query of the quarantine, the sinks that it is beside. All that begin
    in this run begin at the same place, which is kept before any of them starts; one of the quarantine that is new
    begins where its sinks are. Raises StreamProblem when no node says where a stream ends.
    """
    file = loaded.state / "starts.json"
    kept = _kept(loaded, file)
    wanted = {name: _latest_streams(loaded, view) for name, view in views.items()}
    known = {name: kept.get(name, {}) for name, streams in wanted.items() if streams}
    fresh = [name for name in known if not begun(checkpoint_of(loaded.state, name))]
    missing = {stream for name in fresh for stream in wanted[name] if stream not in known[name]}
    if not missing:
        return known
    now = _ends(loaded, {stream: wait for name in fresh for stream, wait in wanted[name].items() if stream in missing})
    # The sinks first: those of the quarantine look where they begin.
    for name in sorted(fresh, key=lambda name: name in sinks):
        for stream in wanted[name]:
            if stream not in known[name]:
                beside = [_place(loaded, sink, stream, known) for sink in sinks.get(name, [])]
                known[name] = {**known[name], stream: _least(now[stream], beside)}
    file.parent.mkdir(parents=True, exist_ok=True)
    written = {
        name: mask(loaded, {stream: to_json(found) for stream, found in places.items()})
        for name, places in known.items()
    }
    write_json(file, written)
    return known


def common_ends(loaded: Loaded) -> Places:
    """Return where the streams of a pipeline end now; empty when the nodes do not say it."""
    wanted = {}
    for source in loaded.model.sources.values():
        if isinstance(source, StreamSource):
            wanted.update(dict.fromkeys(source.names, min(ENDS_PATIENCE_S, source.patience / 1000)))
    try:
        return _ends(loaded, wanted)
    except StreamProblem:
        return {}


def _kept(loaded: Loaded, file: Path) -> dict[str, Places]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {
            name: {unmask(loaded, stream): from_json(offsets) for stream, offsets in places.items()}
            for name, places in found.items()
        }
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError):
        text = f"{file} is damaged: it says where queries that begin with 'start: latest' begin. Remove it"
        raise PipelineProblem(text) from None


def _latest_streams(loaded: Loaded, view: str) -> dict[str, float]:
    """Return the streams of which a view is made that are read from their end on, with the patience in seconds."""
    found = {}
    for name in loaded.graph.sources(view):
        source = loaded.model.sources[name]
        if isinstance(source, StreamSource) and source.start == LATEST:
            found.update(dict.fromkeys(source.names, source.patience / 1000))
    return found


def _ends(loaded: Loaded, wanted: Mapping[str, float]) -> Places:
    found: Places = {}
    for stream, patience_s in wanted.items():
        assert loaded.model.cluster is not None
        client = StreamClient(loaded.model.cluster.url, loaded.token, patience_s)
        try:
            found[stream] = {part.partition: part.next for part in client.describe(stream).ranges}
        finally:
            client.close()
    return found


def _place(loaded: Loaded, sink: str, stream: str, known: Mapping[str, Places]) -> Offsets:
    """Return where a sink is, or where it begins if that is not sure: earlier, so that nothing is passed over."""
    checkpoint = checkpoint_of(loaded.state, sink)
    if begun(checkpoint):
        found = position(checkpoint, streams_kept(loaded, checkpoint)) or {}
        if stream in found:
            return found[stream]
    return known.get(sink, {}).get(stream, {})


def _least(now: Offsets, places: list[Offsets]) -> Offsets:
    return {partition: min([at, *[place.get(partition, at) for place in places]]) for partition, at in now.items()}
