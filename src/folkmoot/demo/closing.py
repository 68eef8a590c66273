"""What the demonstration says at its end, on one screen: proof, availability, delays of alerts, where everything is.

The first rows of each table go into a file instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from folkmoot.demo.alert import Alert
from folkmoot.demo.cluster import STREAMS, Cluster
from folkmoot.demo.driver import Driver, Report
from folkmoot.demo.fleet import Fleet
from folkmoot.demo.picture import gold_rows, plot, table
from folkmoot.demo.proof import Proof
from folkmoot.demo.sample import (
    alert_table,
    availability_rows,
    availability_table,
    bronze_table,
    quarantine_table,
    silver_table,
)
from folkmoot.demo.trouble import Loss

__all__ = ["TABLES", "Closing", "Delays", "availability_lines"]

TABLES = "tables.txt"
_WIDTH = 140
_IN_FLIGHT_S = 1.0  # what the driver committed before its end reaches the subscriber within this time


class Delays:
    """How long alerts took, from when a node stored the flight's message; all in seconds.

    away: from when to when the Spark driver was dead or starting (since 1970); None when it was not killed.
    median_s: of all alerts. restart_s: from the kill to the next alert. calm_s: the median without that time. waited:
    how many alerts the restart delayed by more than a second; longest_s: how long the slowest of those took.
    """

    def __init__(self, alerts: Sequence[Alert], away: tuple[float, float] | None) -> None:
        spans = [(_taken_s(alert), alert.at_s) for alert in alerts]
        self.median_s = median(at_s - taken_s for taken_s, at_s in spans) if spans else None
        self.calm_s = self.median_s
        self.restart_s: float | None = None
        self.waited = 0
        self.longest_s = 0.0
        after = [at_s for _, at_s in spans if away is not None and at_s > away[0] + _IN_FLIGHT_S]
        if away is None or not after:
            return
        dead_s, again_s = away[0], min(after)
        self.restart_s = again_s - dead_s
        parts = [(at_s - taken_s, _common(taken_s, at_s, dead_s, again_s)) for taken_s, at_s in spans]
        self.calm_s = median(span_s - part_s for span_s, part_s in parts)
        waits = [span_s for span_s, part_s in parts if part_s > _IN_FLIGHT_S]
        self.waited, self.longest_s = len(waits), max(waits, default=0.0)


class Closing:
    """Prints the result of a run in `folder` on one console."""

    def __init__(self, console: Console, folder: Path) -> None:
        self._console = console
        self._folder = folder

    def tables(self, proof: Proof, alerts: Sequence[Alert], report: Report) -> None:
        """Write the first rows of each table into a file, and draw the plot of gold."""
        rows = gold_rows(self._folder)
        plot(rows, self._folder / "gold.png")
        with (self._folder / TABLES).open("w", encoding="utf-8") as file:
            console = Console(file=file, width=_WIDTH)
            for shown in (
                bronze_table(self._folder, proof.bronze),
                silver_table(self._folder, proof.silver),
                table(rows),
                quarantine_table(self._folder, proof.quarantine),
                alert_table(alerts),
                availability_table(report.out),
            ):
                console.print(shown)
                console.print()

    def figures(self, proof: Proof, refused: list[str]) -> None:
        """Print the result of the proof."""
        holds = proof.holds and not refused
        self._say()
        self._say("[bold green]every message exactly once[/]" if holds else "[bold red]the promise does not hold[/]")
        self._say(
            f"lost {proof.lost:,}, duplicates {proof.duplicates:,}; "
            f"published {proof.published:,}, acknowledged {proof.acknowledged:,}"
        )
        if refused:
            self._say(f"[red]refused {len(refused):,}[/], the first: {refused[0]}")
        exactly = "exactly the broken ones" if proof.quarantine_wrong == 0 else "[red]not the broken ones[/]"
        self._say(
            f"rows in bronze {proof.bronze:,}, silver {proof.silver:,}, quarantine {proof.quarantine:,} ({exactly})"
        )
        equal = "equal to" if proof.gold_wrong == 0 else f"[red]in {proof.gold_wrong:,} rows unlike[/]"
        self._say(f"gold: {proof.gold_rows:,} rows for {proof.gold_flights:,} flights, {equal} what pandas computes")
        self._say(f"alerts: {proof.alerts:,} for {proof.late_flights:,} late flights that pandas finds")
        self._say()

    def availability(self, report: Path) -> None:
        """Print the result of the report on availability."""
        for line in availability_lines(availability_rows(report)):
            self._say(line)

    def losses(
        self, losses: Sequence[Loss], fleet: Fleet, begin_s: float, end_s: float, clock: Callable[[float], str]
    ) -> None:
        """Print what happened to the nodes, and how long devices waited for an acknowledgement."""
        ends_s = [*[loss.dead_s for loss in losses[1:]], end_s]
        for loss, until_s in zip(losses, ends_s, strict=True):
            line = f"kill -9 of {loss.node.place.name} at {clock(loss.dead_s)}"
            pause_s = fleet.longest_pause_s(loss.dead_s, loss.back_s or until_s)
            if loss.back_s is None:
                line += f", not started again: devices waited {pause_s:.1f} s at most"
            else:
                after_s = fleet.longest_pause_s(loss.back_s, until_s)
                whole = "" if loss.whole_s is None else f", all copies at {clock(loss.whole_s)}"
                line += f", back at {clock(loss.back_s)}{whole}: devices waited {pause_s:.1f} s at most"
                line += f", then {after_s:.1f} s"
            self._say(line)
        calm_s = fleet.longest_pause_s(begin_s, losses[0].dead_s if losses else end_s)
        self._say(f"(for an acknowledgement; before the kills {calm_s:.1f} s at most)")
        self._say()

    def delays(self, delays: Delays, started: str, clock: Callable[[float], str], killed_s: float | None) -> None:
        """Print the latency of alerts, and how much of it was the restart of the Spark driver, which printed `started`.

        killed_s: when the driver was killed, by the clock that `clock` shows.
        """
        if delays.median_s is None:
            return
        line = f"alert latency: {delays.median_s:.1f} s in the median"
        if delays.restart_s is None or delays.calm_s is None or killed_s is None:
            self._say(line)
            return
        self._say(f"{line}, {delays.median_s - delays.calm_s:.1f} s of it the restart of the Spark driver")
        self._say(
            f"kill -9 of the Spark driver at {clock(killed_s)}: {delays.restart_s:.1f} s to the next alert, "
            f"{delays.waited:,} waited, {delays.longest_s:.1f} s at most"
        )
        if started:
            self._say(f"it {started}")

    def further(self, cluster: Cluster, driver: Driver, report: Report) -> None:
        """Print where everything is, and how to continue."""
        self._say()
        folder = self._folder
        streams = " ".join(f"--stream '{stream}'" for stream in STREAMS)
        lines = [
            f"Pictures: {report.out}/availability.png, {folder}/gold.png",
            f"Tables:   {folder}/tables/*, {report.out}/* (Delta); the first rows of each: {folder}/{TABLES}",
            f"Logs:     {folder}/*.log",
            "Go on with these, one beside the other:",
            f"  .venv/bin/folkmoot cluster --data {cluster.folder} -- {streams}",
            f"  .venv/bin/folkmoot pipeline run {driver.file}   # or status, explain",
        ]
        for line in lines:
            self._say(line, markup=False)

    def _say(self, line: str = "", markup: bool = True) -> None:
        self._console.print(line, soft_wrap=True, highlight=False, markup=markup)


def availability_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line per day for all clients, and one for all topics, from the rows of a report."""
    found = []
    for row in rows:
        if row["name"] != "(all)":
            continue
        if row["kind"] == "clients":
            line = f"clients in service: {row['availability']:.3%} of {row['service_s']:,.0f} s, {row['gaps']:,} gaps"
            found.append(line + (f", {row['down_s']:.1f} s in all; cause: {row['cause']}" if row["gaps"] else ""))
        elif row["messages"]:
            line = f"acknowledged in time: {row['share']:.2%} of {row['messages']:,} messages"
            found.append(f"{line}; p50 {row['p50_us'] / 1000:.1f} ms, p99 {row['p99_us'] / 1000:.1f} ms")
    return found


def _common(begin_s: float, end_s: float, from_s: float, to_s: float) -> float:
    """Return the length of the overlap of two spans."""
    return max(0.0, min(end_s, to_s) - max(begin_s, from_s))


def _taken_s(alert: Alert) -> float:
    return datetime.fromisoformat(json.loads(alert.payload)["taken"]).astimezone(UTC).timestamp()
