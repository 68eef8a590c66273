"""A run without Spark: what it does when queries, disks and tables fail; upkeep, the lock, what is made anew."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql.types import StructType

from pyspark_folkmoot.delta import DeltaPlan
from pyspark_folkmoot.delta_write import existing_table, write_files
from pyspark_folkmoot.pipeline import sink as sinks
from pyspark_folkmoot.pipeline.backfill import _ended, finish_swaps
from pyspark_folkmoot.pipeline.engine import LOOK_S, NO_WORKER, STILL_S, Engine
from pyspark_folkmoot.pipeline.fault import PipelineProblem
from pyspark_folkmoot.pipeline.loading import Loaded, load_pipeline
from pyspark_folkmoot.pipeline.lock import StateLock, held
from pyspark_folkmoot.pipeline.model import DeltaSink
from pyspark_folkmoot.pipeline.refresh import Refresh, inputs
from pyspark_folkmoot.pipeline.report import report, report_text
from pyspark_folkmoot.pipeline.retry import PATIENCE_S
from pyspark_folkmoot.pipeline.status import StatusFile, read_status
from pyspark_folkmoot.pipeline.upkeep import NOTE, VACUUM_EVERY_MS, keep_up
from pyspark_folkmoot.pipeline.wait import settled
from tests.harness.pipeline import SMALL

TABLES = """\
name: tables
sources:
  rooms: {table: rooms.csv, format: csv, schema: "room STRING"}
  made: {sink: copy}
steps:
  - {name: copied, sql: SELECT room FROM rooms}
  - {name: both, sql: SELECT room FROM made JOIN rooms USING (room)}
sinks:
  - {name: copy, from: copied, delta: copy}
  - {name: pairs, from: both, delta: pairs}
