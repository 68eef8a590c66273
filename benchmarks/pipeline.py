"""Pipelines in files: rates from a stream to bronze and to gold, and the time from PUBACK to a visible row.

Owns this section's runs and tables. Node, generator and Spark share all cores of the machine.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks.feed import Feed
from benchmarks.rounds import Bench, Figures, spread
from benchmarks.spark import cpu_s
from benchmarks.table import markdown, number, with_spread

__all__ = ["Node", "node_in", "run", "running", "table", "written"]

ROWS = 1_000_000
ROWS_QUICK = 20_000
RATES = (1_000, 20_000)
RATE_S = 60.0
RATE_QUICK_S = 5.0
WARM_S = 20.0
START_S = 120.0
POLL_S = 0.1

PIPELINE = """\
name: bench
cluster: {url: "%URL%"}
trigger: %TRIGGER%
state: state
sources:
  in:
    stream: bench
    start: latest
    rows_per_trigger: 200000
    decode:
      - {topic: "bench/{device}", view: readings, format: json,
         schema: "n BIGINT, value DOUBLE, unit STRING, state STRING, line STRING"}
steps:
  - name: gold
    sql: |
      SELECT device, n DIV 60000 AS minute, count(*) AS readings, avg(value) AS mean, max(value) AS highest
      FROM readings GROUP BY device, n DIV 60000
sinks:
  - %SINK%
"""
BRONZE = "{name: bronze, from: in, delta: bronze}"
GOLD = "{name: gold, from: gold, delta: gold, mode: update, keys: [device, minute]}"
SINKS = {"bronze": BRONZE, "gold": GOLD}


class Node:
    """A node with the stream `bench`, acknowledging when a message is on the disk."""

    def __init__(self, folder: Path) -> None:
        words = [sys.executable, "-m", "folkmoot", "serve", "--data", str(folder / "data"), "--log-level", "warning"]
        words += ["--mqtt", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--stream", "bench=bench/#"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().split()
        if not ready or ready[0] != "ready":
            raise RuntimeError("the node did not start")
        address = dict(word.partition("=")[::2] for word in ready[1:])
        self.url = "http://" + address["admin"]
        host, _, port = address["mqtt"].rpartition(":")
        self.feed = Feed(host, int(port), "bench")

    def stop(self) -> None:
        """End the node."""
        self.feed.close()
        self.process.terminate()
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def node_in(folder: Path) -> Iterator[Node]:
    """A node that ends with the block."""
    node = Node(folder)
    try:
        yield node
    finally:
        node.stop()


def written(folder: Path, node: Node, sink: str, trigger: str) -> Path:
    """Write a pipeline with one sink that takes what comes from now on; return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    text = PIPELINE.replace("%URL%", node.url).replace("%TRIGGER%", trigger).replace("%SINK%", sink)
    path = folder / "bench.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def command(file: Path, *options: str) -> list[str]:
    """The words that run a pipeline."""
    return [sys.executable, "-m", "folkmoot", "pipeline", "run", str(file), *options]


def once(file: Path) -> tuple[float, float]:
    """Run a pipeline to the end of its stream; return seconds and CPU seconds of all its processes."""
    log = file.with_suffix(".log")
    begin, used = time.perf_counter(), 0.0
    with log.open("ab") as out:
        process = subprocess.Popen(command(file, "--once", "--master", "local[1]"), stdout=out, stderr=out)
        # Looked at while they live: nobody waits for the Java process, so that no parent is told what it has used.
        while process.poll() is None:
            with suppress(psutil.Error):
                used = max(used, cpu_s(process.pid))
            time.sleep(POLL_S)
    if process.returncode:
        raise RuntimeError(
            f"a pipeline ended with status {process.returncode}: {log.read_text(encoding='utf-8')[-2000:]}"
        )
    return time.perf_counter() - begin, used


def rates(bench: Bench, node: Node, folder: Path) -> Figures:
    """Rows per second and per CPU second from the stream to each kind of table, the start of Spark not counted."""
    rows = ROWS_QUICK if bench.quick else ROWS
    found: Figures = {"rows": rows}
    runs: dict[str, list[Figures]] = {name: [] for name in SINKS}
    for round_number in range(bench.rounds):
        empty: dict[str, tuple[Path, float, float]] = {}
        for name, sink in SINKS.items():
            bench.note(f"starting a pipeline to {name} with nothing to do, round {round_number + 1} of {bench.rounds}")
            file = written(folder / f"{name}-{round_number}", node, sink, "once")
            empty[name] = (file, *once(file))
        bench.note(f"publishing {rows:,} messages")
        node.feed.send(rows)
        node.feed.settle()
        for name, (file, start_s, start_cpu_s) in empty.items():
            bench.note(f"from the stream to {name}, round {round_number + 1} of {bench.rounds}")
            seconds, used_s = once(file)
            figures = {"per_second": rows / (seconds - start_s), "per_cpu_second": rows / (used_s - start_cpu_s)}
            runs[name].append({**figures, "start_s": start_s})
    for name, all_runs in runs.items():
        found[name] = {key: spread([one[key] for one in all_runs]) for key in all_runs[0]}
    return found


