"""`make run`: flights of New York through three nodes and a Spark pipeline into tables and back to MQTT, with kills.

The exit status is 0 if every message is acknowledged and exactly once where it belongs, else 1.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from folkmoot.demo.alert import Desk
from folkmoot.demo.broken import broken_events, spread
from folkmoot.demo.closing import TABLES, Closing, Delays
from folkmoot.demo.cluster import Cluster
from folkmoot.demo.driver import Driver, Report
from folkmoot.demo.expected import expected_alerts
from folkmoot.demo.fleet import Fleet
from folkmoot.demo.flight import Event, events
from folkmoot.demo.proof import prove
from folkmoot.demo.trouble import Trouble
from folkmoot.kernel.errors import FolkmootError

__all__ = ["main"]

_CONNECTIONS = 9
_ALERTS_S = 60.0
_MORE_S = 2.0
_WIDTH = 140  # of a log file, which has no width


class Show:
    """One run of the demonstration."""

    def __init__(self, folder: Path, months: range, seconds: float, console: Console) -> None:
        self.folder = folder
        self.months = months
        self.seconds = seconds
        self.console = console
        self._begun_s = time.monotonic()
        self._published_part = 0.0
        self._tidy()
        self.cluster = Cluster(folder)
        self.driver = Driver(folder)
        self.report = Report(folder)
        self.trouble = Trouble(self.cluster, self.driver, lambda: self._published_part, self._tell)

    def _say(self, step: int, line: str) -> None:
        self.console.print(f"[bold]{step}[/] {line}", soft_wrap=True)

    def _tell(self, line: str) -> None:
        """Print an event with the time since the start."""
        self.console.print(f"  {self._clock(time.monotonic())} {line}")

    def _clock(self, at_s: float) -> str:
        passed_s = int(at_s - self._begun_s)
        return f"{passed_s // 60}:{passed_s % 60:02d}"

    def run(self) -> bool:
        """Run it; return whether the proof succeeds."""
        flights, broken = events(self.months), broken_events()
        self._begin()
        fleet = Fleet(self.cluster.mqtt, _CONNECTIONS)
        desk = Desk(self.cluster.mqtt)
        try:
            desk.ready()
            self._say(2, f"{_CONNECTIONS} connections of devices, and a subscriber to alerts/# with QoS 2")
            self.driver.prepare(self.cluster.urls)
            self.driver.start()
            self._say(3, f"`folkmoot pipeline run {self.driver.file}`: bronze, silver, gold, quarantine, alerts")
            begin_s = time.monotonic()
            self._publish(fleet, spread(broken, flights))
            end_s = time.monotonic()
            self._drain(fleet, desk, expected_alerts(flights).total())
        finally:
            fleet.close()
            desk.close()
        proof = prove(fleet, flights, broken, desk.alerts, self.folder)
        closing = Closing(self.console, self.folder)
        closing.tables(proof, desk.alerts, self.report)
        self._tell("done")
        closing.figures(proof, fleet.refused)
        closing.availability(self.report.out)
        closing.losses(self.trouble.losses, fleet, begin_s, end_s, self._clock)
        delays = Delays(desk.alerts, self.trouble.driver_away)
        closing.delays(delays, self.driver.started, self._clock, self.trouble.driver_dead_s)
        closing.further(self.cluster, self.driver, self.report)
        return proof.holds and not fleet.refused

    def close(self) -> None:
        """Stop all processes that still run."""
        self.trouble.cancel()
        self.driver.stop(1.0)
        self.report.stop(1.0)
        self.cluster.stop()

    def _tidy(self) -> None:
        for name in ("tables", "state", "report", "cluster"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for path in [self.folder / "gold.png", self.folder / TABLES, *self.folder.glob("*.log")]:
            path.unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)

    def _begin(self) -> None:
        """Start the nodes."""
        self.cluster.start()
        names = ", ".join(f"{node.place.name} on {node.place.address('mqtt')}" for node in self.cluster.nodes)
        self._say(1, f"three nodes, three copies of everything: {names}; streams nyc of nyc/#, events of $events/#")

    def _drain(self, fleet: Fleet, desk: Desk, alerts: int) -> None:
        """Stop the pipeline, run it once more for the rest, wait for the alerts, and make the report."""
        self._tell(f"all acknowledged ({fleet.reconnects} reconnects)")
        self.driver.finish()
        self._say(5, "the pipeline stops, and runs once more for what is left")
        self.driver.drain()
        desk.await_count(alerts, _ALERTS_S)
        time.sleep(_MORE_S)  # time for duplicates to arrive
        self._tell(f"the subscriber has {len(desk.alerts):,} alerts; it was connected {desk.connects} times")
        self._say(6, "the report on availability, from the events of the nodes")
        away = self.trouble.driver_away
        labels = ("Spark driver killed", "Spark driver runs again")
        self.report.make(self.cluster.urls, [] if away is None else list(zip(away, labels, strict=True)))

    def _publish(self, fleet: Fleet, flights: list[Event]) -> None:
        self._say(4, f"the devices publish {len(flights):,} messages with QoS 1")
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console) as progress:
            bar = progress.add_task("published", total=len(flights))
            self.trouble.start()
            begin = time.monotonic()
            for number, event in enumerate(flights):
                ahead_s = begin + self.seconds * number / len(flights) - time.monotonic()
                if ahead_s > 0.01:
                    time.sleep(ahead_s)
                fleet.publish(event)
                if number % 64 == 0:
                    self._published_part = number / len(flights)
                    progress.update(bar, completed=number)
            self._published_part = 1.0
            fleet.settle()
            progress.update(bar, completed=len(flights))
            self.trouble.end()


def main() -> int:
    """Read the arguments and run the demonstration."""
    parser = argparse.ArgumentParser(prog="make run", description=__doc__)
    parser.add_argument("--full", action="store_true", help="the whole year 2013 instead of January")
    parser.add_argument("--folder", type=Path, default=Path("run"), help="where everything is made (run)")
    parser.add_argument("--seconds", type=float, default=None, help="time for publishing (75, with --full 240)")
    options = parser.parse_args()
    seconds = options.seconds if options.seconds is not None else (240.0 if options.full else 75.0)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    months = range(1, 13) if options.full else range(1, 2)
    show = Show(options.folder, months, seconds, console)
    try:
        return 0 if show.run() else 1
    except FolkmootError as error:
        console.print(f"[red]{error}[/]")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        show.close()


if __name__ == "__main__":
    sys.exit(main())
