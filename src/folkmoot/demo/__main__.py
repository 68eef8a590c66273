"""`make run`: flights of New York through three nodes into Delta tables, with nodes and the Spark driver killed.

Exit status 0 if every message is acknowledged and in the tables exactly once, else 1.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from folkmoot.demo.cluster import Cluster
from folkmoot.demo.fleet import Fleet
from folkmoot.demo.flight import Event, events
from folkmoot.demo.picture import gold_rows, plot, table
from folkmoot.demo.process import Spark
from folkmoot.demo.proof import Proof, prove
from folkmoot.demo.trouble import Trouble
from folkmoot.kernel.errors import FolkmootError

__all__ = ["main"]

_CONNECTIONS = 9
_FINISH_S = 300.0


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
        self.spark = Spark(folder)
        self.trouble = Trouble(self.cluster, self.spark, lambda: self._published_part, self._tell)

    def _tell(self, line: str) -> None:
        """Say what happens, and when since the start."""
        self.console.print(f"  {self._clock(time.monotonic())} {line}")

    def _clock(self, at_s: float) -> str:
        passed_s = int(at_s - self._begun_s)
        return f"{passed_s // 60}:{passed_s % 60:02d}"

    def run(self) -> bool:
        """Run it; return whether the proof holds."""
        say = self.console.print
        flights = events(self.months)
        self.cluster.start()
        names = ", ".join(f"{node.place.name} on {node.place.address('mqtt')}" for node in self.cluster.nodes)
        say(f"[bold]1[/] three nodes, three copies of everything: {names}; stream nyc on nyc/#", soft_wrap=True)
        fleet = Fleet(self.cluster.mqtt, _CONNECTIONS)
        say(f"[bold]2[/] {_CONNECTIONS} connections, spread over the nodes, for {len(flights):,} flights and weather")
        self.spark.start(self.cluster.urls)
        say(
            "[bold]3[/] Spark reads the stream from any of the nodes into bronze and silver, and keeps gold",
            soft_wrap=True,
        )
        begin_s = time.monotonic()
        try:
            self._publish(fleet, flights)
        finally:
            fleet.close()
        end_s = time.monotonic()
        say(f"[bold]5[/] all acknowledged ({fleet.reconnects} reconnects); Spark reads what is left")
        (self.folder / "finish").touch()
        status = self.spark.wait(_FINISH_S)
        if status != 0:
            raise FolkmootError(f"the Spark job ended with status {status}; see {self.spark.log}")
        proof = prove(fleet, flights, self.folder)
        self._figures(proof, fleet.refused)
        self._losses(fleet, begin_s, end_s)
        self._further()
        return proof.holds and not fleet.refused

    def close(self) -> None:
        """End what still runs."""
        self.trouble.cancel()
        self.spark.stop(1.0)
        self.cluster.stop()

    def _tidy(self) -> None:
        for name in ("tables", "checkpoints", "node", "cluster"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for path in [self.folder / "finish", self.folder / "gold.png", *self.folder.glob("*.log")]:
            path.unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)

    def _publish(self, fleet: Fleet, flights: list[Event]) -> None:
        say = self.console.print
        say("[bold]4[/] the devices publish with QoS 1")
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

    def _figures(self, proof: Proof, refused: list[str]) -> None:
        say = self.console.print
        rows = gold_rows(self.folder)
        plot(rows, self.folder / "gold.png")
        say()
        say(table(rows))
        say()
        say(f"published      {proof.published:>9,}")
        say(f"acknowledged   {proof.acknowledged:>9,}")
        say(f"rows in bronze {proof.bronze:>9,}    in silver {proof.silver:,}, flights in gold {proof.gold_flights:,}")
        say(f"lost           {proof.lost:>9,}")
        say(f"duplicates     {proof.duplicates:>9,}")
        equal = "equals" if proof.gold_wrong == 0 else f"[red]differs in {proof.gold_wrong:,} rows from[/]"
        say(f"rows in gold   {proof.gold_rows:>9,}    {equal} what pandas makes of the same messages")
        if refused:
            say(f"[red]refused        {len(refused):>9,}[/]    first: {refused[0]}")
        say("[bold green]every message exactly once[/]" if proof.holds else "[bold red]the promise does not hold[/]")
        say()

    def _losses(self, fleet: Fleet, begin_s: float, end_s: float) -> None:
        """Say what happened to the nodes, and how long a device waited for an acknowledgement at most."""
        say = self.console.print
        losses = self.trouble.losses
        ends_s = [*[loss.dead_s for loss in losses[1:]], end_s]
        for loss, until_s in zip(losses, ends_s, strict=True):
            line = f"kill -9 of {loss.node.place.name} at {self._clock(loss.dead_s)}"
            pause_s = fleet.longest_pause_s(loss.dead_s, loss.back_s or until_s)
            pauses = f"publishes paused {pause_s:.1f} s at most after the kill"
            if loss.back_s is None:
                line += ", dead to the end"
            else:
                line += f", back at {self._clock(loss.back_s)}"
                pauses += f", {fleet.longest_pause_s(loss.back_s, until_s):.1f} s after the return"
            if loss.whole_s is not None:
                line += f", three copies of everything again at {self._clock(loss.whole_s)}"
            say(f"{line}; {pauses}", soft_wrap=True)
        calm_s = fleet.longest_pause_s(begin_s, losses[0].dead_s if losses else end_s)
        meaning = f"a pause: how long a device waited for an acknowledgement; before the kills {calm_s:.1f} s at most"
        say(f"({meaning})", soft_wrap=True)
        say()

    def _further(self) -> None:
        folder = self.folder
        lines = [
            f"Tables: {folder}/tables/bronze, silver, gold (Delta); plot: {folder}/gold.png; logs: {folder}/*.log",
            f'Go on:  .venv/bin/python -c "from deltalake import DeltaTable as T; '
            f"print(T('{folder}/tables/gold').to_pandas())\"",
            f"        .venv/bin/folkmoot cluster --data {self.cluster.folder} -- --stream nyc=nyc/#",
            f"        .venv/bin/folkmoot stream read nyc --url {self.cluster.urls} | head",
        ]
        for line in lines:
            self.console.print(line, soft_wrap=True, highlight=False, markup=False)


def main() -> int:
    """Read the arguments and run the demonstration."""
    parser = argparse.ArgumentParser(prog="make run", description=__doc__)
    parser.add_argument("--full", action="store_true", help="the whole year 2013 instead of January")
    parser.add_argument("--folder", type=Path, default=Path("run"), help="where everything is made (run)")
    parser.add_argument("--seconds", type=float, default=None, help="time for publishing (50, with --full 240)")
    options = parser.parse_args()
    seconds = options.seconds if options.seconds is not None else (240.0 if options.full else 50.0)
    console = Console()
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
