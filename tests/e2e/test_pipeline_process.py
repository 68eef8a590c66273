"""`folkmoot pipeline` as a process: started, watched, killed, refused, stopped; and disks and leaders that fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from folkmoot.admin.streams import LeaderSource, NoLeader
from folkmoot.cli import main
from folkmoot.query.question import Answer
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.log import StreamLog
from tests.harness.streamnode import Shelf, StreamNode

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

Ask = Callable[..., subprocess.CompletedProcess[str]]

PIPELINE = """\
name: small
cluster: {url: "%URL%"}
spark: {master: "local[2]", conf: {spark.sql.shuffle.partitions: 2}}
trigger: 500 ms
sources:
  in:
    {stream: s, rows_per_trigger: 400, patience: 3 s, decode: [{topic: "s/{place}", view: numbers, format: number}]}
sinks:
  - {name: out, from: numbers, delta: %TABLE%}
"""


@pytest.fixture
def node() -> Iterator[StreamNode]:
    with StreamNode(Shelf(StreamConfig("s", b"s/#", 3))) as node:
        yield node


def write(folder: Path, node: StreamNode, table: str = "out") -> Path:
    file = folder / "small.yaml"
    file.write_text(PIPELINE.replace("%URL%", node.url).replace("%TABLE%", table), encoding="utf-8")
    return file


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "folkmoot", "pipeline", *map(str, arguments)]


def ask(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def ask_here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Ask]:
    """As `ask`, in this process and with the shared Spark, which goes on when the command stops its own."""
    assert spark is not None
    monkeypatch.setattr(SparkSession, "stop", lambda _session: None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask_main(*arguments: object) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        words = ["pipeline", *map(str, arguments)]
        return subprocess.CompletedProcess(words, main(words), *capfd.readouterr())

    yield ask_main
    for number, handler in handlers.items():
        signal.signal(number, handler)


@contextmanager
def running(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The pipeline in a process group of its own, which dies with the test."""
    with file.with_name("run.log").open("ab") as log:
        process = subprocess.Popen(command("run", file), stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            with_group(process, signal.SIGKILL)
            process.wait()


def with_group(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def status(file: Path) -> dict[str, Any]:
    path = file.parent / "state" / "small" / "status.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def rows(file: Path) -> int:
    return int(status(file).get("queries", {}).get("out", {}).get("rows", 0))


def place(file: Path) -> int:
    """How far the sink has read; its rows are without those of batches that a killed driver has not counted."""
    ends = status(file).get("queries", {}).get("out", {}).get("ends", {})
    return sum(ends.get("s", {}).values())


def await_that(holds: Callable[[], bool], file: Path) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError(file.with_name("run.log").read_text(encoding="utf-8")[-3000:])


def publish(node: StreamNode, count: int, first: int) -> None:
    for number in range(first, first + count, 50):
        node.publish(f"s/{number // 50 % 7}", [b"%d" % n for n in range(number, number + 50)])


def test_a_pipeline_that_is_killed_started_twice_and_stopped(node: StreamNode, tmp_path: Path) -> None:
    file = write(tmp_path, node)
    publish(node, 2000, 0)
    node.publish("s/0", [b"broken"])
    with running(file) as process:
        await_that(lambda: rows(file) >= 800, file)
        second = ask("run", file)
        assert second.returncode == 2
        assert f"in use by process {process.pid} on " in second.stderr
        assert "a pipeline has one driver" in second.stderr
    shown = ask("status", file)
    assert shown.returncode == 1
    assert "pipeline small: killed" in shown.stdout
    publish(node, 1000, 2000)
    with running(file) as process:
        await_that(lambda: place(file) >= 3001, file)
        assert json.loads(ask("status", file, "--json").stdout)["queries"]["out"]["behind"] == {"s": 0}
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0
    table = DeltaTable(str(tmp_path / "out")).to_pyarrow_table()
    assert sorted(table.column("value").to_pylist()) == list(range(3000))
    log = file.with_name("run.log").read_text(encoding="utf-8")
    assert "stopping when the current batches are complete" in log
    assert "stopped: out " in log
    shown = ask("status", file)
    assert shown.returncode == 0
    assert "quarantine: 1 rows in" in shown.stdout


def test_a_check_tells_its_faults_and_an_explanation_has_no_secrets(
    node: StreamNode, tmp_path: Path, ask_here: Ask
) -> None:
    file = write(tmp_path, node)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("from: numbers", "from: numbres"), encoding="utf-8")
    found = ask("check", "--syntax", file)
    assert found.returncode == 2
    assert f"{file}:9: sink 'out' writes 'numbres'" in found.stderr
    assert "did you mean 'numbers'?" in found.stderr
    token = text.replace('%URL%"', "").replace('"}\nspark', '", token: a-token-of-mine}\nspark', 1)
    file.write_text(token.replace("delta: out", "delta: out, partition_by: [plase]"), encoding="utf-8")
    found = ask_here("check", file)
    assert found.returncode == 2
    assert "partition_by names 'plase', which is no column of 'numbers'; did you mean 'place'?" in found.stderr
    assert "Traceback" not in found.stderr
    file.write_text(token, encoding="utf-8")
    found = ask_here("explain", file)
    assert found.returncode == 0
    assert "columns     place STRING, value DOUBLE" in found.stdout
    assert "a-token-of-mine" not in found.stdout + found.stderr


def test_a_java_that_does_not_start_is_told_in_a_line(node: StreamNode, tmp_path: Path) -> None:
    file = write(tmp_path, node)
    expect_told(ask, file, "spark.driver.memory: 1x", "Spark did not start: Invalid maximum heap size: -Xmx1x")


def test_a_session_that_does_not_start_is_told_in_a_line(node: StreamNode, tmp_path: Path, ask_here: Ask) -> None:
    file = write(tmp_path, node)
    told = 'the config "spark.sql.shuffle.partitions" is invalid'
    expect_told(ask_here, file, "spark.sql.shuffle.partitions: many", told)


def expect_told(asked: Ask, file: Path, setting: str, told: str) -> None:
    text = file.read_text(encoding="utf-8").replace("spark.sql.shuffle.partitions: 2", setting)
    file.write_text(text, encoding="utf-8")
    done = asked("run", file)
    assert done.returncode == 1
    assert told in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_master_that_there_is_not_is_refused_before_spark_starts(node: StreamNode, tmp_path: Path) -> None:
    done = ask("run", write(tmp_path, node), "--master", "spark://10.0.0.1")
    assert (done.returncode, done.stderr.startswith("error: --master: 'spark://10.0.0.1' is no master")) == (2, True)


class NobodyLeads(LeaderSource):
    """Stands for a cluster in which stream partition 1 has no leader."""

    def leads(self, log: StreamLog) -> bool:
        return log.index != 1

    def holds(self, log: StreamLog) -> bool:
        return False

    async def ask(self, log: StreamLog, what: int, numbers: list[int]) -> Answer:
        raise NoLeader("stream s partition 1 has no open leader")


def test_a_stream_partition_without_leader(node: StreamNode, tmp_path: Path, ask_here: Ask) -> None:
    publish(node, 100, 0)
    with StreamNode(node.shelf, source=NobodyLeads()) as other:
        file = write(tmp_path, other)
        found = ask_here("run", file, "--once")
        assert found.returncode == 1
        assert "stream s partition 1 has no open leader" in found.stderr
        assert "were unreachable for longer than 'patience'" in found.stderr
    file = write(tmp_path, node)
    assert ask_here("run", file, "--once").returncode == 0
    assert DeltaTable(str(tmp_path / "out")).to_pyarrow_table().num_rows == 100


def test_a_full_disk(node: StreamNode, tmp_path: Path, ask_here: Ask) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", disk], capture_output=True, check=False, timeout=20
    )
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        file = write(tmp_path, node, str(disk / "out"))
        for number in range(20):
            node.publish(f"s/{number}", [b"%d" % (n * 7919 + number) for n in range(2000)])
        file.write_text(file.read_text(encoding="utf-8").replace("rows_per_trigger: 400", "rows_per_trigger: 4000"))
        found = ask_here("run", file, "--once")
        assert found.returncode == 1
        assert "sink 'out' failed" in found.stderr
        assert "The disk is full. Free space and start the pipeline again" in found.stderr
        subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True, timeout=20)
        assert ask_here("run", file, "--once").returncode == 0
        table = DeltaTable(str(disk / "out")).to_pyarrow_table()
        assert sorted(table.column("value").to_pylist()) == sorted(
            n * 7919 + number for n in range(2000) for number in range(20)
        )
    finally:
        subprocess.run(["umount", disk], check=False, timeout=20)
