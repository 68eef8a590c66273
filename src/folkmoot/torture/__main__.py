"""`make torture`: kills nodes, executors and the Spark driver in rounds, then counts gaps and duplicates."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from folkmoot.kernel.rng import Rng
from folkmoot.torture.scene import PLACES, Scene, Verdict

__all__ = ["KINDS", "main", "rounds_of", "table_of"]

KINDS = [["node"], ["executor"], ["driver"], ["node", "executor"], ["node", "driver"], ["node", "node"]]


def rounds_of(count: int, seed: int) -> list[list[str]]:
    """Return what is killed in each round: every kind equally often, in an order drawn from the seed."""
    rng = Rng(seed)
    found: list[list[str]] = []
    while len(found) < count:
        kinds = list(KINDS)
        while kinds:
            found.append(kinds.pop(rng.below(len(kinds))))
    return found[:count]


def main() -> int:
    """Run it, and print the result."""
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="how often something is killed (30)")
    parser.add_argument("--rate", type=int, default=2000, help="messages per second (2000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of what is killed (1)")
    parser.add_argument("--folder", type=Path, default=Path("run/torture"), help="folder of all data (run/torture)")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)
    begin = time.monotonic()

    def say(line: str) -> None:
        passed_s = int(time.monotonic() - begin)
        console.print(f"{passed_s // 60}:{passed_s % 60:02d} {line}", soft_wrap=True)

    scene = Scene(options.folder, options.seed, say)
    try:
        verdict = scene.run(rounds_of(options.rounds, options.seed), options.rate)
    finally:
        scene.close()
    kills = ", ".join(f"{count} of {what}s" for what, count in scene.victims.kills.items())
    console.print(f"killed: {kills}; the driver ended by itself {scene.victims.gave_up} times")
    console.print(table_of(verdict))
    return 0 if verdict.holds else 1


def table_of(verdict: Verdict) -> Table:
    """The verdict as a table of text."""
    table = Table("where", "messages", "gaps", "duplicates")
    for place in PLACES:
        figures = (verdict.wanted[place], verdict.gaps[place], verdict.duplicates[place])
        table.add_row(place, *[f"{figure:,}" for figure in figures])
    return table


if __name__ == "__main__":
    sys.exit(main())
