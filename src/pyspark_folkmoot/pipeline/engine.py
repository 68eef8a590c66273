"""Running a pipeline: its queries started together, watched, and ended together at the borders of batches."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pyspark_folkmoot.pipeline.advice import advice, core_text
from pyspark_folkmoot.pipeline.analyse import Analysis, analyse, known_schemas, quiet_spark
from pyspark_folkmoot.pipeline.build import Builder, without_origin
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.lock import StateLock
from pyspark_folkmoot.pipeline.model import DeltaSink, SinkSource
from pyspark_folkmoot.pipeline.quarantine import COLUMNS as QUARANTINE_COLUMNS
from pyspark_folkmoot.pipeline.query import plan_queries, static_sinks, view_of
from pyspark_folkmoot.pipeline.reach import check_streams
from pyspark_folkmoot.pipeline.sink import write_static
from pyspark_folkmoot.pipeline.status import StatusFile
from pyspark_folkmoot.pipeline.upkeep import COMPACT_MS, keep_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Engine", "run_pipeline"]

POLL_S: Final = 0.25
BORDER_S: Final = 60.0
"""How long a query may take to end its batch before it is stopped within it; that costs a repetition, not a row."""

NO_WORKER: Final = "Python worker failed to connect back"
STARTS_MAX: Final = 5
INITIAL_S: Final = 30.0
INITIAL: Final = "Initializing"

EVERY_MS: Final = 30_000
"""How often a table made of tables is made anew."""

Say = Callable[[str], None]


def run_pipeline(spark: SparkSession, loaded: Loaded, say: Say, stop: threading.Event) -> int:
    """Run until all is done (`trigger: once`), `stop` is set, or a query fails; return the exit status: 0, or 1.

    Raises Faults and PipelineProblem when it cannot start.
    """
    from pyspark_folkmoot.pipeline.backfill import finish_swaps

    with StateLock(loaded.state, "folkmoot pipeline run", loaded.model.name):
        finish_swaps(loaded)
        check_streams(loaded)
        schemas = known_schemas(loaded, pin=True)
        analysis = analyse(spark, loaded, schemas)
        engine = Engine(spark, loaded, Builder(spark, loaded, schemas), analysis, say)
        return engine.run(stop)


class Engine:
    """The queries of one run."""

    def __init__(self, spark: SparkSession, loaded: Loaded, builder: Builder, analysis: Analysis, say: Say) -> None:
        self.spark = spark
        self.loaded = loaded
        self.builder = builder
        self._say = say
        self.status = StatusFile(loaded)
        with quiet_spark():
            self.planned = plan_queries(loaded, builder, analysis)
        for planned in self.planned:
            planned.check()
        self.running: dict[str, StreamingQuery] = {}
        self._again: dict[str, int] = {}
        self.static = [Refresh(self, sink) for sink in static_sinks(loaded)]

    def say(self, text: str) -> None:
        """Tell the user something, without secrets."""
        self._say(self.loaded.masked(text))

    def run(self, stop: threading.Event) -> int:
        """Start, watch and end the queries."""
        self._make_quarantine()
        fresh = {planned.name for planned in self.planned if not (planned.checkpoint / "metadata").exists()}
        names = {planned.name: (planned.view, planned.streams) for planned in self.planned}
        names.update({refresh.sink.name: (refresh.view, []) for refresh in self.static})
        self.status.planned(names, fresh, {planned.name: planned.checkpoint for planned in self.planned})
        listener = _listener(self)
        self.spark.streams.addListener(listener)
        failure: tuple[str, str] | None = None
        try:
            failure = self._start(stop) or self._watch(stop)
            self._end(failure is not None or stop.is_set())
            if failure is None:
                failure = self._failed(again=False) or self._refresh(last=True)
        finally:
            # Events come after the queries that they are about; what is not counted now is not counted at all.
            _settled(self.spark, listener)
        if failure is not None:
            return self._tell_failure(*failure)
        self._upkeep()
        done = "stopped" if stop.is_set() else "finished"
        self.status.state(done)
        self.say(f"{done}: {self._sum()}")
        return 0

    def _start(self, stop: threading.Event) -> tuple[str, str] | None:
        for planned in self.planned:
            if stop.is_set():
                return None
            known = (planned.checkpoint / "metadata").exists()
            try:
                with quiet_spark():
                    self.running[planned.name] = planned.start()
                _initialised(self.running[planned.name])
            except Exception as error:  # noqa: BLE001 - Spark's refusals are told like failures
                return planned.name, str(error)
            self.say(f"{'goes on' if known else 'begins'}: {planned.name}")
        self.status.state("running")
        self.say("running")
        return None

    def _watch(self, stop: threading.Event) -> tuple[str, str] | None:
        """Wait until there is nothing left to do; return the query that failed, and its error."""
        while not stop.wait(POLL_S):
            failed = self._failed()
            if failed is not None:
                return failed
            if not self._active():
                # One may have failed since it was asked; it may have been started again.
                failed = self._failed()
                if failed is not None or not self._active():
                    return failed
            failed = self._refresh()
            if failed is not None:
                return failed
            if not self._once:
                self._upkeep()
            self.status.save(lazily=True)
        return None

    @property
    def _once(self) -> bool:
        return self.loaded.model.trigger == "once"

    def _active(self) -> bool:
        try:
            return any(query.isActive for query in self.running.values())
        except Exception:  # noqa: BLE001 - the JVM is gone; `_failed` says so
            return False

    def _failed(self, again: bool = True) -> tuple[str, str] | None:
        """Return a query that has failed and its error; start it anew, if `again`, where only its start has failed."""
        for planned in self.planned:
            query = self.running.get(planned.name)
            if query is None:
                continue
            try:
                error = query.exception() if not query.isActive else None
            except Exception as gone:  # noqa: BLE001 - the JVM is gone, and with it the query
                return planned.name, f"Spark's Java process has ended: {gone}"
            if error is None:
                continue
            if again and NO_WORKER in str(error) and self._again.setdefault(planned.name, STARTS_MAX) > 0:
                # A machine that is busy: Spark gives a new Python process ten seconds, and nothing was begun yet.
                self._again[planned.name] -= 1
                self.say(f"starts again: {planned.name}, whose Python process did not come up in time")
                self.running[planned.name] = planned.start()
                return None
            return planned.name, str(error)
        return None

    def _end(self, border: bool) -> None:
        """End the queries, each when its batch is done."""
        if border and self._active():
            self.status.state("stopping")
            self.say("stopping at the borders of the batches")
        until = time.monotonic() + BORDER_S
        try:
            batches = {name: _batch(query) for name, query in self.running.items()}
            waiting = {name: query for name, query in self.running.items() if query.isActive}
            while waiting and time.monotonic() < until:
                for name, query in list(waiting.items()):
                    if not query.isActive or not query.status["isTriggerActive"] or _batch(query) != batches[name]:
                        query.stop()
                        del waiting[name]
                time.sleep(0.02)
            for query in waiting.values():
                query.stop()
        except Exception as error:  # noqa: BLE001 - a JVM that is gone has no queries to end
            self.say(f"Spark did not end its queries: {core_text(str(error))}")

    def _refresh(self, last: bool = False) -> tuple[str, str] | None:
        """Make tables anew that are made of tables; return the one that failed, and its error."""
        for refresh in self.static if last or not self._once else []:
            try:
                refresh.run(last)
            except Exception as error:  # noqa: BLE001 - told like the failure of a query
                return refresh.sink.name, str(error)
        return None

    def _upkeep(self) -> None:
        for sink in self.loaded.model.sinks:
            if isinstance(sink, DeltaSink) and (sink.mode == "append" or sink.name not in self.running):
                self._told(keep_up(sink.name, self.loaded.path(sink.delta), sink.compact, sink.vacuum))
        self._told(keep_up("quarantine", self.loaded.quarantine, COMPACT_MS, None))

    def _told(self, text: str) -> None:
        if text:
            self.say(text)

    def _make_quarantine(self) -> None:
        """Make the table before several queries write into it: they would all try to make it."""
        if not any(planned.sink is None for planned in self.planned):
            return
        from pyspark.sql.types import StructType

        from pyspark_folkmoot.delta import DeltaPlan
        from pyspark_folkmoot.delta_write import existing_table

        plan = DeltaPlan({"path": self.loaded.quarantine})
        schema = StructType.fromDDL(QUARANTINE_COLUMNS)
        assert isinstance(schema, StructType)
        plan.check_write(schema)
        existing_table(plan, plan.arrow_schema(schema))

    def _tell_failure(self, name: str, error: str) -> int:
        core = core_text(error)
        batch = (self.status.found["queries"].get(name) or {}).get("batch")
        where = f"after batch {batch}" if batch is not None else "in its first batch"
        kind = "query" if name.startswith("quarantine-") else "sink"
        self.status.failed(name, core)
        text = f"{kind} '{name}' failed {where}: {core}\n{advice(error)}."
        self.status.state("failed", self.loaded.masked(text))
        self.say(text)
        log = self.loaded.state / "error.log"
        log.write_text(self.loaded.masked(error) + "\n", encoding="utf-8")
        self.say(f"all that Spark says of it is in {log}")
        return 1

    def _sum(self) -> str:
        found = self.status.found["queries"]
        return ", ".join(
            f"{name} {query.get('rows', 0):,} messages" for name, query in found.items() if "ends" in query
        )


class Refresh:
    """A table made of tables: made anew when one of them has changed."""

    def __init__(self, engine: Engine, sink: DeltaSink) -> None:
        self.engine = engine
        self.sink = sink
        self.view = view_of(engine.loaded, sink)
        self._versions: dict[str, int] = {}
        self._done_s = 0.0

    def run(self, last: bool) -> None:
        """Make it, if it is time or the `last` chance, and there is something new."""
        every_s = (self.sink.every if self.sink.every is not None else EVERY_MS) / 1000
        if not last and time.monotonic() - self._done_s < every_s:
            return
        self._done_s = time.monotonic()
        versions = self._inputs()
        if versions is None or versions == self._versions:
            return
        loaded = self.engine.loaded
        frame = without_origin(self.engine.builder.frames(self.view)[self.view])
        write_static(frame, loaded.path(self.sink.delta), self.sink.partition_by)
        self._versions = versions
        from deltalake import DeltaTable

        table = DeltaTable(loaded.path(self.sink.delta))
        self.engine.status.static(self.sink.name, table.version())

    def _inputs(self) -> dict[str, int] | None:
        """Return the versions of the tables of sinks that it reads; None when one of them is not there yet."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        loaded = self.engine.loaded
        found: dict[str, int] = {}
        for name in loaded.graph.needed(self.view):
            made = loaded.graph.views[name].made_by
            if isinstance(made, SinkSource):
                (sink,) = [other for other in loaded.model.sinks if other.name == made.sink]
                assert isinstance(sink, DeltaSink)
                try:
                    found[name] = DeltaTable(loaded.path(sink.delta)).version()
                except TableNotFoundError:
                    return None
        return found


def _initialised(query: StreamingQuery) -> None:
    """Wait until a query has its Python processes: many that start at once keep each other from starting in time."""
    until = time.monotonic() + INITIAL_S
    while query.isActive and time.monotonic() < until:
        if not str(query.status["message"]).startswith(INITIAL):
            return
        time.sleep(0.02)


def _batch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _listener(engine: Engine) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    prefix = f"{engine.loaded.model.name}."

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
            """Nothing to do: the engine has started it."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
            found = json.loads(event.progress.json)
            engine.status.progress(str(found.get("name") or "").removeprefix(prefix), found)

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
            """Nothing to do: the engine sees it."""

    return Listener()


def _settled(spark: SparkSession, listener: Any) -> None:
    """Wait until Spark has delivered the events of queries that have ended, and listen no more."""
    try:
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(10_000)  # noqa: SLF001 - there is no public way
        spark.streams.removeListener(listener)
    except Exception:  # noqa: BLE001 - without the JVM nothing comes any more
        return
