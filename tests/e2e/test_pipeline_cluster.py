"""Pipelines on Spark clusters whose executors are processes of their own: local-cluster, and a standalone master."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable

from folkmoot.streams.config import StreamConfig
from pyspark_folkmoot.java import java_home
from tests.harness.streamnode import Shelf, StreamNode

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PIPELINE = """\
name: clustered
cluster: {url: "%URLS%"}
spark: {conf: {spark.sql.shuffle.partitions: 2, spark.executor.memory: 512m%CONF%}}
trigger: once
sources:
  in:
    stream: s
    rows_per_trigger: 1000
    decode: [{topic: "s/{place}", view: numbers, format: number, expect: [{name: small, check: "value < 2999"}]}]
steps:
  - {name: marked, python: "marking:marked", inputs: [numbers]}
sinks:
  - {name: out, from: marked, delta: out}
"""

# A function of the user that runs in the executors, from the module beside the file.
MARKING = """\
from pyspark.sql import functions as f
from pyspark.sql.types import DoubleType


def double(value):
    return value * 2


def marked(numbers):
    return numbers.withColumn("twice", f.udf(double, DoubleType())("value"))
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Path, StreamNode]]:
    shelf = Shelf(StreamConfig("s", b"s/#", 4))
    with StreamNode(shelf) as one, StreamNode(shelf) as two:
        for number in range(0, 3000, 100):
            one.publish(f"s/{number // 100}", [b"%d" % n for n in range(number, number + 100)])
        (tmp_path / "marking.py").write_text(MARKING, encoding="utf-8")
        path = tmp_path / "clustered.yaml"
        # The first address is nobody's: each task passes over it.
        path.write_text(PIPELINE.replace("%URLS%", f"127.0.0.1:9,{one.url},{two.url}"), encoding="utf-8")
        yield path, one


@pytest.fixture
def file(place: tuple[Path, StreamNode]) -> Path:
    return place[0]


def run(file: Path, master: str, conf: str = "", *options: str) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace("%CONF%", conf), encoding="utf-8")
    words = [sys.executable, "-m", "folkmoot", "pipeline", "run", str(file), "--master", master, *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def check(file: Path) -> None:
    table = DeltaTable(str(file.parent / "out")).to_pyarrow_table()
    assert sorted(table.column("value").to_pylist()) == list(range(2999))
    assert sorted(table.column("twice").to_pylist()) == [2 * number for number in range(2999)]
    assert DeltaTable(str(file.parent / "state" / "clustered" / "quarantine")).to_pyarrow_table().num_rows == 1


@pytest.mark.soak("two Java processes; the code that executors are sent is read by a process that has no other")
def test_executors_that_find_no_source_tree(file: Path) -> None:
    """The code comes with the session. Those that find one are in the test of a standalone master."""
    run(file, "local-cluster[1,1,1024]", f', spark.executorEnv.PYTHONPATH: "{file.parent}"', "--package")
    check(file)


@contextmanager
def daemon(log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Spark, killed with all that it started."""
    script = Path(pyspark.__path__[0]) / "bin" / "spark-class"
    home = java_home()
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **({"JAVA_HOME": str(home)} if home else {})}
    environment["PYSPARK_PYTHON"] = sys.executable
    with log.open("wb") as out:
        process = subprocess.Popen([script, *words], stdout=out, stderr=out, env=environment, start_new_session=True)
        try:
            yield process
        finally:
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def said(log: Path, pattern: str) -> str:
    until = time.monotonic() + 180
    while time.monotonic() < until:
        found = re.search(pattern, log.read_text(encoding="utf-8", errors="replace") if log.exists() else "")
        if found:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text(encoding="utf-8")[-2000:])


@pytest.mark.soak("seven Java processes; as above, and tasks that are repeated are tested with killed drivers")
def test_a_standalone_master_that_loses_a_worker(place: tuple[Path, StreamNode], tmp_path: Path) -> None:
    file, node = place
    prefix = "org.apache.spark.deploy"
    with ExitStack() as stack:
        words = (f"{prefix}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        stack.enter_context(daemon(tmp_path / "master.log", *words))
        master = said(tmp_path / "master.log", r"Starting Spark master at (spark://[\d.:]+)")
        workers = []
        for number in range(2):
            work = ("-c", "1", "-m", "1g", "--webui-port", "0", "-d", str(tmp_path / f"work{number}"), master)
            log = tmp_path / f"worker{number}.log"
            workers.append(stack.enter_context(daemon(log, f"{prefix}.worker.Worker", "--host", "127.0.0.1", *work)))
        for number in range(2):
            said(tmp_path / f"worker{number}.log", "(Successfully registered)")
        run(file, master)
        check(file)
        assert len(list(tmp_path.glob("work?/app-*"))) == 2, "both workers had an executor"
        # What follows runs on the one worker that is left; its checkpoint is that of two.
        kill(workers[0])
        node.publish("s/late", [b"%d" % number for number in range(3000, 3100)])
        run(file, master)
        assert DeltaTable(str(tmp_path / "out")).to_pyarrow_table().num_rows == 2999
        quarantine = DeltaTable(str(tmp_path / "state" / "clustered" / "quarantine")).to_pyarrow_table()
        assert quarantine.num_rows == 101, "the hundred that came later break the expectation"
