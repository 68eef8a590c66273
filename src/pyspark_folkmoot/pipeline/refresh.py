"""Tables of views of tables alone: rebuilt completely when one of their inputs has changed.

Detects changes by versions of Delta tables, and by times and sizes of files. Never reads a stream.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from pyspark_folkmoot.pipeline.build import Builder, without_origin
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.model import DeltaSink, SinkSource, TableSource
from pyspark_folkmoot.pipeline.query import view_of
from pyspark_folkmoot.pipeline.sink import write_static
from pyspark_folkmoot.pipeline.status import StatusFile

__all__ = ["EVERY_MS", "Refresh", "inputs"]

EVERY_MS: Final = 30_000
"""How often the inputs of a table are checked."""


class Refresh:
    """A table computed from tables alone: built when the run begins, and again when an input has changed."""

    def __init__(self, loaded: Loaded, builder: Builder, status: StatusFile, sink: DeltaSink) -> None:
        self.loaded = loaded
        self.builder = builder
        self.status = status
        self.sink = sink
        self.view = view_of(loaded, sink)
        self._inputs: dict[str, Any] | None = None
        self._done_s: float | None = None

    def run(self, last: bool) -> None:
        """Rebuild it if an input has changed, and the check is due or the `last` one."""
        every_s = (self.sink.every if self.sink.every is not None else EVERY_MS) / 1000
        now = time.monotonic()
        if not last and self._done_s is not None and now - self._done_s < every_s:
            return
        self._done_s = now
        # Determined before reading: later changes are seen by the next check.
        found = inputs(self.loaded, self.view)
        if found is None or found == self._inputs:
            return
        frame = without_origin(self.builder.frames(self.view)[self.view])
        write_static(frame, self.loaded.path(self.sink.delta), self.sink.partition_by)
        self._inputs = found
        from deltalake import DeltaTable

        table = DeltaTable(self.loaded.path(self.sink.delta))
        self.status.static(self.sink.name, table.version())


def inputs(loaded: Loaded, view: str) -> dict[str, Any] | None:
    """Return the state of each table that `view` reads, by name: equal as long as none has changed.

    None if the table of a sink does not exist yet. Files at an address with :// cannot be inspected: they always count
    as changed.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    found: dict[str, Any] = {}
    for name in loaded.graph.needed(view):
        made = loaded.graph.views[name].made_by
        if isinstance(made, SinkSource):
            (sink,) = [other for other in loaded.model.sinks if other.name == made.sink]
            assert isinstance(sink, DeltaSink)
            try:
                found[name] = DeltaTable(loaded.path(sink.delta)).version()
            except TableNotFoundError:
                return None
        elif isinstance(made, TableSource):
            path = loaded.path(made.table)
            found[name] = DeltaTable(path).version() if made.format == "delta" else _files(path)
    return found


def _files(path: str) -> Any:
    """Return the files of a table with their times and sizes; a new value each time if they are unknown."""
    if "://" in path:
        return object()
    root = Path(path)
    files = [root] if root.is_file() else sorted(found for found in root.rglob("*") if found.is_file())
    found = []
    for file in files:
        try:
            about = file.stat()
        except FileNotFoundError:
            continue  # removed since it was listed: the next check sees the difference
        found.append((str(file.relative_to(root)), about.st_mtime_ns, about.st_size))
    return found
