"""Rounds: the same workload on every broker in turn, again and again, and the medians of what came out.

Owns the order of the runs and the arithmetic of figures. It never starts a broker and never prints.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import Cores, held_to
from benchmarks.server import Server
from folkmoot.client.load import run_load
from folkmoot.client.loadresult import LoadResult
from folkmoot.client.workload import Span, Workload

Figures = dict[str, Any]


@dataclass
class Bench:
    """What every section needs: sizes, cores, a folder, `note` to say what runs now.

    kills: nodes to kill; megabytes: to copy; minutes: to watch a table grow.
    """

    rounds: int
    seconds: float
    quick: bool
    cores: Cores
    folder: Path
    note: Callable[[str], None]
    kills: int = 50
    megabytes: int = 1000
    minutes: float = 60.0
    runs: int = field(default=0)

    def fresh(self, name: str) -> Path:
        """Return a new folder for one broker."""
        self.runs += 1
        path = self.folder / f"{name}-{self.runs}"
        path.mkdir(parents=True)
        return path

    @property
    def span(self) -> Span:
        """How long one run measures."""
        return Span(self.seconds, 0, min(0.5, self.seconds))

    def run(self, server: Server, workload: Workload, span: Span, round_number: int = 1) -> LoadResult:
        """Run a workload once."""
        self.note(f"{workload.name} - {server.name}, round {round_number} of {self.rounds}")
        # A generator that sleeps makes the broker pay for waking it, which on a virtual machine is most of the cost.
        with held_to(self.cores.generator):
            return run_load(workload, server.target, span, pid=server.pid, spin=self.cores.apart)

    def compare(self, servers: Sequence[Server], workload: Workload, span: Span | None = None) -> Figures:
        """Run a workload on all servers in turn, in the reverse order every other round; return figures by server."""
        found: dict[str, list[LoadResult]] = {server.name: [] for server in servers}
        for number in range(self.rounds):
            for server in servers if number % 2 == 0 else reversed(servers):
                found[server.name].append(self.run(server, workload, span or self.span, number + 1))
        return {name: summary(results) for name, results in found.items()}


def summary(results: list[LoadResult]) -> Figures:
    """Return medians with the lowest and highest round, and every fault."""
    figures: Figures = {
        "cpu_us": spread([result.broker_cpu_us or 0.0 for result in results]),
        "per_second": spread([result.per_second for result in results]),
        "p50_us": spread([result.latency.p50_us for result in results]),
        "p99_us": spread([result.latency.p99_us for result in results]),
        "ack_p50_us": spread([result.ack_latency.p50_us for result in results]),
        "ack_p99_us": spread([result.ack_latency.p99_us for result in results]),
        "broker_share": spread([result.broker_share or 0.0 for result in results]),
        "generator_share": spread([result.generator_share for result in results]),
        "generator_us": spread([result.generator_us for result in results]),
    }
    for name in results[0].extra:
        figures[name] = spread([result.extra.get(name, 0.0) for result in results])
    faults: dict[str, int] = {}
    for result in results:
        for kind, count in result.faults.items():
            faults[kind] = faults.get(kind, 0) + count
    if faults:
        figures["faults"] = faults
        figures["texts"] = sorted({text for result in results for text in result.texts})
    return figures


def spread(values: list[float]) -> Figures:
    """Return median, lowest and highest, rounded to four digits."""
    return {
        "median": digits(statistics.median(values)),
        "low": digits(min(values)),
        "high": digits(max(values)),
    }


def digits(value: float) -> float:
    """Return a value with four significant digits."""
    return float(f"{value:.4g}")


def median(figures: Figures, name: str) -> float:
    """Return the median of a figure, 0 if it was not measured."""
    return float(figures.get(name, {}).get("median", 0.0))
