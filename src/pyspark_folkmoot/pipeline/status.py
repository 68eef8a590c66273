"""The progress of a pipeline, in one file of its state folder: the driver writes it, and it is read without Spark.

Rows are counted once per batch, also across restarts: a batch number is counted once. Batches that a killed driver
could not count are marked, because Spark reports a batch only after its end.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark_folkmoot.pipeline.checkpoint import last_commit
from pyspark_folkmoot.pipeline.fingerprint import write_json
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.lock import StateLock
from pyspark_folkmoot.pipeline.part import ENTRIES, OBSERVED
from pyspark_folkmoot.pipeline.secret import mask, unmask

__all__ = ["STARTING", "StatusFile", "begin_anew", "read_status", "starting", "status_file"]

STARTING: Final = "starting"
"""The state of a run that holds the lock, and whose queries have not all started."""

SAVE_S: Final = 1.0

EMPTY: Final = {"batch": None, "rows": 0, "rows_per_second": 0.0}
"""The figures of a query before its first batch."""


def status_file(state: Path) -> Path:
    """Return the status file of a state folder."""
    return state / "status.json"


def read_status(state: Path) -> dict[str, Any] | None:
    """Return the status, None if the pipeline has never run."""
    try:
        found: dict[str, Any] = json.loads(status_file(state).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found


@contextmanager
def starting(loaded: Loaded) -> Iterator[StateLock]:
    """Hold the state folder for a run, and record in its status that it is starting, or why it failed to start.

    Used before the queries exist, because a Spark session takes long to start. Raises PipelineProblem naming the
    holder.
    """
    with StateLock(loaded.state, "folkmoot pipeline run", loaded.model.name) as lock:
        StatusFile(loaded).state(STARTING)
        try:
            yield lock
        except Exception as error:
            found = read_status(loaded.state)
            if found is not None and found["run"]["state"] == STARTING:
                StatusFile(loaded).state("failed", f"it did not start: {loaded.masked(str(error))}")
            raise


class StatusFile:
    """The status of a run. `progress` may be called from any thread."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.scans: dict[str, list[int]] = {}
        """By query, how often it scans each of its sources: Spark counts a message as often."""
        self._lock = threading.Lock()
        self._saved_s = 0.0
        loaded.state.mkdir(parents=True, exist_ok=True)
        before = read_status(loaded.state) or {}
        for query in before.get("queries", {}).values():
            if "ends" in query:
                query["ends"] = {unmask(loaded, stream): read for stream, read in query["ends"].items()}
        self.found: dict[str, Any] = {
            "pipeline": loaded.model.name,
            "run": {"state": STARTING, "host": socket.gethostname(), "pid": os.getpid(), "since": _now()},
            "queries": before.get("queries", {}),
            "expectations": before.get("expectations", {}),
            "views": before.get("views", {}),
        }

    def planned(
        self, names: dict[str, tuple[str, list[str]]], fresh: set[str], checkpoints: dict[str, Path] | None = None
    ) -> None:
        """Record the queries, with their views and streams; those in `fresh` begin a new checkpoint.

        checkpoints: the folders of the others: a killed driver may have completed batches without counting them.
        """
        with self._lock:
            known = self.found["queries"]
            for name in [name for name in known if name not in names]:
                del known[name]
            for name, (view, streams) in names.items():
                if name in fresh:
                    _forget(self.found, name)
                query = known.setdefault(name, {**EMPTY, "ends": {}} if streams else {})
                query.update(view=view, streams=streams, error=None)
                if streams and checkpoints is not None and name in checkpoints:
                    _miss(query, last_commit(checkpoints[name]))

    def state(self, text: str, error: str | None = None) -> None:
        """Record the state of the run: starting, running, stopping, stopped, finished, failed."""
        with self._lock:
            self.found["run"].update(state=text, error=error)
            if text in ("stopped", "finished", "failed"):
                self.found["run"]["until"] = _now()
        self.save()

    def failed(self, name: str, error: str) -> None:
        """Record why a query failed."""
        with self._lock:
            self.found["queries"].setdefault(name, {})["error"] = self.loaded.masked(error)

    def static(self, name: str, version: int) -> None:
        """Record that the table of a view of tables alone was rebuilt."""
        with self._lock:
            self.found["queries"].setdefault(name, {}).update(version=version, at=_now(), error=None)

    def progress(self, name: str, found: dict[str, Any]) -> None:
        """Record Spark's report about a batch; `found` is its JSON."""
        with self._lock:
            query = self.found["queries"].get(name)
            if query is None:
                return
            ends = [
                json.loads(source["endOffset"]) if isinstance(source["endOffset"], str) else source["endOffset"]
                for source in found.get("sources", [])
            ]
            for stream, end in zip(query["streams"], ends, strict=False):
                if isinstance(end, dict):
                    query["ends"][stream] = {part: at for part, at in end.items() if part.isdigit()}
            query["at"] = found.get("timestamp")
            if found.get("eventTime", {}).get("watermark"):
                query["watermark"] = found["eventTime"]["watermark"]
            batch = int(found["batchId"])
            scanned = int(found.get("numInputRows", 0))
            rows = _messages(found, self.scans.get(name, []))
            per_second = float(found.get("processedRowsPerSecond") or 0.0)
            query["rows_per_second"] = round(per_second * rows / scanned if scanned else per_second, 1)
            if query["batch"] is not None and batch <= query["batch"]:
                return
            query["batch"] = batch
            query["rows"] += rows
            late = sum(int(part.get("numRowsDroppedByWatermark", 0)) for part in found.get("stateOperators", []))
            query["late"] = query.get("late", 0) + late
            query["batch_ms"] = found.get("durationMs", {}).get("triggerExecution")
            self._observed(name, found.get("observedMetrics", {}))
        self.save(lazily=True)

    def _observed(self, query: str, metrics: dict[str, dict[str, Any]]) -> None:
        for key, counts in metrics.items():
            if key.startswith(OBSERVED):
                self._expected(query, key.removeprefix(OBSERVED), counts)
            elif key.startswith(ENTRIES):
                self._decoded(query, key.removeprefix(ENTRIES), counts)

    def _expected(self, query: str, view: str, counts: dict[str, Any]) -> None:
        for number, expectation in enumerate(self.loaded.graph.views[view].expectations):
            count = self.found["expectations"].setdefault(f"{view}.{expectation.name}", {"rows": 0, "broken": 0})
            count.update(query=query, check=self.loaded.masked(expectation.check), otherwise=expectation.otherwise)
            count["rows"] += counts.get("rows") or 0
            count["broken"] += counts.get(f"broken_{number}") or 0

    def _decoded(self, query: str, source: str, counts: dict[str, Any]) -> None:
        entries = getattr(self.loaded.model.sources[source], "decode", [])
        for number, entry in enumerate(entries):
            count = self.found["views"].setdefault(entry.view, {"messages": 0, "with_new_fields": 0})
            count["query"] = query
            count["messages"] += counts.get(f"taken_{number}") or 0
            count["with_new_fields"] += counts.get(f"new_{number}") or 0
            if counts.get(f"field_{number}"):
                count["new_field"] = counts[f"field_{number}"]

    def _queries(self) -> dict[str, Any]:
        """Return the queries as they are written: names of streams may come from the environment."""
        written = {}
        for name, query in self.found["queries"].items():
            hidden = {key: mask(self.loaded, query[key]) for key in ("streams", "ends") if key in query}
            written[name] = {**query, **hidden}
        return written

    def save(self, lazily: bool = False) -> None:
        """Write the file; if `lazily`, at most once a second."""
        with self._lock:
            now = time.monotonic()
            if lazily and now - self._saved_s < SAVE_S:
                return
            self._saved_s = now
            self.found["at"] = _now()
            try:
                write_json(status_file(self.loaded.state), {**self.found, "queries": self._queries()})
            except OSError:
                return  # a full disk must not end a pipeline because of its status


