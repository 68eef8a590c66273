"""The history checker on the command line: run, check, show what a seed draws."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from tests.jepsen import history, witness
from tests.jepsen.check import check, report
from tests.jepsen.nemesis import NEMESES, draw, missing
from tests.jepsen.rig import Unable
from tests.jepsen.run import Options, run

__all__ = ["main"]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(prog="python -m tests.jepsen", description=__doc__)
    commands = found.add_subparsers(dest="command", required=True)
    for name, text in (("run", "run nodes, clients and faults, then check"), ("draw", "print what a seed draws")):
        one = commands.add_parser(name, help=text)
        one.add_argument("--nodes", type=int, default=5)
        one.add_argument("--witnesses", type=int, default=0, help="of the nodes: the last ones, voters without data")
        one.add_argument("--policy", choices=("majority", "available"), default="majority")
        one.add_argument("--replicas", type=int, default=3)
        one.add_argument("--partitions", type=int, default=256, help="few of them let clients share one")
        one.add_argument("--cluster", action="append", default=[], help="a line for the section [cluster] of the nodes")
        one.add_argument("--seconds", type=float, default=60.0, help="of faults; setting up and resting come on top")
        one.add_argument("--nemesis", default="all", help=f"names with commas, or all: {', '.join(NEMESES)}")
        one.add_argument("--seed", type=int, default=int(os.environ.get("FOLKMOOT_SEED", "1")))
        one.add_argument("--rate", type=float, default=100.0, help="messages per second of all publishers")
        one.add_argument("--folder", type=Path, help="an empty one, for history and logs; default: a temporary one")
    one = commands.add_parser("check", help="check a stored history again")
    one.add_argument("file", type=Path)
    one = commands.add_parser("clients", help="for `run`: the process with the clients")
    one.add_argument("folder", type=Path)
    return found


def wanted(text: str) -> list[str]:
    """The nemeses that were asked for."""
    names = list(NEMESES) if text == "all" else text.split(",")
    if unknown := [name for name in names if name not in NEMESES]:
        sys.exit(f"no such nemesis: {', '.join(unknown)}; there are {', '.join(NEMESES)}")
    return names


def main() -> int:
    """0: no promise is broken; 1: some are; 2: the run could not be made."""
    given = parser().parse_args()
    if given.command == "clients":
        witness.main(given.folder)
        return 0
    if given.command == "check":
        verdict = check(history.read(given.file))
        print(report(verdict))
        return int(bool(verdict.broken()))
    if given.nodes - given.witnesses < 2:
        sys.exit("two nodes with data are needed: some faults take the disk of one, and with it what only it has")
    nemeses = [name for name in wanted(given.nemesis) if not given.witnesses or name != "leave-join"]  # it has no API
    schedule = draw(given.seed, [f"n{at}" for at in range(1, given.nodes + 1)], given.seconds, nemeses)
    print(f"seed {given.seed}: {given.nodes} nodes, {given.replicas} copies, {given.policy}, {given.seconds:.0f} s")
    for fault in schedule:
        print(f"{fault}{missing(fault.name) and f' (LEFT OUT: {missing(fault.name)})'}")
    schedule = [fault for fault in schedule if not missing(fault.name)]
    if given.command == "draw":
        return 0
    folder = given.folder or Path(tempfile.mkdtemp(prefix="jepsen-"))
    folder.mkdir(parents=True, exist_ok=True)
    names = ("nodes", "witnesses", "policy", "replicas", "partitions", "seconds", "seed", "rate")
    options = Options(**{name: getattr(given, name) for name in names}, cluster=tuple(given.cluster))
    # Told to end, it ends its nodes too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        events = run(options, schedule, folder, lambda text: print(f"-- {text}", flush=True))
    except (Unable, RuntimeError, pytest.skip.Exception) as error:
        print(f"no run: {error}")
        return 2
    verdict = check(events)
    print(report(verdict))
    print(f"history: {folder / 'history.jsonl'}")
    return int(bool(verdict.broken()))


if __name__ == "__main__":
    sys.exit(main())