"""


class Query:
    """A query as Spark shows it: it has failed with `error`, or its end fails with `stuck`."""

    def __init__(self, error: str = "", stuck: bool = False) -> None:
        self.error = error
        self.stuck = stuck
        self.isActive = not error
        self.status = {"isTriggerActive": False, "message": ""}
        self.lastProgress = None

    def exception(self) -> str | None:
        return self.error or None

    def stop(self) -> None:
        if self.stuck:
            raise TimeoutError("stopping the query took too long")
        self.isActive = False


def loaded_of(folder: Path, text: str = SMALL) -> Loaded:
    (folder / "rooms.csv").write_text("room\nhall\n", encoding="utf-8")
    (folder / "p.yaml").write_text(text, encoding="utf-8")
    return load_pipeline(folder / "p.yaml", {})


def engine_of(loaded: Loaded, **queries: Any) -> tuple[Engine, list[str]]:
    """An engine whose queries have been started; and what it says."""
    said: list[str] = []
    engine = Engine.__new__(Engine)
    engine.loaded = loaded
    engine._say = said.append
    engine.status = StatusFile(loaded)
    engine.planned = [SimpleNamespace(name=name, sink=object(), start=Query) for name in queries]  # type: ignore[misc]
    engine.running = dict(queries)
    engine._again = {}
    engine._moved_s = {}
    engine._looked_s = 0.0
    engine.static = []
    return engine, said


def table(path: Path, *files: int) -> str:
    for number in files:
        write_deltalake(str(path), pa.table({"n": [number]}), mode="append")
    return str(path)


def test_upkeep_writes_its_note_only_when_something_has_changed(tmp_path: Path) -> None:
    path = table(tmp_path / "t", 1, 2)
    note = tmp_path / "t" / NOTE
    keep_up("t", path, 1000, None, 1000.0)
    before = note.stat()
    for later in (1000.25, 1000.5):
        assert keep_up("t", path, 1000, None, later) == ""
    assert (note.stat().st_ino, note.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert keep_up("t", path, 1000, None, 1001.0) == "t: 2 files made 1"
    assert note.stat().st_ino != before.st_ino, "a new file in the place of the old one: never half of it"
    note.write_text("{", encoding="utf-8")
    assert keep_up("t", path, 1000, None, 1002.0) == "", "what cannot be read counts from now"
    assert json.loads(note.read_text(encoding="utf-8"))["compacted"] == 1_002_000
    assert not list((tmp_path / "t").glob(f".{NOTE}.*"))


def test_upkeep_leaves_out_partitions_that_deltalake_cannot_name(tmp_path: Path) -> None:
    """Values of any length are written; those whose folder deltalake cannot make are not compacted, all others are."""
    values = ["plain", "ü", "a/b c", "x" * 300, "ü" * 60, "ü" * 200, "😀" * 30, "a~b", None]
    refused = ["x" * 300, "ü" * 60, "ü" * 200, "😀" * 30, "a~b"]
    path = str(tmp_path / "t")
    plan = DeltaPlan({"path": path, "partitionBy": "day,dev"})
    schema = pa.schema([("dev", pa.string()), ("day", pa.string()), ("n", pa.int64())])

    def add(number: int) -> None:
        columns = [pa.array(values), pa.array(["d"] * len(values)), pa.array([number] * len(values))]
        files = write_files(plan, schema, [pa.record_batch(columns, schema=schema)])
        actions: list[AddAction | RemoveAction] = [AddAction(**file) for file in files]
        existing_table(plan, schema).create_write_transaction(
            actions, "append", Schema.from_arrow(schema), partition_by=plan.partition_by
        )

    for number in range(2):
        add(number)
    assert keep_up("t", path, 1000, 1, 1000.0) == ""
    compacted = len(values) - len(refused)
    assert keep_up("t", path, 1000, 1, 1001.0) == (
        f"t: {2 * compacted} files made {compacted}, {len(refused)} values of its partition columns cannot name a "
        "folder (too long, or with ~): their files are not compacted"
    )
    add(2)
    assert keep_up("t", path, 1000, 1, 1002.0) == f"t: {2 * compacted} files made {compacted}", "told once"
    old_s = 1002.0 + VACUUM_EVERY_MS / 1000
    assert keep_up("t", path, None, 1, old_s) == "", "nothing is old enough, and the folders can be listed"
    found = DeltaTable(path)
    found.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    rows = found.to_pyarrow_table().to_pylist()
    assert sorted((str(row["dev"]), row["n"]) for row in rows) == sorted(
        (str(value), number) for value in values for number in range(3)
    )


def test_upkeep_that_cannot_even_be_noted_fails_the_run_in_order(tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path)
    table(tmp_path / "out", 1)
    (tmp_path / "out" / NOTE).mkdir()
    engine, said = engine_of(loaded, out=Query())
    failed = engine._watch(threading.Event())
    assert failed is not None
    assert failed[0] == "out"
    assert failed[1].startswith("upkeep: [Errno")
    engine._end(True)
    assert not engine.running["out"].isActive
    (loaded.state / "error.log").mkdir(parents=True)
    assert engine._tell_failure("out", "upkeep: [Errno 28] No space left on device") == 1
    assert "sink 'out' failed: upkeep: [Errno 28] No space left on device\nThe disk is full. Free space" in said[-2]
    assert said[-1].endswith("error.log: Is a directory"), "a full disk has no room for the log either"
    found = read_status(loaded.state)
    assert found is not None
    assert found["run"]["state"] == "failed"


def test_upkeep_between_batches_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    path = table(tmp_path / "t", 1)
    monkeypatch.setattr(DeltaTable, "vacuum", lambda *_, **__: (_ for _ in ()).throw(OSError("no permission")))
    sink = DeltaSink.model_validate({"name": "t", "from": "v", "delta": path, "compact": "never"})
    (tmp_path / "t" / NOTE).write_text('{"compacted": 0, "vacuumed": 0}', encoding="utf-8")
    sinks._upkeep(sink, path, said.append)
    assert said == ["t: upkeep failed, and runs again when it is next due: no permission"]


class Clock:
    """The engine's clock; whoever sleeps sets it forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("pyspark_folkmoot.pipeline.engine.time", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_who_cannot_start_waits_longer_each_time_and_fails_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    engine, said = engine_of(loaded_of(tmp_path), out=Query(NO_WORKER))
    engine.planned[0].start = lambda: Query(NO_WORKER)  # type: ignore[assignment, method-assign, return-value]
    at: list[float] = []
    while engine._failed() is None:
        assert engine._unfinished(), "it is waited for"
        if len(said) > len(at):
            at.append(clock.now)
        clock.now += 0.25
    assert clock.now == 1000 + PATIENCE_S
    pauses = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert pauses[:6] == [1, 2, 4, 8, 16, 30]
    assert set(pauses[5:]) == {30}


def test_starts_are_counted_anew_after_a_batch_and_after_a_long_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    engine, said = engine_of(loaded_of(tmp_path), out=Query(NO_WORKER))
    for count in (1, 2, 3):
        engine.running["out"] = Query(NO_WORKER)  # type: ignore[assignment]
        assert engine._failed() is None
        assert len(said) == count
        if count == 1:
            engine.well("out")
        else:
            clock.now += 2 * PATIENCE_S


def test_who_has_started_again_and_ended_is_not_waited_for(tmp_path: Path) -> None:
    engine, _ = engine_of(loaded_of(tmp_path), out=Query(NO_WORKER))
    assert engine._failed() is None
    engine.running["out"].stop()
    assert engine._failed() is None
    assert not engine._unfinished()


