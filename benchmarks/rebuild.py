"""Rebuild: a node loses its disk while queues are full and messages flow; how long until all copies are whole again.

Owns this section's run and table. Queues are filled first; then a node is killed and started again with an empty
folder, and gets everything from the two others. The flow goes on at those: its latency before, during and after is
what clients feel of it.
"""

from __future__ import annotations

import shutil
import threading
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.flow import Flow, fill, session
from benchmarks.nodes import Nodes
from benchmarks.rounds import Bench, Figures, digits
from benchmarks.table import markdown, number
from folkmoot.client.processmeter import ProcessMeter
from folkmoot.kernel.errors import FolkmootError

RATE = 2000.0
MEGABYTE = 1_000_000
PAYLOAD_BYTES = 1000
SESSIONS = 64
PAUSE_S = 5.0
PAUSE_QUICK_S = 1.0
SETTLE = 2
SAMPLE_S = 0.2
# A disk that takes two megabytes a second would still be in time.
WAIT_S = 60.0
WAIT_S_PER_MEGABYTE = 0.5
PHASES = ("before", "from the kill until it is back", "while it is filled", "after")


class Memory(threading.Thread):
    """Watches the resident memory of processes by name; `peaks`: the most that was seen, in bytes."""

    def __init__(self, pids: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.peaks: dict[str, int] = {}
        self.pids = pids

    def run(self) -> None:
        while not self.ended.wait(SAMPLE_S):
            for name, size in resident(self.pids).items():
                self.peaks[name] = max(self.peaks.get(name, 0), size)


def resident(pids: dict[str, int]) -> dict[str, int]:
    """Return the resident memory of processes in bytes; those that are gone are left out."""
    found = {}
    for name, pid in list(pids.items()):
        try:
            found[name] = ProcessMeter(pid).read().resident_bytes
        except FolkmootError:
            continue
    return found


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    sizes = 0
    for path in folder.rglob("*"):
        try:
            sizes += path.stat().st_size
        except FileNotFoundError:
            continue
    return sizes


def run(bench: Bench) -> Figures:
    """Fill queues, take a node its disk, and see it come back; return times, rates and latencies."""
    nodes = Nodes(bench.fresh("rebuild"), 3, 3, "--durability", "fsync")
    flow: Flow | None = None
    try:
        count = bench.megabytes * MEGABYTE // PAYLOAD_BYTES
        fill_s = fill_queues(bench, nodes, count)
        victim, *others = reversed(nodes.names)
        pause_s = PAUSE_QUICK_S if bench.quick else PAUSE_S
        flow = Flow([nodes.ports[name]["mqtt"] for name in others], RATE)
        flow.start()
        time.sleep(SETTLE * pause_s)  # connects, and the store's work on what was filled in, are not what is measured
        marks = [time.monotonic()]
        bench.note("before")
        time.sleep(pause_s)
        figures: Figures = {"megabytes": bench.megabytes, "messages": count, "fill_s": digits(fill_s)}
        marks += rebuild(bench, nodes, victim, figures)
        bench.note("after")
        time.sleep(pause_s)
        marks.append(time.monotonic())
        flow.stop()
        spans = pairwise(marks)
        found = {phase: quantiles(flow.between(*span)) for phase, span in zip(PHASES, spans, strict=True)}
        figures["phases"] = found
        figures["flow"] = len(flow.acknowledged)
        if flow.fault:
            figures["faults"] = {"flow": flow.fault}
        return figures
    finally:
        if flow is not None:
            flow.stop()
        nodes.stop()


def fill_queues(bench: Bench, nodes: Nodes, count: int) -> float:
    """Queue `count` messages for sessions that nobody is connected to; return how long it took."""
    ports = [nodes.ports[name]["mqtt"] for name in nodes.names]
    topics = [b"rebuild/%d" % at for at in range(SESSIONS)]
    for at, topic in enumerate(topics):
        session(ports[at % len(ports)], f"rebuild-s{at}", topic).socket.close()
    began = time.monotonic()
    fill(ports, topics, count, PAYLOAD_BYTES, lambda done: bench.note(f"{done:,} of {count:,} messages queued"))
    return time.monotonic() - began


def rebuild(bench: Bench, nodes: Nodes, victim: str, figures: Figures) -> list[float]:
    """Kill a node, empty it, start it, await its copies; return when it was killed, back, and whole."""
    pids = nodes.pids()
    start = max(resident(pids).values())
    size = size_of(nodes.folder / nodes.names[0])
    memory = Memory(pids)
    memory.start()
    bench.note("rebuilding")
    killed = nodes.kill(victim)
    shutil.rmtree(nodes.folder / victim)
    nodes.start(victim)
    pids[victim] = nodes.pids()[victim]
    used = {name: ProcessMeter(pid).read().cpu_ns for name, pid in pids.items()}
    nodes.await_members(WAIT_S)
    back = time.monotonic()
    nodes.await_whole(WAIT_S + bench.megabytes * WAIT_S_PER_MEGABYTE)
    whole = time.monotonic()
    memory.ended.set()
    memory.join()
    used_s = {name: (ProcessMeter(pid).read().cpu_ns - used[name]) / 1e9 for name, pid in pids.items()}
    figures["back_s"] = digits(back - killed)
    figures["whole_s"] = digits(whole - killed)
    figures["mb_per_s"] = digits(bench.megabytes / (whole - back))
    figures["disk_mb"] = digits(size / MEGABYTE)
    figures["rebuilt_disk_mb"] = digits(size_of(nodes.folder / victim) / MEGABYTE)
    figures["memory_mb"] = {"before": digits(start / MEGABYTE)} | {
        "rebuilt": digits(memory.peaks.get(victim, 0) / MEGABYTE),
        "others": digits(max(size for name, size in memory.peaks.items() if name != victim) / MEGABYTE),
    }
    figures["cpu_s"] = {name: digits(value) for name, value in used_s.items()}
    figures["victim"] = victim
    return [killed, back, whole]


def quantiles(values: list[float]) -> Figures:
    """Return count, and p50, p99 and the largest in milliseconds, of sorted seconds."""
    if not values:
        return {"count": 0, "p50_ms": 0.0, "p99_ms": 0.0, "max_ms": 0.0}
    at = {"p50_ms": 0.50, "p99_ms": 0.99}
    found = {name: digits(values[min(int(share * len(values)), len(values) - 1)] * 1000) for name, share in at.items()}
    return {"count": len(values)} | found | {"max_ms": digits(values[-1] * 1000)}


def table(figures: Figures) -> str:
    """Return the times and rates, and the latencies of the flow."""
    memory, cpu = figures["memory_mb"], figures["cpu_s"]
    giving = max(value for name, value in cpu.items() if name != figures["victim"])
    rows = [
        ["seconds from the kill until it is a member again", number(figures["back_s"])],
        ["seconds from the kill until all copies are whole", number(figures["whole_s"])],
        ["MB of messages a second, while it was filled", number(figures["mb_per_s"])],
        ["MB on the disk of a full node, and of the rebuilt one then", sizes(figures, "disk_mb", "rebuilt_disk_mb")],
        ["MB of memory, the largest node before", number(memory["before"])],
        [
            "MB of memory at most, rebuilt node and others",
            f"{number(memory['rebuilt'])} and {number(memory['others'])}",
        ],
        [
            "CPU seconds of the rebuilt node, and of the busier of the others",
            f"{number(cpu[figures['victim']])} and {number(giving)}",
        ],
    ]
    queued = f"{figures['megabytes']:,} MB in {figures['messages']:,} queued messages"
    head = [f"{queued}, filled in {number(figures['fill_s'])} s", ""]
    latencies = [
        [f"PUBACK, {name}", f"{found['count']:,}", *(number(found[key]) for key in ("p50_ms", "p99_ms", "max_ms"))]
        for name, found in figures["phases"].items()
    ]
    flow_head = [f"{RATE:,.0f} messages a second meanwhile", "messages", "p50 ms", "p99 ms", "max ms"]
    parts = [markdown(head, rows), markdown(flow_head, latencies)]
    if figures.get("faults"):
        parts.append(f"- failed: {figures['faults']}")
    return "\n\n".join(parts)


def sizes(figures: Figures, one: str, other: str) -> str:
    """Return two figures in one cell."""
    return f"{number(figures[one])} and {number(figures[other])}"
