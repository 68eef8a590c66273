"""Growth of a table over a long time: files, bytes and the driver's memory, while a pipeline compacts every minute.

Owns this section's run and table. Rates and latencies are in `benchmarks/pipeline.py`.
"""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from benchmarks.pipeline import Node, node_in, running, written
from benchmarks.rounds import Bench, Figures
from benchmarks.table import markdown, number

__all__ = ["run", "table"]

RATE = 1_000
COMPACTED = "{name: bronze, from: in, delta: bronze, compact: 1 minute}"
LINES = 7


def run(bench: Bench) -> Figures:
    """Files and bytes of a table that is compacted every minute, while messages flow."""
    folder = bench.fresh("growth")
    with node_in(folder) as node:
        return watched(bench, node, folder, 1.0 if bench.quick else bench.minutes)


def watched(bench: Bench, node: Node, folder: Path, minutes: float) -> Figures:
    """Run a pipeline for so long, and look at its table every minute."""
    file = written(folder / "growth", node, COMPACTED, "2 seconds")
    place = file.parent / "bronze"
    points: list[Figures] = []
    with running(file) as process:
        begin = time.monotonic()
        while time.monotonic() - begin < minutes * 60:
            bench.note(f"growth of a table, minute {(time.monotonic() - begin) / 60:.0f} of {minutes:.0f}")
            node.feed.pace(RATE, min(60.0, minutes * 60))
            points.append({"minute": (time.monotonic() - begin) / 60, **measured(place), "memory": memory(process.pid)})
        node.feed.settle()
    return {"minutes": minutes, "rate": RATE, "points": points}


def measured(place: Path) -> Figures:
    """Files and bytes of a table: those that belong to it, those on the disk, and its log."""
    from deltalake import DeltaTable

    alive = DeltaTable(place).get_add_actions(flatten=True)
    files = [path for path in place.rglob("*.parquet") if "_delta_log" not in path.parts]
    log = list((place / "_delta_log").iterdir())
    return {
        "files": alive.num_rows,
        "bytes": sum(alive.column("size_bytes").to_pylist()),
        "rows": sum(alive.column("num_records").to_pylist()),
        "files_on_disk": len(files),
        "bytes_on_disk": sum(path.stat().st_size for path in files),
        "log_files": len(log),
        "log_bytes": sum(path.stat().st_size for path in log),
    }


def memory(pid: int) -> int:
    """Bytes of memory of a process and its descendants."""
    process = psutil.Process(pid)
    return sum(one.memory_info().rss for one in [process, *process.children(recursive=True)])


def table(figures: Figures) -> str:
    """Return the table: a line for each of some points in time."""
    head = ["minute", "rows", "files", "MB", "files on disk", "MB on disk", "log files", "log MB", "memory MB"]
    points = figures["points"]
    last = len(points) - 1
    chosen = [points[round(at * last / (LINES - 1))] for at in range(LINES)] if len(points) > LINES else points
    rows = [[number(cell) for cell in cells(point)] for point in chosen]
    said = f"{figures['rate']:,} messages a second, compacted every minute, batches of 2 s:"
    return f"{said}\n\n{markdown(head, rows)}"


def cells(point: Figures) -> list[float]:
    """The cells of one point in time."""
    million = 1e6
    return [
        point["minute"],
        point["rows"],
        point["files"],
        point["bytes"] / million,
        point["files_on_disk"],
        point["bytes_on_disk"] / million,
        point["log_files"],
        point["log_bytes"] / million,
        point["memory"] / million,
    ]