class Gateway:
    """A Java process as `subprocess` shows it: it ends when it is waited for, or never does."""

    def __init__(self, ends: bool) -> None:
        self.status = 143 if ends else None

    def wait(self, timeout: float) -> None:
        if self.status is None:
            raise subprocess.TimeoutExpired("java", timeout)

    def poll(self) -> int | None:
        return self.status


@pytest.mark.parametrize(("java", "ends"), [(Gateway(ends=True), True), (Gateway(ends=False), False), (None, False)])
def test_a_signal_to_the_whole_group_is_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: Gateway | None, ends: bool
) -> None:
    engine, said = engine_of(loaded_of(tmp_path), out=Query("terminated with exception:  (no cause message)"))
    engine._rules = {}
    engine.planned = []
    gateway = SimpleNamespace(proc=java)  # None: not started here
    engine.spark = SimpleNamespace(  # type: ignore[assignment]
        sparkContext=SimpleNamespace(_gateway=gateway), streams=SimpleNamespace(addListener=lambda _: None)
    )
    stop = threading.Event()

    def start(stop: threading.Event) -> tuple[str, str]:
        stop.set()
        return "out", "terminated with exception"

    monkeypatch.setattr(engine, "_start", start)
    assert engine.run(stop) == (0 if ends else 1)
    assert any(line.startswith("stopped: " if ends else "sink 'out' failed") for line in said)


def test_a_query_that_cannot_start_again_has_failed(tmp_path: Path) -> None:
    engine, _ = engine_of(loaded_of(tmp_path), out=Query(NO_WORKER))

    def refuse() -> None:
        raise OSError(28, "No space left on device")

    engine.planned[0].start = refuse  # type: ignore[assignment, method-assign]
    assert engine._failed() == ("out", "[Errno 28] No space left on device")


def test_a_query_that_does_not_end_does_not_hold_the_others(tmp_path: Path) -> None:
    engine, said = engine_of(loaded_of(tmp_path), first=Query(stuck=True), second=Query())
    engine._end(True)
    assert not engine.running["second"].isActive
    assert said[-1] == "Spark did not end first: stopping the query took too long"


def test_who_is_in_one_batch_for_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("pyspark_folkmoot.pipeline.engine.time", SimpleNamespace(monotonic=lambda: clock.now))
    engine, said = engine_of(loaded_of(tmp_path), idle=Query(), busy=Query(), often=Query())

    def look(times: int) -> None:
        for number in range(times):
            clock.now += LOOK_S
            engine.running["often"].status["isTriggerActive"] = number % 50 > 0
            engine._still()

    engine.running["busy"].status["isTriggerActive"] = True
    look(int(STILL_S / LOOK_S))
    assert said == []
    look(2)
    assert said == ["busy is still in batch 0 after 10 minutes"]
    engine.well("busy")
    look(int(STILL_S / LOOK_S) - 1)
    assert len(said) == 1


def test_nobody_listens_after_the_end() -> None:
    removed: list[object] = []

    def too_long(_ms: int) -> None:
        raise TimeoutError

    bus = SimpleNamespace(waitUntilEmpty=too_long)
    context = SimpleNamespace(sc=lambda: SimpleNamespace(listenerBus=lambda: bus))
    spark: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(_jsc=context), streams=SimpleNamespace(removeListener=removed.append)
    )
    settled(spark, "listener")
    assert removed == ["listener"]


def test_a_quarantine_that_cannot_be_made_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StructType, "fromDDL", lambda _: StructType().add("reason", "string"))  # it would ask Spark
    engine, _ = engine_of(loaded_of(tmp_path, SMALL + "quarantine: file/q\n"), out=Query())
    (tmp_path / "file").touch()  # a file that is there before is refused with its line
    engine.planned[0].sink = None
    with pytest.raises(PipelineProblem, match=r"the quarantine .*file/q cannot be written: "):
        engine._make_quarantine()
    engine.loaded.model = engine.loaded.model.model_copy(update={"quarantine": "s3://bucket/q"})
    with pytest.raises(PipelineProblem, match=r"the quarantine s3://bucket/q cannot be written: option 'path'"):
        engine._make_quarantine()