def begin_anew(state: Path, name: str, checkpoint: Path) -> None:
    """Forget the figures of a query: its new checkpoint has batches that are not counted."""
    found = read_status(state)
    if found is None:
        return
    _forget(found, name)
    found["queries"][name] = {**EMPTY, "ends": {}, "batch": last_commit(checkpoint)}
    write_json(status_file(state), found)


def _messages(found: dict[str, Any], scans: list[int]) -> int:
    """Return the number of messages in a batch, each counted once however many views of a query read it."""
    sources = found.get("sources", [])
    if not scans or len(sources) != len(scans):
        return int(found.get("numInputRows", 0))
    counts = [int(source.get("numInputRows", 0)) for source in sources]
    return sum(-(-count // times) for count, times in zip(counts, scans, strict=True))


def _forget(found: dict[str, Any], name: str) -> None:
    found["queries"].pop(name, None)
    for counts in (found["expectations"], found["views"]):
        for key in [key for key, count in counts.items() if count.get("query") == name]:
            del counts[key]


def _miss(query: dict[str, Any], done: int | None) -> None:
    """Record the batches that a query completed without reporting them."""
    counted = -1 if query["batch"] is None else int(query["batch"])
    if done is not None and done > counted:
        query["uncounted"] = query.get("uncounted", 0) + done - counted
        query["batch"] = done


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
