"""What the demonstration says at its end: each table in short, the figures of the proof, the kills, how to go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from rich.console import Console

from folkmoot.demo.alert import Alert
from folkmoot.demo.cluster import STREAMS, Cluster
from folkmoot.demo.driver import Driver, Report
from folkmoot.demo.fleet import Fleet
from folkmoot.demo.picture import gold_rows, plot, table
from folkmoot.demo.proof import Proof
from folkmoot.demo.sample import alert_table, availability_table, bronze_table, quarantine_table, silver_table
from folkmoot.demo.trouble import Loss

__all__ = ["Closing"]


class Closing:
    """Prints on one console, about what is in one folder."""

    def __init__(self, console: Console, folder: Path) -> None:
        self._say = console.print
        self._folder = folder

    def tables(self, proof: Proof, alerts: Sequence[Alert], report: Report) -> None:
        """Show each table in short, and draw the plot of gold."""
        rows = gold_rows(self._folder)
        plot(rows, self._folder / "gold.png")
        for shown in (
            bronze_table(self._folder, proof.bronze),
            silver_table(self._folder, proof.silver),
            table(rows),
            quarantine_table(self._folder, proof.quarantine),
            alert_table(alerts),
            availability_table(report.out),
        ):
            self._say()
            self._say(shown)

    def figures(self, proof: Proof, refused: list[str]) -> None:
        """Say what the proof has found."""
        say = self._say
        say()
        say(f"published      {proof.published:>9,}    of them {proof.broken:,} broken on purpose")
        say(f"acknowledged   {proof.acknowledged:>9,}")
        say(f"rows in bronze {proof.bronze:>9,}    in silver {proof.silver:,}, flights in gold {proof.gold_flights:,}")
        exactly = "exactly the broken ones" if proof.quarantine_wrong == 0 else "[red]not what was broken[/]"
        say(f"in quarantine  {proof.quarantine:>9,}    {exactly}")
        say(f"alerts         {proof.alerts:>9,}    for {proof.late_flights:,} flights that pandas finds")
        say(f"lost           {proof.lost:>9,}")
        say(f"duplicates     {proof.duplicates:>9,}")
        equal = "equals" if proof.gold_wrong == 0 else f"[red]differs in {proof.gold_wrong:,} rows from[/]"
        say(f"rows in gold   {proof.gold_rows:>9,}    {equal} what pandas makes of the same messages")
        if refused:
            say(f"[red]refused        {len(refused):>9,}[/]    first: {refused[0]}")
        holds = proof.holds and not refused
        say("[bold green]every message exactly once[/]" if holds else "[bold red]the promise does not hold[/]")
        say()

    def delays(self, alerts: Sequence[Alert], away: tuple[float, float] | None) -> None:
        """Say how long alerts took, from when a node took the flight's message, and that they waited for the driver."""
        waited = [span_s for taken_s, span_s in _spans(alerts) if away is not None and away[0] <= taken_s < away[1]]
        others = [span_s for taken_s, span_s in _spans(alerts) if away is None or not away[0] <= taken_s < away[1]]
        if others:
            self._say(f"an alert came {median(others):.1f} s after its flight's message was stored (the median)")
        if away is not None and waited:
            gone = f"{away[1] - away[0]:.0f} s in which the Spark driver was dead or started"
            self._say(f"the {len(waited):,} alerts of the {gone} waited for it, {max(waited):.0f} s at most")

    def losses(
        self, losses: Sequence[Loss], fleet: Fleet, begin_s: float, end_s: float, clock: Callable[[float], str]
    ) -> None:
        """Say what happened to the nodes, and how long a device waited for an acknowledgement at most."""
        ends_s = [*[loss.dead_s for loss in losses[1:]], end_s]
        for loss, until_s in zip(losses, ends_s, strict=True):
            line = f"kill -9 of {loss.node.place.name} at {clock(loss.dead_s)}"
            pause_s = fleet.longest_pause_s(loss.dead_s, loss.back_s or until_s)
            pauses = f"publishes paused {pause_s:.1f} s at most after the kill"
            if loss.back_s is None:
                line += ", dead to the end"
            else:
                line += f", back at {clock(loss.back_s)}"
                pauses += f", {fleet.longest_pause_s(loss.back_s, until_s):.1f} s after the return"
            if loss.whole_s is not None:
                line += f", three copies of everything again at {clock(loss.whole_s)}"
            self._say(f"{line}; {pauses}", soft_wrap=True)
        calm_s = fleet.longest_pause_s(begin_s, losses[0].dead_s if losses else end_s)
        meaning = f"a pause: how long a device waited for an acknowledgement; before the kills {calm_s:.1f} s at most"
        self._say(f"({meaning})", soft_wrap=True)
        self._say()

    def further(self, cluster: Cluster, driver: Driver, report: Report) -> None:
        """Say where everything is, and what can be done with it."""
        folder = self._folder
        streams = " ".join(f"--stream '{stream}'" for stream in STREAMS)
        lines = [
            f"Tables:   {folder}/tables/bronze, silver, gold, quarantine and {report.out}/availability, costs (Delta)",
            f"Plots:    {folder}/gold.png and {report.out}/availability.png",
            f"Pipeline: {driver.file}; logs: {folder}/*.log",
            f'Go on:    .venv/bin/python -c "from deltalake import DeltaTable as T; '
            f"print(T('{folder}/tables/gold').to_pandas())\"",
            f"          .venv/bin/folkmoot pipeline status {driver.file}",
            f"          .venv/bin/folkmoot pipeline explain {driver.file}",
            f"          .venv/bin/folkmoot cluster --data {cluster.folder} -- {streams}   # then, beside it:",
            f"          .venv/bin/folkmoot pipeline run {driver.file}",
            f"          .venv/bin/folkmoot stream read nyc --url {cluster.urls} | head",
            f"          .venv/bin/folkmoot report availability --url {cluster.urls}",
        ]
        for line in lines:
            self._say(line, soft_wrap=True, highlight=False, markup=False)


def _spans(alerts: Sequence[Alert]) -> list[tuple[float, float]]:
    """Return when the message of each alert's flight was stored, and how long after that the alert came."""
    found = [(_taken_s(alert), alert.at_s) for alert in alerts]
    return [(taken_s, at_s - taken_s) for taken_s, at_s in found]


def _taken_s(alert: Alert) -> float:
    return datetime.fromisoformat(json.loads(alert.payload)["taken"]).astimezone(UTC).timestamp()
