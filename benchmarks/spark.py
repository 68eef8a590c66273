"""Spark: rows from a stream into a Delta table, against Spark's own file source with the same rows from Parquet.

Owns this section's runs and table. Both sources feed the same sink in the same session, one task at a time on one
core; the node that serves the stream has the other. What is compared is Spark's CPU (Python, JVM and workers), because
the node's share is not in the Parquet run: it is a column of its own.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession

from benchmarks.machine import held_to
from benchmarks.rounds import Bench, Figures, median, spread
from benchmarks.table import markdown, number, with_spread
from folkmoot.client.streams import StreamClient
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V311, Connect, Disconnect, Publish
from pyspark_folkmoot import spark_session

ROWS = 2_000_000
ROWS_QUICK = 200_000
PAYLOAD_BYTES = 100
TOPICS = 1_000
BATCH = 2_000
FILL_S = 300.0

SOURCES = ("folkmoot", "parquet")
NAMES = {"folkmoot": "Folkmoot stream", "parquet": "Parquet files, Spark's own source"}


def run(bench: Bench) -> Figures:
    """Fill a stream, write it to Parquet once, then read both into Delta tables in turn; return figures by source."""
    rows = ROWS_QUICK if bench.quick else ROWS
    folder = bench.fresh("spark")
    bench.note(f"filling a stream with {rows:,} messages")
    node = Node(folder, bench.cores.broker)
    try:
        node.fill(rows)
        # The JVM and all its threads inherit the core.
        with held_to(bench.cores.generator):
            bench.note("starting Spark")
            spark = spark_session("bench", master="local[1]", conf={"spark.driver.memory": "2g"})
        try:
            stream = spark.read.format("folkmoot").options(url=node.url, stream="bench").load()
            bench.note("writing the rows as Parquet")
            stream.write.parquet(str(folder / "parquet"))
            return {"rows": rows, "payload_bytes": PAYLOAD_BYTES, **measure(bench, spark, node, folder, rows)}
        finally:
            spark.stop()
    finally:
        node.stop()


def measure(bench: Bench, spark: SparkSession, node: Node, folder: Path, rows: int) -> Figures:
    """Run both sources in turn; the first round only warms up the JVM."""
    found: dict[str, list[Figures]] = {source: [] for source in SOURCES}
    for round_number in range(bench.rounds + 1):
        for source in SOURCES if round_number % 2 == 0 else reversed(SOURCES):
            what = "warm-up" if round_number == 0 else f"round {round_number} of {bench.rounds}"
            bench.note(f"{NAMES[source]} into a Delta table, {what}")
            place = folder / f"{source}-{round_number}"
            figures = once(frame(spark, source, node, folder), place, node, rows)
            if round_number:
                found[source].append(figures)
            shutil.rmtree(place)
    return {source: {name: spread([one[name] for one in runs]) for name in runs[0]} for source, runs in found.items()}


def frame(spark: SparkSession, source: str, node: Node, folder: Path) -> DataFrame:
    """The stream to write, from one of the sources."""
    if source == "folkmoot":
        options = {"url": node.url, "stream": "bench", "startingOffsets": "earliest"}
        return spark.readStream.format("folkmoot").options(**options).load()
    path = str(folder / "parquet")
    return spark.readStream.schema(spark.read.parquet(path).schema).parquet(path)


def once(rows_in: DataFrame, place: Path, node: Node, rows: int) -> Figures:
    """Write all rows into a new table; return rates and CPU."""
    writer = rows_in.writeStream.format("folkmoot_delta").option("checkpointLocation", str(place / "checkpoint"))
    cpu, node_cpu, start = cpu_s(os.getpid()), cpu_s(node.process.pid), time.perf_counter()
    writer.trigger(availableNow=True).start(str(place / "table")).awaitTermination()
    seconds = time.perf_counter() - start
    cpu, node_cpu = cpu_s(os.getpid()) - cpu, cpu_s(node.process.pid) - node_cpu
    from deltalake import DeltaTable

    written = DeltaTable(place / "table").count()
    if written != rows:
        raise RuntimeError(f"{written} rows were written instead of {rows}")
    return {"per_second": rows / seconds, "per_cpu_second": rows / cpu, "node_us": node_cpu / rows * 1e6}


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and all its descendants, also of those that have ended."""
    total = 0.0
    process = psutil.Process(pid)
    for one in [process, *process.children(recursive=True)]:
        try:
            used = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total


class Node:
    """A Folkmoot node with one stream."""

    def __init__(self, folder: Path, core: int | None) -> None:
        command = [sys.executable, "-m", "folkmoot", "serve", "--data", str(folder / "data"), "--log-level", "warning"]
        command += [
            "--mqtt",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--stream",
            "bench=bench/#",
            "--durability",
            "os",
        ]
        with held_to(core):
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().split()
        if not ready or ready[0] != "ready":
            raise RuntimeError("the node did not start")
        self.address = dict(word.partition("=")[::2] for word in ready[1:])
        self.url = "http://" + self.address["admin"]

    def fill(self, rows: int) -> None:
        """Publish `rows` messages and wait until all can be read."""
        host, _, port = self.address["mqtt"].rpartition(":")
        packets = [
            encode(
                Publish(b"bench/device/%04d" % (n % TOPICS), os.urandom(PAYLOAD_BYTES), 0, False, False, 0, None), V311
            )
            for n in range(BATCH)
        ]
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(encode(Connect(V311, "bench", True, 0), V311))
            connection.recv(4)
            for _ in range(rows // BATCH):
                connection.sendall(b"".join(packets))
            connection.sendall(encode(Disconnect(0, None), V311))
            self.await_rows(rows)

    def await_rows(self, rows: int) -> None:
        """Wait until the stream has `rows` records."""
        client = StreamClient(self.url)
        until = time.monotonic() + FILL_S
        while sum(part.next for part in client.describe("bench").ranges) < rows:
            if time.monotonic() > until:
                raise RuntimeError(f"the stream did not have {rows} records after {FILL_S:.0f} s")
            time.sleep(0.1)

    def stop(self) -> None:
        """End the node."""
        self.process.terminate()
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


def table(figures: Figures) -> str:
    """Return one row per source, and the ratio."""
    head = ["source, into the same Delta sink", "rows/s (one task)", "rows per CPU second", "node CPU us per row"]
    rows = [
        [NAMES[source], *[with_spread(figures[source], name) for name in ("per_second", "per_cpu_second", "node_us")]]
        for source in SOURCES
    ]
    rows[1][3] = "-"
    ratio = median(figures["folkmoot"], "per_cpu_second") / median(figures["parquet"], "per_cpu_second")
    said = (
        f"{figures['rows']:,} rows with payloads of {figures['payload_bytes']} bytes; the stream gives {number(ratio)} "
        "times the rows per CPU second of Spark that Parquet files give."
    )
    return f"{markdown(head, rows)}\n\n{said}"
