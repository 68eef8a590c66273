"""The whole of `make bench`: runs the sections, writes results.json and the chart, and fills all pages.

Owns the options, the progress on the terminal, and the files of results. It never measures anything itself.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import importlib.util
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import chart, machine, pages, server
from benchmarks.machine import Cores
from benchmarks.pages import ROOT, SECTIONS
from benchmarks.rounds import Bench, Figures
from folkmoot.cli.version import version_line

CHART = ROOT / "docs" / "img" / "cpu-per-message.svg"
BUSY_LOAD = 0.5
MEGABYTES_MAX = 5000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections asked for; return the exit status: 1 if a run had a fault."""
    words = parse(arguments)
    console = Console(stderr=True)
    cores = Cores.choose()
    base = Path(words.folder) if words.folder else ROOT / "run"
    base.mkdir(parents=True, exist_ok=True)
    facts = machine.describe(base)
    if not server.mosquitto_path():
        console.print("Mosquitto is not installed: no ratios (Debian, Ubuntu: apt install mosquitto)", style="yellow")
    if float(str(facts["load_average_before"])) > BUSY_LOAD:
        console.print(
            f"The machine is busy (load {facts['load_average_before']}): the figures will vary", style="yellow"
        )
    results = pages.load_results()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=base) as folder:
        for name in words.only or SECTIONS:
            module = section(name)
            if module is None:
                continue
            with progress_of(console, name) as note:
                place = Path(folder) / name
                bench = Bench(words.rounds, words.seconds, words.quick, cores, place, note)
                bench.kills, bench.megabytes, bench.minutes = words.kills, words.megabytes, words.minutes
                figures = module.run(bench)
            results["sections"][name] = {"measured": facts | conditions(words, cores), "figures": figures}
            console.print(module.table(figures), markup=False, highlight=False, soft_wrap=True)
            if not words.dry:
                publish(results, name)
    found = [name for name in words.only or SECTIONS if "'faults'" in str(results["sections"].get(name))]
    if found:
        console.print(f"runs with faults in: {', '.join(found)}", style="red")
    return 1 if found else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; `--quick` is for trying the benchmarks themselves."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description="Measure Folkmoot against Mosquitto.")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="this section only (may be repeated)")
    parser.add_argument("--rounds", type=int, help="how often each broker has its turn (3)")
    parser.add_argument("--seconds", type=float, help="how long one run measures (2)")
    parser.add_argument("--kills", type=int, help="how many nodes the failover section kills (50); peers: 9 at most")
    parser.add_argument("--megabytes", type=megabytes, help="queued messages that the rebuild section copies (1000)")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long a table is watched (60)")
    parser.add_argument("--quick", action="store_true", help="one short round: figures to look at, not to keep")
    parser.add_argument("--dry", action="store_true", help="write no files (always so with --quick)")
    parser.add_argument("--folder", help="where brokers keep their data while they are measured (run/)")
    words = parser.parse_args(arguments)
    words.rounds = words.rounds or (1 if words.quick else 3)
    words.seconds = words.seconds or (0.5 if words.quick else 2.0)
    words.kills = words.kills or (3 if words.quick else 50)
    words.megabytes = words.megabytes or (32 if words.quick else 1000)
    words.dry = words.dry or words.quick
    return words


def megabytes(text: str) -> int:
    """Return a size within its bounds: the queues are written three times, and must fit on the disk."""
    value = int(text)
    if not 1 <= value <= MEGABYTES_MAX:
        raise argparse.ArgumentTypeError(f"must be 1 to {MEGABYTES_MAX}")
    return value


def section(name: str) -> Any:
    """Return the module of a section, None if it is not there (Spark's comes with its extra)."""
    if importlib.util.find_spec(f"benchmarks.{name}") is None:
        return None
    return importlib.import_module(f"benchmarks.{name}")


def conditions(words: argparse.Namespace, cores: Cores) -> Figures:
    """Return how a section was measured."""
    path = server.mosquitto_path()
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "folkmoot": version_line(),
        "mosquitto": machine.version_of([path, "-h"]) if path else None,
        "rounds": words.rounds,
        "seconds": words.seconds,
        "broker_core": cores.broker,
        "generator_core": cores.generator,
    }


def publish(results: Figures, name: str) -> None:
    """Write the results, the chart, and every table and figure of the pages."""
    pages.RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if name == "transient":
        measured = results["sections"][name]["measured"]
        subtitle = f"one broker core, 64-byte messages, {measured['processor']}"
        chart.draw(results["sections"][name]["figures"], CHART, subtitle)
    pages.main()


class Note:
    """A line on the terminal that says which run is on and how long the section has taken."""

    def __init__(self, progress: Progress, name: str) -> None:
        self.progress = progress
        self.task = progress.add_task(name, total=None)
        self.name = name

    def __call__(self, text: str) -> None:
        self.progress.update(self.task, description=f"{self.name}: {text}")


class progress_of:  # noqa: N801 - used as a context manager, reads as a function
    """Show a section's runs on a terminal."""

    def __init__(self, console: Console, name: str) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn())
        self.progress = Progress(
            *columns, console=console, transient=True, refresh_per_second=2, disable=not console.is_terminal
        )
        self.name = name

    def __enter__(self) -> Note:
        self.progress.start()
        return Note(self.progress, self.name)

    def __exit__(self, *_reason: object) -> None:
        self.progress.stop()
