"""Runs a pipeline: starts its queries, watches them, and ends them together when their batches are complete."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final

from pyspark_folkmoot.pipeline.advice import advice, core_text
from pyspark_folkmoot.pipeline.analyse import Analysis, analyse, known_schemas, quiet_spark
from pyspark_folkmoot.pipeline.build import Builder
from pyspark_folkmoot.pipeline.fault import PipelineProblem
from pyspark_folkmoot.pipeline.listener import Listener
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.lock import StateLock
from pyspark_folkmoot.pipeline.match import check_tables, keep_quarantine, rows_before
from pyspark_folkmoot.pipeline.model import DeltaSink, MqttSink
from pyspark_folkmoot.pipeline.place import QUARANTINE
from pyspark_folkmoot.pipeline.quarantine import COLUMNS as QUARANTINE_COLUMNS
from pyspark_folkmoot.pipeline.query import Planned, beside, check_all, plan_queries, query_views, static_sinks
from pyspark_folkmoot.pipeline.reach import check_streams
from pyspark_folkmoot.pipeline.refresh import Refresh
from pyspark_folkmoot.pipeline.retry import Retry
from pyspark_folkmoot.pipeline.rule import check_rules, keep_rules, rules_of
from pyspark_folkmoot.pipeline.sink import Say
from pyspark_folkmoot.pipeline.stage import Stages
from pyspark_folkmoot.pipeline.start import begins, common_ends
from pyspark_folkmoot.pipeline.status import StatusFile, starting
from pyspark_folkmoot.pipeline.upkeep import COMPACT_MS, keep_up
from pyspark_folkmoot.pipeline.wait import first_batch, initialised, java_ended, settled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Engine", "run_pipeline"]

POLL_S: Final = 0.25
BORDER_S: Final = 60.0
"""How long a query may take to complete its batch before it is interrupted; an interrupted batch is repeated."""

LOOK_S: Final = 5.0
STILL_S: Final = 600.0
"""How long a query may be in one batch before this is reported. It is not ended: only the user knows how long a batch
may take, and an interrupted batch is repeated from its beginning."""

NO_WORKER: Final = "Python worker failed to connect back"


def run_pipeline(
    spark: SparkSession,
    loaded: Loaded,
    say: Say,
    stop: threading.Event,
    lock: StateLock | None = None,
    stages: Stages | None = None,
) -> int:
    """Run until all is done (`trigger: once`), `stop` is set, or a query fails; return the exit status: 0, or 1.

    lock: that of the state folder if the caller holds it, as `starting` does before there is a session. stages: those
    of the start so far; with them, `say` is told how long the start took. Raises Faults and PipelineProblem when the
    pipeline cannot start.
    """
    from pyspark_folkmoot.pipeline.backfill import finish_swaps

    with nullcontext() if lock is not None else starting(loaded):
        finish_swaps(loaded)
        check_streams(loaded)
        schemas = known_schemas(loaded, pin=True)
        analysis = analyse(spark, loaded, schemas)
        if stages is not None:
            stages.end("analysis")
        engine = Engine(spark, loaded, Builder(spark, loaded, schemas), analysis, say, stages)
        return engine.run(stop)


class Engine:
    """The queries of one run."""

    def __init__(
        self,
        spark: SparkSession,
        loaded: Loaded,
        builder: Builder,
        analysis: Analysis,
        say: Say,
        stages: Stages | None = None,
    ) -> None:
        self.spark = spark
        self.loaded = loaded
        self.builder = builder
        self._say = say
        self._stages = stages
        self.status = StatusFile(loaded)
        views = query_views(loaded)
        starts = begins(loaded, views, beside(loaded, views))
        ends = common_ends(loaded) if self._once else {}
        with quiet_spark():
            self.planned = plan_queries(loaded, builder, analysis, self.say, starts, ends)
        check_all(self.planned)
        check_tables(loaded)  # after the fingerprints have shown that the checkpoints belong to these folders
        self._rules = rules_of(loaded)
        check_rules(loaded, self._rules)
        self.running: dict[str, StreamingQuery] = {}
        self._again: dict[str, Retry] = {}
        self._moved_s: dict[str, float] = {}
        self._looked_s = 0.0
        self.static = [Refresh(loaded, builder, self.status, sink) for sink in static_sinks(loaded)]

    def say(self, text: str) -> None:
        """Print a line for the user, without secrets."""
        self._say(self.loaded.masked(text))

    def run(self, stop: threading.Event) -> int:
        """Start, watch and end the queries."""
        self._make_quarantine()
        keep_quarantine(self.loaded)
        keep_rules(self.loaded, self._rules)
        fresh = {planned.name for planned in self.planned if not (planned.checkpoint / "metadata").exists()}
        names = {planned.name: (planned.view, [name for name, _ in planned.sources]) for planned in self.planned}
        names.update({refresh.sink.name: (refresh.view, []) for refresh in self.static})
        self.status.planned(names, fresh, {planned.name: planned.checkpoint for planned in self.planned})
        self.status.scans = {planned.name: [scans for _, scans in planned.sources] for planned in self.planned}
        listener = Listener(self._progress)
        self.spark.streams.addListener(listener)
        failure: tuple[str, str] | None = None
        try:
            failure = self._start(stop) or self._watch(stop)
            self._end(failure is not None or stop.is_set())
            if failure is None:
                failure = self._failed(again=False) or self._refresh(last=True) or self._upkeep()
        finally:
            # Events arrive after the end of their queries; what is not counted now is never counted.
            settled(self.spark, listener)
        if failure is not None and not (stop.is_set() and java_ended(self.spark)):
            return self._tell_failure(*failure)
        if failure is not None:
            self.say("Spark's Java process was ended too: the next start repeats the interrupted batches")
        done = "stopped" if stop.is_set() else "finished"
        self.status.state(done)
        self.say(f"{done}: {self._sum()}")
        return 0

    def _start(self, stop: threading.Event) -> tuple[str, str] | None:
        if self._stages is not None:
            self._stages.end("plans")
        # Queries that publish come first, and do a batch alone: subscribers wait for them, and the start of the others
        # would compete for the processor.
        for planned in sorted(self.planned, key=lambda planned: not isinstance(planned.sink, MqttSink)):
            if stop.is_set():
                return None
            known = (planned.checkpoint / "metadata").exists()
            try:
                before = rows_before(self.loaded, planned.sink, planned.checkpoint)
                with quiet_spark():
                    self.running[planned.name] = planned.start()
                initialised(self.running[planned.name])
                if isinstance(planned.sink, MqttSink):
                    first_batch(self.running[planned.name], stop)
            except Exception as error:  # noqa: BLE001 - Spark's refusals are told like failures
                return planned.name, str(error)
            if before:
                text = f"begins anew: {planned.name}, whose table has {before:,} rows already: what it reads again"
                self.say(
                    f"{text} will be duplicated. To avoid this, stop the pipeline and use `folkmoot pipeline backfill`"
                )
            else:
                self.say(f"{'goes on' if known else 'begins'}: {planned.name}")
        self.status.state("running")
        if self._stages is not None:
            self._stages.end("queries")
            self.say(self._stages.text())
        self.say("running")
        return None

    def _watch(self, stop: threading.Event) -> tuple[str, str] | None:
        """Wait until there is nothing left to do; return the failed query and its error, if any."""
        while not stop.wait(POLL_S):
            failed = self._failed()
            if failed is None and not self._unfinished():
                # A query may have failed, or been started again, since the first look.
                failed = self._failed()
                if failed is None and not self._unfinished():
                    return None
            if failed is None and not self._once:
                failed = self._refresh() or self._upkeep()
            if failed is not None:
                return failed
            self._still()
            self.status.save(lazily=True)
        return None

    @property
    def _once(self) -> bool:
        return self.loaded.model.trigger == "once"

    def _unfinished(self) -> bool:
        """Return whether there is something to wait for; inputs of views of tables alone may always change again."""
        return self._active() or bool(self._again) or (not self.running and bool(self.static) and not self._once)

    def _active(self) -> bool:
        try:
            return any(query.isActive for query in self.running.values())
        except Exception:  # noqa: BLE001 - the JVM is gone; `_failed` says so
            return False

    def _failed(self, again: bool = True) -> tuple[str, str] | None:
        """Return a failed query and its error; if `again`, start a query again whose start has failed."""
        for planned in self.planned:
            query = self.running.get(planned.name)
            if query is None:
                continue
            try:
                error = query.exception() if not query.isActive else None
            except Exception as gone:  # noqa: BLE001 - the JVM is gone, and with it the query
                return planned.name, f"Spark's Java process has ended: {gone}"
            if error is None:
                if not query.isActive:
                    self._again.pop(planned.name, None)
                continue
            if not again or NO_WORKER not in str(error):
                return planned.name, str(error)
            refused = self._start_again(planned, str(error))
            if refused is not None:
                return planned.name, refused
        return None

    def _start_again(self, planned: Planned, error: str) -> str | None:
        """Start a query again that has not begun a batch, when it is due; return why it has failed for good."""
        # The machine is busy: Spark gives a new Python process ten seconds.
        now = time.monotonic()
        retry = self._again.get(planned.name)
        if retry is None or retry.past(now):
            retry = self._again[planned.name] = Retry(now)
        if retry.over(now):
            return error
        if retry.due(now):
            self.say(f"starts again: {planned.name}, whose Python process did not start in time")
            try:
                self.running[planned.name] = planned.start()
                initialised(self.running[planned.name])
            except Exception as refused:  # noqa: BLE001 - Spark's refusals are told like failures
                return str(refused)
            retry.started(time.monotonic())
        return None

    def _progress(self, found: dict[str, Any]) -> None:
        name = str(found.get("name") or "").removeprefix(f"{self.loaded.model.name}.")
        self.well(name)
        self.status.progress(name, found)

    def well(self, name: str) -> None:
        """Note that a query has completed a batch: its next failure counts from zero."""
        self._again.pop(name, None)
        self._moved_s[name] = time.monotonic()

    def _still(self) -> None:
        """Report queries that have been in one batch for long."""
        now = time.monotonic()
        if now - self._looked_s < LOOK_S:
            return
        self._looked_s = now
        with suppress(Exception):  # the JVM is gone; `_failed` says so
            for name, query in self.running.items():
                since_s = now - self._moved_s.setdefault(name, now)
                if not query.isActive or not query.status["isTriggerActive"]:
                    self._moved_s[name] = now
                elif since_s >= STILL_S:
                    self._moved_s[name] = now
                    self.say(f"{name} is still in batch {_batch(query) + 1} after {since_s / 60:.0f} minutes")

    def _end(self, border: bool) -> None:
        """End the queries, each when its batch is done."""
        if border and self._active():
            self.status.state("stopping")
            self.say("stopping when the current batches are complete")
        until = time.monotonic() + BORDER_S
        try:
            batches = {name: _batch(query) for name, query in self.running.items()}
            waiting = {name: query for name, query in self.running.items() if query.isActive}
            while waiting and time.monotonic() < until:
                for name, query in list(waiting.items()):
                    if not query.isActive or not query.status["isTriggerActive"] or _batch(query) != batches[name]:
                        del waiting[name]
                        self._stop(name, query)
                time.sleep(0.02)
            for name, query in waiting.items():
                self._stop(name, query)
        except Exception as error:  # noqa: BLE001 - a JVM that is gone has no queries to end
            self.say(f"Spark did not end its queries: {core_text(str(error))}")

    def _stop(self, name: str, query: StreamingQuery) -> None:
        try:
            query.stop()
        except Exception as error:  # noqa: BLE001 - the others must be ended too
            # Raised after the session's stopTimeout: the end of the session ends its tasks, and the batch is repeated.
            self.say(f"Spark did not end {name}: {core_text(str(error))}")

    def _refresh(self, last: bool = False) -> tuple[str, str] | None:
        """Refresh tables of views of tables alone; return the one that failed, and its error."""
        for refresh in self.static if last or not self._once else []:
            try:
                refresh.run(last)
            except Exception as error:  # noqa: BLE001 - told like the failure of a query
                return refresh.sink.name, str(error)
        return None

    def _upkeep(self) -> tuple[str, str] | None:
        """Maintain the tables; return a table whose note cannot even be written (a full disk), and the error."""
        tables = [
            (sink.name, self.loaded.path(sink.delta), sink.compact, sink.vacuum)
            for sink in self.loaded.model.sinks
            if isinstance(sink, DeltaSink) and (sink.mode == "append" or sink.name not in self.running)
        ]
        for name, table, compact_ms, vacuum_ms in [*tables, (QUARANTINE, self.loaded.quarantine, COMPACT_MS, None)]:
            try:
                done = keep_up(name, table, compact_ms, vacuum_ms)
            except OSError as error:
                return name, f"upkeep: {error}"
            if done:
                self.say(done)
        return None

    def _make_quarantine(self) -> None:
        """Create the table before several queries write into it: otherwise they would all try to create it."""
        if not any(planned.sink is None for planned in self.planned):
            return
        from pyspark.sql.types import StructType

        from pyspark_folkmoot.delta import DeltaPlan
        from pyspark_folkmoot.delta_write import existing_table

        schema = StructType.fromDDL(QUARANTINE_COLUMNS)
        assert isinstance(schema, StructType)
        try:
            plan = DeltaPlan({"path": self.loaded.quarantine})
            plan.check_write(schema)
            existing_table(plan, plan.arrow_schema(schema))
        except Exception as error:  # noqa: BLE001 - any error of the folder, the disk or another program's table
            text = f"the quarantine {self.loaded.quarantine} cannot be written: {core_text(str(error))}"
            raise PipelineProblem(f"{text}\n{advice(str(error))}") from None

    def _tell_failure(self, name: str, error: str) -> int:
        core = core_text(error)
        query = self.status.found["queries"].get(name, {})
        where = "" if "batch" not in query else " in its first batch"
        if query.get("batch") is not None:
            where = f" after batch {query['batch']}"
        kind = "query" if name.startswith(QUARANTINE) else "sink"
        self.status.failed(name, core)
        text = f"{kind} '{name}' failed{where}: {core}\n{advice(error)}."
        self.status.state("failed", self.loaded.masked(text))
        self.say(text)
        log = self.loaded.state / "error.log"
        try:
            log.write_text(self.loaded.masked(error) + "\n", encoding="utf-8")
        except OSError as full:
            self.say(f"Spark's full error could not be written to {log}: {full.strerror or full}")
        else:
            self.say(f"Spark's full error is in {log}")
        return 1

    def _sum(self) -> str:
        found = self.status.found["queries"]
        return ", ".join(
            f"{name} {query.get('rows', 0):,} messages" for name, query in found.items() if "ends" in query
        )


def _batch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])