def test_a_state_folder_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PipelineProblem, match=r"the state folder .*/file/state cannot be written: Not a directory"):
        StateLock(tmp_path / "file" / "state", "run")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "getpid", full)
    with pytest.raises(PipelineProblem, match=r"the state folder .* cannot be written: No space left on device"):
        StateLock(tmp_path / "state", "run")
    monkeypatch.undo()
    StateLock(tmp_path / "state", "run").close()


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_GETLK"), reason="this kernel does not say who has a lock")
def test_who_asks_for_the_lock_does_not_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not held(tmp_path)
    with StateLock(tmp_path, "run"):
        monkeypatch.delattr(fcntl, "flock")
        assert held(tmp_path)
    assert not held(tmp_path)


def test_a_backfill_begins_the_figures_anew(tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path)
    names = {"out": ("v", ["s"]), "other": ("v", ["s"])}
    status = StatusFile(loaded)
    status.planned(names, set())
    for name in names:
        status.progress(name, {"batchId": 70, "numInputRows": 500})
    status.found["expectations"]["v.e"] = {"rows": 500, "broken": 1, "query": "out", "check": "x", "otherwise": "keep"}
    status.save()
    commits = loaded.state / "checkpoints" / "out.backfill" / "commits"
    commits.mkdir(parents=True)
    for number in range(3):
        (commits / str(number)).touch()
    plan = loaded.state / "swaps" / "out.json"
    plan.parent.mkdir()
    plan.write_text(json.dumps([[str(commits.parent), str(commits.parent.with_name("out"))]]), encoding="utf-8")
    finish_swaps(loaded)
    finish_swaps(loaded)
    assert "v.e" not in read_status(loaded.state)["expectations"]  # type: ignore[index]
    found = report(loaded)
    assert found is not None
    assert "out" in report_text(found)
    status = StatusFile(loaded)
    status.planned(names, set(), {"out": loaded.state / "checkpoints" / "out"})
    status.progress("out", {"batchId": 3, "numInputRows": 7})
    assert status.found["queries"]["out"]["rows"] == 7, "the next batch of the new checkpoint counts"
    assert "uncounted" not in status.found["queries"]["out"]
    assert status.found["queries"]["other"]["rows"] == 500


def test_a_backfill_whose_java_is_gone_ends() -> None:
    asked = []

    class Gone:
        @property
        def isActive(self) -> bool:  # noqa: N802 - Spark's name
            asked.append(1)
            if len(asked) == 3:
                raise ConnectionRefusedError("the connection is refused")
            return True

        def awaitTermination(self, _timeout_s: float) -> bool:  # noqa: N802 - Spark's name
            return False

    query: Any = Gone()
    assert _ended(query) == "the connection is refused"


def test_tables_that_are_read_are_looked_at(tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path, TABLES)
    first = inputs(loaded, "copied")
    assert first is not None
    assert list(first) == ["rooms"]
    assert inputs(loaded, "copied") == first
    (tmp_path / "rooms.csv").write_text("room\nattic\n", encoding="utf-8")
    second = inputs(loaded, "copied")
    assert second != first
    assert inputs(loaded, "both") is None, "the table of the sink is not there yet"
    table(tmp_path / "copy", 1)
    third = inputs(loaded, "both")
    table(tmp_path / "copy", 2)
    fourth = inputs(loaded, "both")
    assert third != fourth
    (tmp_path / "rooms.csv").write_text("room\nattic\nhall\n", encoding="utf-8")
    assert inputs(loaded, "both") != fourth
    far = loaded_of(tmp_path, TABLES.replace("rooms.csv", "s3://bucket/rooms"))
    assert inputs(far, "copied") != inputs(far, "copied"), "what cannot be looked at may have changed"


def test_a_table_of_tables_alone_is_made_and_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = loaded_of(tmp_path, TABLES)
    made: list[str] = []

    def write(_frame: object, path: str, _partition_by: list[str]) -> None:
        made.append(path)
        table(Path(path), len(made))

    monkeypatch.setattr("pyspark_folkmoot.pipeline.refresh.write_static", write)
    monkeypatch.setattr("pyspark_folkmoot.pipeline.refresh.without_origin", lambda frame: frame)
    builder: Any = SimpleNamespace(frames=lambda view: {view: None})
    engine, _ = engine_of(loaded)
    sink = loaded.model.sinks[0]
    assert isinstance(sink, DeltaSink)
    refresh = Refresh(loaded, builder, engine.status, sink)
    refresh.run(last=False)
    refresh.run(last=True)
    assert made == [str(tmp_path / "copy")], "once, because nothing has changed since"
    (tmp_path / "rooms.csv").write_text("room\nattic\n", encoding="utf-8")
    refresh.run(last=True)
    assert len(made) == 2
    engine.static = [refresh]
    assert engine._unfinished(), "there is no query to wait for, and the tables may change"
    loaded.model = loaded.model.model_copy(update={"trigger": "once"})
    assert not engine._unfinished()