@contextmanager
def running(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A pipeline that runs, stopped with the block."""
    log = file.with_suffix(".log")
    with log.open("wb") as out:
        process = subprocess.Popen(command(file), stdout=out, stderr=out)
        try:
            until = time.monotonic() + START_S
            while not any(line.startswith(b"running") for line in log.read_bytes().splitlines()):
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"a pipeline did not start, see {log}")
                time.sleep(POLL_S)
            yield process
            process.send_signal(signal.SIGTERM)
            if process.wait(START_S):
                raise RuntimeError(f"a pipeline ended with status {process.returncode}, see {log}")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def latency(bench: Bench, node: Node, folder: Path, rate: int) -> Figures:
    """Milliseconds from when the node took a message to the commit of the table that has its row, at a rate."""
    seconds = RATE_QUICK_S if bench.quick else RATE_S
    file = written(folder / f"latency-{rate}", node, BRONZE, "500 ms")
    with running(file) as process:
        bench.note(f"{rate:,} messages a second into a table, warming up")
        node.feed.pace(rate, min(WARM_S, seconds))
        bench.note(f"{rate:,} messages a second into a table, {seconds:.0f} s")
        begin_us, spark, broker = time.time_ns() // 1000, cpu_s(process.pid), cpu_s(node.process.pid)
        sent = node.feed.sent
        node.feed.pace(rate, seconds)
        spark, broker = cpu_s(process.pid) - spark, cpu_s(node.process.pid) - broker
        node.feed.settle()
        sent = node.feed.sent - sent
        time.sleep(5.0)
    waited = sorted(delays(file.parent / "bronze", begin_us))
    if len(waited) < sent:
        raise RuntimeError(f"{len(waited)} of {sent} messages are in the table")
    return {
        "rate": sent / seconds,
        "p50_ms": waited[len(waited) // 2],
        "p99_ms": waited[len(waited) * 99 // 100],
        "spark_share": spark / seconds,
        "node_share": broker / seconds,
    }


def delays(place: Path, begin_us: int) -> list[float]:
    """Return, for each row whose message was taken since then, how many milliseconds later its commit was there."""
    found: list[float] = []
    for entry in sorted((place / "_delta_log").glob("*.json")):
        visible_us = entry.stat().st_mtime_ns // 1000
        for line in entry.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "add" in action and action["add"]["dataChange"]:
                times = ds.dataset(place / action["add"]["path"]).to_table(columns=["timestamp"]).column("timestamp")
                taken = times.cast(pa.timestamp("us", tz="UTC")).cast("int64").to_pylist()
                found += [(visible_us - one) / 1000 for one in taken if one >= begin_us]
    return found


def run(bench: Bench) -> Figures:
    """Run all; return the figures."""
    found: Figures = {}
    folder = bench.fresh("pipeline")
    with node_in(folder) as node:
        found["rates"] = rates(bench, node, folder)
    for rate in RATES:
        folder = bench.fresh(f"latency-{rate}")
        with node_in(folder) as node:
            found[f"latency {rate}"] = latency(bench, node, folder, rate)
    return found


def table(figures: Figures) -> str:
    """Return the tables: rates, latencies."""
    names = {"bronze": "bronze: messages as they came", "gold": "gold: JSON decoded, aggregates by device and minute"}
    head = ["from the stream to", "messages/s (one task)", "messages per CPU second", "start s"]
    fields = ("per_second", "per_cpu_second", "start_s")
    rows = [[names[name], *[with_spread(figures["rates"][name], field) for field in fields]] for name in SINKS]
    parts = [f"{figures['rates']['rows']:,} messages, the start of Spark not counted:\n\n{markdown(head, rows)}"]
    head = ["messages/s", "visible after p50 ms", "p99 ms", "Spark, cores", "node, cores"]
    rows = []
    for rate in RATES:
        one = figures[f"latency {rate}"]
        rows.append([number(one[field]) for field in ("rate", "p50_ms", "p99_ms", "spark_share", "node_share")])
    parts.append(
        f"From when the node took a message to the commit that has its row, trigger 500 ms:\n\n{markdown(head, rows)}"
    )
    return "\n\n".join(parts)
