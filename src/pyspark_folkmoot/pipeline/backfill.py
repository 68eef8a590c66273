"""Rebuilding a sink's table from the stream: a new table and a new checkpoint replace the old ones at the end.

It is exact because it computes everything as `run` does: the same query reads the stream from the chosen position into
a new folder, and the pipeline then resumes where the new checkpoint ends.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from folkmoot.client.position import parse_time
from pyspark_folkmoot.pipeline.advice import advice, core_text
from pyspark_folkmoot.pipeline.analyse import analyse, known_schemas
from pyspark_folkmoot.pipeline.build import Builder
from pyspark_folkmoot.pipeline.decode import messages_of
from pyspark_folkmoot.pipeline.fault import PipelineProblem, valid
from pyspark_folkmoot.pipeline.fingerprint import write_json
from pyspark_folkmoot.pipeline.loading import Loaded
from pyspark_folkmoot.pipeline.lock import StateLock
from pyspark_folkmoot.pipeline.model import AnySink, DeltaSink, StreamSource
from pyspark_folkmoot.pipeline.query import sink_query, view_of
from pyspark_folkmoot.pipeline.rule import check_rules, keep_rules, rules_of
from pyspark_folkmoot.pipeline.sink import Say
from pyspark_folkmoot.pipeline.status import begin_anew

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["backfill", "backfill_lock", "check_range", "finish_swaps", "sink_of"]

SWAPS: Final = "swaps"
LOOK_S: Final = 2


def backfill(
    spark: SparkSession,
    loaded: Loaded,
    name: str,
    start: str | None,
    end: str | None,
    say: Say,
    lock: StateLock | None = None,
) -> int:
    """Rebuild the table of sink `name` from `start` (as in a source; default: its own) to `end`; return 0.

    lock: that of the state folder if the caller holds it. Raises PipelineProblem if the result could not be exact, or
    the pipeline is running.
    """
    sink = sink_of(loaded, name)
    with nullcontext() if lock is not None else backfill_lock(loaded):
        finish_swaps(loaded)
        schemas = known_schemas(loaded, pin=True)
        analysis = analyse(spark, loaded, schemas)
        builder = Builder(spark, loaded, schemas, lambda source: _messages(spark, loaded, source, start, end))
        table = Path(loaded.path(sink.delta))
        fresh = table.with_name(table.name + ".backfill")
        checkpoint = loaded.state / "checkpoints" / f"{name}.backfill"
        for leftover in (fresh, checkpoint):
            shutil.rmtree(leftover, ignore_errors=True)
        # From now on the current rules apply: to this sink's past, and to the future of all queries.
        rules = rules_of(loaded)
        check_rules(loaded, rules)
        keep_rules(loaded, rules)
        planned = sink_query(loaded, builder, analysis, sink, checkpoint, str(fresh), say)
        say(f"reading into {fresh}")
        try:
            error = _ended(planned.start())
        except Exception as refused:  # noqa: BLE001 - Spark's refusals are told like failures
            error = str(refused)
        if error is not None:
            text = f"backfill of '{name}' failed: {core_text(error)}\n{advice(error)}. The table is unchanged"
            raise PipelineProblem(loaded.masked(text))
        if not (fresh / "_delta_log").is_dir():
            raise PipelineProblem(f"the stream has nothing for '{name}' there: the table is unchanged")
        old = _swap(loaded, name, table, fresh, checkpoint)
        say(
            f"the table {table} is new"
            + (f"; the old one is {old}: remove it when it is no longer needed" if old else "")
        )
    return 0


def backfill_lock(loaded: Loaded) -> StateLock:
    """Take the lock of the state folder and return it; raises PipelineProblem naming its holder."""
    return StateLock(loaded.state, "folkmoot pipeline backfill", loaded.model.name)


def check_range(start: str | None, end: str | None) -> None:
    """Refuse invalid positions; raises PipelineProblem."""
    for option, text in (("--from", start), ("--to", end)):
        if text is None or (option == "--from" and text == "earliest"):
            continue
        try:
            parse_time(text)
        except ValueError as error:
            raise PipelineProblem(f"{option}: {error}") from None


def _ended(query: StreamingQuery) -> str | None:
    """Wait for a query and return its error, None if it has none."""
    try:
        while not query.awaitTermination(LOOK_S):
            # A waiting call does not always notice that Java has ended: ask it something.
            if not query.isActive:
                break
        failed = query.exception()
    except Exception as error:  # noqa: BLE001 - the query's own error, or the JVM is gone
        return str(error)
    return None if failed is None else str(failed)


def sink_of(loaded: Loaded, name: str) -> DeltaSink:
    """Return the sink of this name; raises PipelineProblem if there is none or it has no backfill."""
    names = [sink.name for sink in loaded.model.sinks]
    found: AnySink | None = next((sink for sink in loaded.model.sinks if sink.name == name), None)
    if found is None:
        raise PipelineProblem(f"there is no sink '{name}'{valid(name, names, 'sinks')}")
    if not isinstance(found, DeltaSink):
        raise PipelineProblem(
            f"sink '{name}' has no Delta table: what others have received cannot be taken back. Use a sink with a new "
            "name, whose new checkpoint begins where the source says"
        )
    if not loaded.graph.streaming(view_of(loaded, found)):
        raise PipelineProblem(f"sink '{name}' has a view of tables alone: every run rebuilds it")
    return found


def _messages(
    spark: SparkSession, loaded: Loaded, source: StreamSource, start: str | None, end: str | None
) -> DataFrame:
    cluster = loaded.model.cluster
    assert cluster is not None
    if start is not None:
        source = source.model_copy(update={"start": start})
    return messages_of(spark, source, cluster.url, loaded.token, end)


def _swap(loaded: Loaded, name: str, table: Path, fresh: Path, checkpoint: Path) -> Path | None:
    """Replace the old table and checkpoint with the new ones; return the old table's new path."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    old = table.with_name(f"{table.name}.before-{stamp}")
    kept = checkpoint.with_name(name)
    steps = [
        [str(table), str(old)],
        [str(kept), str(kept.with_name(f"{name}.before-{stamp}"))],
        [f"{kept}.json", str(kept.with_name(f"{name}.before-{stamp}.json"))],
        [str(fresh), str(table)],
        [str(checkpoint), str(kept)],
        [f"{checkpoint}.json", f"{kept}.json"],
    ]
    # A folder that does not exist now must not be moved when this is repeated: the new one would be in its place.
    steps = [step for step in steps if Path(step[0]).exists()]
    plan = loaded.state / SWAPS / f"{name}.json"
    plan.parent.mkdir(parents=True, exist_ok=True)
    write_json(plan, steps)
    had = table.exists()
    finish_swaps(loaded)
    return old if had else None


def finish_swaps(loaded: Loaded) -> None:
    """Complete swaps that were begun: a process killed during one leaves its plan."""
    folder = loaded.state / SWAPS
    for plan in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        for origin, target in json.loads(plan.read_text(encoding="utf-8")):
            # The target of a completed step exists; each folder moves once, so order and existence determine what
            # remains.
            if Path(origin).exists() and not Path(target).exists():
                os.rename(origin, target)  # noqa: PTH104 - files and folders alike
        begin_anew(loaded.state, plan.stem, loaded.state / "checkpoints" / plan.stem)
        plan.unlink()
