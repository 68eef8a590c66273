"""What is kept in the state folder: lock, fingerprints, status, swaps of a backfill; and errors in plain words."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from folkmoot.streams.config import StreamConfig
from pyspark_folkmoot.pipeline.advice import advice, core_text
from pyspark_folkmoot.pipeline.backfill import check_range, finish_swaps
from pyspark_folkmoot.pipeline.fault import Faults, PipelineProblem
from pyspark_folkmoot.pipeline.fingerprint import changes, check_fingerprint, keep_fingerprint
from pyspark_folkmoot.pipeline.loading import Loaded, load_pipeline
from pyspark_folkmoot.pipeline.lock import StateLock
from pyspark_folkmoot.pipeline.query import check_all
from pyspark_folkmoot.pipeline.reach import check_streams
from pyspark_folkmoot.pipeline.report import report, report_text
from pyspark_folkmoot.pipeline.status import StatusFile, read_status
from pyspark_folkmoot.pipeline.upkeep import keep_up
from tests.harness.streamnode import Shelf, StreamNode

FILE = """\
name: p
sources:
  in: {stream: s, decode: [{topic: "a/{b}", view: v, format: number, expect: [{name: e, check: "value > 0"}]}]}
cluster: {url: "127.0.0.1:1", token: "${TOKEN}"}
sinks: [{name: out, from: v, delta: out}]
"""


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    (tmp_path / "p.yaml").write_text(FILE, encoding="utf-8")
    return load_pipeline(tmp_path / "p.yaml", {"TOKEN": "a-very-secret-token"})


def test_a_state_folder_has_one_driver(tmp_path: Path) -> None:
    code = "import sys, pathlib; from pyspark_folkmoot.pipeline.lock import StateLock\n"
    code += "lock = StateLock(pathlib.Path(sys.argv[1]), 'a run'); print('held', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdin is not None
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(PipelineProblem, match=rf"in use by process {other.pid} on .* \(a run, since 2"):
            StateLock(tmp_path, "another")
    finally:
        other.kill()
        other.wait()
        other.stdin.close()
        other.stdout.close()
    with StateLock(tmp_path, "another") as lock:
        assert json.loads(lock.path.read_text(encoding="utf-8"))["pid"] == os.getpid()
    StateLock(tmp_path, "a third").close()


def test_changes_are_told() -> None:
    before = {"streams": ["a"], "sink": {"delta": "x"}, "gone": "this", "columns": ["a int"]}
    after = {"streams": ["a", "b"], "sink": {"delta": "x", "mode": "update"}, "columns": ["a int"], "new": 1}
    assert changes(before, after) == [
        "streams: was a, is a, b",
        "sink: mode was nothing, is update",
        "gone: gone (this)",
        "new: new (1)",
    ]


def test_fingerprints_belong_to_checkpoints(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints" / "q"
    keep_fingerprint(checkpoint, {"streams": ["a"]})
    check_fingerprint(checkpoint, {"streams": ["b"]}, "q", True)  # there is no checkpoint yet: nothing has to follow
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text("{}", encoding="utf-8")
    check_fingerprint(checkpoint, {"streams": ["a"]}, "q", True)
    with pytest.raises(PipelineProblem, match=r"'q' is incompatible with these changes:\n  - streams: was a, is b"):
        check_fingerprint(checkpoint, {"streams": ["b"]}, "q", True)
    with pytest.raises(PipelineProblem, match=r"remove .*checkpoints/q: the stream is read again"):
        check_fingerprint(checkpoint, {"streams": ["b"]}, "q", False)


def progress(batch: int, rows: int, broken: int) -> dict[str, object]:
    return {
        "batchId": batch,
        "timestamp": "2026-03-01T00:00:00.000Z",
        "numInputRows": rows,
        "processedRowsPerSecond": 5.0,
        "sources": [{"endOffset": {"0": rows, "start": {"0": 0}}}],
        "observedMetrics": {
            "expect:v": {"rows": rows, "broken_0": broken},
            "entries:in": {"messages": rows, "taken_0": rows},
        },
    }


def test_batches_count_once_also_over_restarts(loaded: Loaded) -> None:
    queries = {"out": ("v", ["s"]), "quarantine-v": ("v", ["s"])}
    for _ in range(2):
        status = StatusFile(loaded)
        status.planned(queries, set())
        status.progress("quarantine-v", progress(0, 10, 1))
        status.progress("quarantine-v", progress(1, 5, 0))
        status.progress("nobody", progress(1, 5, 0))
        status.state("stopped")
    found = read_status(loaded.state)
    assert found is not None
    assert (found["queries"]["quarantine-v"]["batch"], found["queries"]["quarantine-v"]["rows"]) == (1, 15)
    assert found["queries"]["quarantine-v"]["ends"] == {"s": {"0": 5}}
    assert (found["expectations"]["v.e"]["rows"], found["expectations"]["v.e"]["broken"]) == (15, 1)
    assert found["views"]["v"]["messages"] == 15
    status = StatusFile(loaded)
    status.planned(queries, {"quarantine-v"})  # a new checkpoint begins at nothing
    assert status.found["queries"]["quarantine-v"]["rows"] == 0
    assert status.found["expectations"] == {}


def test_a_message_counts_once_for_all_views_of_its_source(loaded: Loaded) -> None:
    status = StatusFile(loaded)
    status.planned({"out": ("v", ["s", "t"])}, set())
    status.scans = {"out": [7, 1]}
    sources = [{"numInputRows": 7 * 195, "endOffset": {"0": 195}}, {"numInputRows": 5, "endOffset": {"0": 5}}]
    found = {"batchId": 0, "numInputRows": 7 * 195 + 5, "processedRowsPerSecond": 7 * 195 + 5, "sources": sources}
    status.progress("out", found)
    query = status.found["queries"]["out"]
    assert (query["rows"], query["rows_per_second"]) == (200, 200.0)
    assert query["ends"] == {"s": {"0": 195}, "t": {"0": 5}}


def test_batches_that_a_killed_driver_has_not_counted_are_named(loaded: Loaded, tmp_path: Path) -> None:
    names = {"out": ("numbers", ["s"])}
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "commits").mkdir(parents=True)
    status = StatusFile(loaded)
    status.planned(names, {"out"})
    status.progress("out", {"batchId": 0, "numInputRows": 5})
    status.save()
    for name in ("0", "1", "2", ".2.crc"):
        (checkpoint / "commits" / name).touch()
    for _ in range(2):  # named once
        status = StatusFile(loaded)
        status.planned(names, set(), {"out": checkpoint})
        status.save()
    query = status.found["queries"]["out"]
    assert (query["batch"], query["rows"], query["uncounted"]) == (2, 5, 2)
    assert "out: 2 batches were completed but not counted" in report_text(
        {**status.found, "run": {**status.found["run"]}}
    )


def test_a_run_that_was_killed_is_called_so_and_silent_nodes_are_named(loaded: Loaded) -> None:
    assert report(loaded) is None
    status = StatusFile(loaded)
    status.planned({"out": ("v", ["s"])}, set())
    status.progress("out", progress(0, 10, 0))
    status.failed("out", "the token a-very-secret-token is wrong")
    status.state("running")
    with StateLock(loaded.state, "run"):
        pass
    found = report(loaded)
    assert found is not None
    assert found["run"]["state"] == "killed"
    assert "127.0.0.1:1" in found["nodes"]
    text = report_text(found)
    assert "error of out: the token ${TOKEN} is wrong" in text
    assert "a-very-secret-token" not in text + (loaded.state / "status.json").read_text(encoding="utf-8")


def test_a_swap_that_was_killed_is_finished(loaded: Loaded, tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name, encoding="utf-8")
    steps = [[str(tmp_path / "old"), str(tmp_path / "kept")], [str(tmp_path / "new"), str(tmp_path / "old")]]
    plan = loaded.state / "swaps" / "out.json"
    for done in range(3):
        if done == 1:
            (tmp_path / "old").rename(tmp_path / "new")  # as it was, but for the first step
        plan.parent.mkdir(parents=True, exist_ok=True)
        plan.write_text(json.dumps(steps), encoding="utf-8")
        finish_swaps(loaded)
        assert (tmp_path / "old" / "file").read_text(encoding="utf-8") == "new"
        assert (tmp_path / "kept" / "file").read_text(encoding="utf-8") == "old"
        assert not plan.exists()


def test_ranges_of_a_backfill() -> None:
    check_range("earliest", "2026-03-01")
    with pytest.raises(PipelineProblem, match="--from: 'yesterday' is not a time"):
        check_range("yesterday", None)


@pytest.mark.parametrize(
    ("text", "core", "way_out"),
    [
        (
            "[STREAM_FAILED] Query x terminated: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed\nTraceback\n"
            "pyspark_folkmoot.source.DataLost: stream s partition 0: offsets 1 to 3 are gone by retention; to go on",
            "stream s partition 0: offsets 1 to 3 are gone by retention; to go on",
            "lost: skip",
        ),
        (
            "pyspark_folkmoot.source.NotThere: stream s partition 0: it was read up to 5, and now it ends at 3 at "
            "every node that answers.",
            "stream s partition 0: it was read up to 5, and now it ends at 3 at every node that answers.",
            "The nodes that have these records are down",
        ),
        ("OSError: [Errno 28] No space left on device: 'x'", "[Errno 28] No space left on device: 'x'", "disk is full"),
        ("java.lang.X: a\nCaused by: java.io.IOException: No space left on device", "No space left on device", "disk"),
        (
            "folkmoot.client.problem.Unreachable: no answer within 120 s from http://n: the connection is refused",
            "no answer within 120 s from http://n: the connection is refused",
            "longer than 'patience'",
        ),
        (
            "folkmoot.client.problem.Unreachable: http://n answered 503 (partition 3 has no leader)",
            "http://n answered 503 (partition 3 has no leader)",
            "the leader of a stream partition",
        ),
        (
            "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.",
            "Concurrent update to the log.",
            "Another driver",
        ),
        (
            "Spark's Java process has ended: [Errno 111] Connection refused",
            "Spark's Java process has ended: [Errno 111] Connection refused",
            "see spark.log in the state folder",
        ),
        (
            "folkmoot.client.problem.BadQuestion: transaction 3 has more than 268435456 bytes, the limit "
            "transaction_bytes_max (http://n)",
            "transaction 3 has more than 268435456 bytes, the limit transaction_bytes_max (http://n)",
            "raise limits.transaction_bytes_max at all nodes",
        ),
        ("", "no reason given", "the batch is repeated"),
        (
            "OSError: [Errno 36] File name too long: '/t/dev=a'\n=== Streaming Query ===\nProject [concurrent_users#1]",
            "[Errno 36] File name too long: '/t/dev=a'",
            "too long for a folder name",
        ),
        (
            "[USER_RAISED_EXCEPTION] expectation 'few' of 'v' does not hold: "
            '{"concurrent": 7, "why": "No space left on device"} SQLSTATE: P0001',
            'expectation \'few\' of \'v\' does not hold: {"concurrent": 7, "why": "No space left on device"}',
            "use 'otherwise: drop'",
        ),
        (
            "[CAST_INVALID_INPUT] The value 'Permission denied' cannot be cast.",
            "The value 'Permission denied' cannot be cast.",
            "When the cause is fixed",
        ),
        (
            "pyspark_folkmoot.outgoing.ColumnError: row 7 of the task: column 'qos' is 3 (topic 'concurrent')",
            "row 7 of the task: column 'qos' is 3 (topic 'concurrent')",
            "Filter such rows before the sink",
        ),
        (
            "folkmoot.client.problem.BadQuestion: row 7 of the task (topic 'a') is no message for the nodes: packet 0",
            "row 7 of the task (topic 'a') is no message for the nodes: packet 0",
            "raise the limit that is named",
        ),
        (
            "org.apache.X: wrapped\nCaused by: java.util.ConcurrentModificationException: Multiple streaming queries "
            "are concurrently using file:/c",
            "Multiple streaming queries are concurrently using file:/c",
            "Another driver",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "java.lang.OutOfMemoryError: Java heap space", "more memory"),
        (
            "_internal.CommitFailedError: Failed to commit transaction: 15",
            "Failed to commit transaction: 15",
            "Another driver",
        ),
    ],
)
def test_errors_in_plain_words(text: str, core: str, way_out: str) -> None:
    assert core_text(text) == core
    assert way_out in advice(text)


def test_upkeep_is_done_when_it_is_due(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for number in range(4):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    hour = 3_600_000
    assert keep_up("t", str(tmp_path / "none"), hour, None, 0.0) == ""
    assert keep_up("t", path, hour, None, 1000.0) == ""  # the first look only begins to count
    assert keep_up("t", path, hour, None, 1000.0 + 3599) == ""
    assert keep_up("t", path, hour, None, 1000.0 + 3600) == "t: 4 files made 1"
    assert len(DeltaTable(path).file_uris()) == 1
    assert keep_up("t", path, hour, None, 1000.0 + 3601) == ""
    files = set(Path(path).glob("*.parquet"))
    assert keep_up("t", path, None, 1, 1000.0 + 86_400) == ""  # however short: never below what is safe
    assert set(Path(path).glob("*.parquet")) == files


def test_streams_are_looked_for(tmp_path: Path) -> None:
    def loaded(url: str, stream: str, start: str = "earliest") -> Loaded:
        text = FILE.replace("127.0.0.1:1", url).replace("stream: s", f"stream: {stream}, start: {start}")
        (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
        return load_pipeline(tmp_path / "p.yaml", {"TOKEN": "a-very-secret-token"})

    with StreamNode(Shelf(StreamConfig("readings", b"s/#", 2)), token="a-very-secret-token") as node:
        assert check_streams(loaded(node.url, "readings", "{0: 5, 1: 7}")) == ""
        for stream, start, told in (
            (
                "raedings",
                "earliest",
                "p.yaml:3: sources.in: the nodes have no stream 'raedings'; did you mean 'readings'?",
            ),
            ("readings", "{0: 5}", r"start has offsets of the partitions \[0\]: stream 'readings' has \[0, 1\]"),
        ):
            with pytest.raises(Faults, match=told):
                check_streams(loaded(node.url, stream, start))
    closed = StreamNode(Shelf(), token="another-secret-token")
    with closed, pytest.raises(Faults, match=r"p.yaml:4: .* refuses the token"):
        check_streams(loaded(closed.url, "readings"))
    assert "127.0.0.1:1" in check_streams(loaded("127.0.0.1:1", "readings"))


def test_what_needs_no_spark_runs_without_it(loaded: Loaded, tmp_path: Path) -> None:
    StatusFile(loaded).state("stopped")
    code = "import sys\nsys.modules.update(dict.fromkeys(['pyspark', 'py4j', 'deltalake', 'pyarrow']))\n"
    code += "from folkmoot.cli import main\nsys.exit(main(['pipeline', *sys.argv[1:]]))"
    file = str(tmp_path / "p.yaml")
    environment = {**os.environ, "TOKEN": "a-very-secret-token"}

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *words, file]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)

    for words, told in (
        (("check", "--syntax"), "pipeline p is valid"),
        (("explain", "--syntax"), "view  v <- number on a/{b}"),
        (("status",), "pipeline p: stopped"),
    ):
        found = ask(*words)
        assert found.returncode == 0, found.stderr
        assert told in found.stdout
    found = ask("check")
    assert found.returncode == 2
    assert "is missing, but this command needs Spark: pip install 'folkmoot[spark]'" in found.stderr


def test_upkeep_keeps_the_numbers_of_batches(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for number in range(5):
        once = CommitProperties(app_transactions=[Transaction("query", number)])
        write_deltalake(path, pa.table({"n": [number]}), mode="append", commit_properties=once)
    (tmp_path / "t" / "orphan.parquet").write_bytes(b"of a task that was killed")
    os.utime(tmp_path / "t" / "orphan.parquet", (0, 0))
    keep_up("t", path, 1000, 604_800_000, 0.0)
    said = keep_up("t", path, 1000, 604_800_000, 86_400.0)
    assert said == "t: 5 files made 1, 1 old files removed"
    found = DeltaTable(path)
    assert found.transaction_version("query") == 4, "a batch that is repeated now must still be known"
    assert sorted(found.to_pyarrow_table().column("n").to_pylist()) == list(range(5))
    assert keep_up("t", path, 1000, 604_800_000, 86_400.5) == ""


def test_all_queries_that_cannot_go_on_are_named_at_once() -> None:
    def refusing(name: str) -> None:
        raise PipelineProblem(f"the checkpoint of '{name}' cannot follow")

    names = ("silver", "gold")
    queries: Any = [SimpleNamespace(check=functools.partial(refusing, name)) for name in names]
    queries.append(SimpleNamespace(check=lambda: None))
    with pytest.raises(PipelineProblem, match=r"'silver' cannot follow\nthe checkpoint of 'gold' cannot follow$"):
        check_all(queries)
