"""`make run`: flights of New York through the broker into Delta tables, with the broker and the Spark driver killed.

Exit status 0 if every message is acknowledged and in the tables exactly once, else 1.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from folkmoot.demo.fleet import Fleet
from folkmoot.demo.flight import Event, events
from folkmoot.demo.picture import gold_rows, plot, table
from folkmoot.demo.process import Node, Spark
from folkmoot.demo.proof import Proof, prove
from folkmoot.kernel.errors import FolkmootError

__all__ = ["main"]

_CONNECTIONS = 8
_FINISH_S = 300.0


class Show:
    """One run of the demonstration."""

    def __init__(self, folder: Path, months: range, seconds: float, console: Console) -> None:
        self.folder = folder
        self.months = months
        self.seconds = seconds
        self.console = console
        self.node = Node(folder)
        self.spark = Spark(folder)
        self._spark_restart: threading.Thread | None = None
        self._spark_error: FolkmootError | None = None

    def run(self) -> bool:
        """Run it; return whether the proof holds."""
        self._tidy()
        say = self.console.print
        flights = events(self.months)
        self.node.start()
        say(f"[bold]1[/] node on {self.node.mqtt}, HTTP on {self.node.admin}, stream nyc on nyc/#")
        host, port = self.node.mqtt.rsplit(":", 1)
        fleet = Fleet(host, int(port), _CONNECTIONS)
        say(f"[bold]2[/] {_CONNECTIONS} connections publish {len(flights):,} flights and weather readings, QoS 1")
        self.spark.start(self.node.url)
        say("[bold]3[/] Spark reads the stream into bronze and silver, and keeps gold")
        try:
            self._publish(fleet, flights)
        finally:
            fleet.close()
        say(f"[bold]5[/] all acknowledged ({fleet.reconnects} reconnects); Spark reads what is left")
        (self.folder / "finish").touch()
        status = self.spark.wait(_FINISH_S)
        if status != 0:
            raise FolkmootError(f"the Spark job ended with status {status}; see {self.spark.log}")
        proof = prove(fleet, self.folder)
        self._report(proof, fleet.refused)
        return proof.holds and not fleet.refused

    def close(self) -> None:
        """End what still runs."""
        if self._spark_restart is not None:
            self._spark_restart.join()
        self.spark.stop(1.0)
        self.node.stop()

    def _tidy(self) -> None:
        for name in ("tables", "checkpoints", "node"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for name in ("finish", "node.log", "spark.log", "gold.png"):
            (self.folder / name).unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)

    def _publish(self, fleet: Fleet, flights: list[Event]) -> None:
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console) as progress:
            bar = progress.add_task("published", total=len(flights))
            begin = time.monotonic()
            for number, event in enumerate(flights):
                if number == len(flights) // 2:
                    self._kill(progress.console)
                ahead_s = begin + self.seconds * number / len(flights) - time.monotonic()
                if ahead_s > 0.01:
                    time.sleep(ahead_s)
                fleet.publish(event)
                if number % 64 == 0:
                    progress.update(bar, completed=number)
            fleet.settle()
            progress.update(bar, completed=len(flights))
        if self._spark_restart is not None:
            self._spark_restart.join()
            self._spark_restart = None
        if self._spark_error is not None:
            raise self._spark_error

    def _kill(self, console: Console) -> None:
        """Kill -9 the node and the driver; the node is back at once, the driver comes back while devices publish."""
        self.node.kill()
        self.spark.kill()
        console.print("[bold]4[/] [red]kill -9[/] of the node and of the Spark driver; both start again")
        self.node.start()
        self._spark_restart = threading.Thread(target=self._start_spark)
        self._spark_restart.start()

    def _start_spark(self) -> None:
        try:
            self.spark.start(self.node.url)
        except FolkmootError as error:
            self._spark_error = error

    def _report(self, proof: Proof, refused: list[str]) -> None:
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
        if refused:
            say(f"[red]refused        {len(refused):>9,}[/]    first: {refused[0]}")
        say("[bold green]every message exactly once[/]" if proof.holds else "[bold red]the promise does not hold[/]")
        say()
        folder = self.folder
        say(
            f"Tables: {folder}/tables/bronze, silver, gold (Delta); plot: {folder}/gold.png; logs: {folder}/*.log",
            soft_wrap=True,
        )
        read = f"from deltalake import DeltaTable as T; print(T('{folder}/tables/gold').to_pandas())"
        say(f'Go on:  .venv/bin/python -c "{read}"', soft_wrap=True)
        say(
            f"        .venv/bin/folkmoot serve --data {folder}/node --admin 127.0.0.1:8080 --stream nyc=nyc/#",
            soft_wrap=True,
        )
        say("        .venv/bin/folkmoot stream read nyc --url http://127.0.0.1:8080 | head")


def main() -> int:
    """Read the arguments and run the demonstration."""
    parser = argparse.ArgumentParser(prog="make run", description=__doc__)
    parser.add_argument("--full", action="store_true", help="the whole year 2013 instead of January")
    parser.add_argument("--folder", type=Path, default=Path("run"), help="where everything is made (run)")
    parser.add_argument("--seconds", type=float, default=None, help="time for publishing (50, with --full 240)")
    options = parser.parse_args()
    seconds = options.seconds if options.seconds is not None else (240.0 if options.full else 50.0)
    console = Console()
    show = Show(options.folder, range(1, 13) if options.full else range(1, 2), seconds, console)
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
