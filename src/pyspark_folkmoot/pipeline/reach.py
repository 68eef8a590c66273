"""Checks with the nodes before a pipeline starts: whether its streams exist, and whether the token is valid."""

from __future__ import annotations

from typing import Final

from folkmoot.client.problem import NotAuthorised, StreamProblem
from folkmoot.client.streams import StreamClient
from pyspark_folkmoot.pipeline.document import Path_
from pyspark_folkmoot.pipeline.fault import Faults, valid
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.model import StreamSource

__all__ = ["check_streams"]

PATIENCE_S: Final = 2.0


def check_streams(loaded: Loaded) -> str:
    """Look up the streams of a pipeline; raises Faults. If no node answers, return why: nodes may start later."""
    document = loaded.document
    sources = {name: found for name, found in loaded.model.sources.items() if isinstance(found, StreamSource)}
    if not sources or loaded.model.cluster is None:
        return ""
    client = StreamClient(loaded.model.cluster.url, loaded.token, PATIENCE_S)
    try:
        known = {info.name: info.partitions for info in client.streams()}
    except NotAuthorised as problem:
        document.fault(("cluster", "token"), loaded.masked(str(problem)))
        raise Faults(str(document.file), document.faults) from None
    except StreamProblem as problem:
        return loaded.masked(str(problem))
    finally:
        client.close()
    for name, source in sources.items():
        path: Path_ = ("sources", name)
        for number, stream in enumerate(source.names):
            if stream not in known:
                at: Path_ = (*path, "stream") if source.streams is None else (*path, "streams", number)
                text = f"sources.{name}: the nodes have no stream '{stream}'{valid(stream, known, 'streams')}"
                document.fault(at, text)
            elif isinstance(source.start, dict) and sorted(source.start) != list(range(known[stream])):
                text = (
                    f"sources.{name}.start has offsets of the partitions {sorted(source.start)}: stream '{stream}' has"
                )
                document.fault((*path, "start"), f"{text} {list(range(known[stream]))}")
    if document.faults:
        raise Faults(str(document.file), document.faults)
    return ""
