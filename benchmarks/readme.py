"""The table of the README: CPU per delivered message from `benchmarks/results.json`, between the markers `bench`.

    python -m benchmarks.readme

Owns its few columns. It never measures.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks import server
from benchmarks.rounds import Figures
from benchmarks.table import markdown, plain, replace_between, times
from folkmoot.client.workload import TRANSIENT

__all__ = ["main", "summary"]

ROOT = Path(__file__).resolve().parent.parent


def summary(section: Figures) -> str:
    """Return the table and a line about hardware and method; `section` is the section `transient` of the results."""
    rows = []
    for load in TRANSIENT:
        by = section["figures"].get(load.name, {})
        own, peer = by.get(server.FOLKMOOT), by.get(server.MOSQUITTO)
        rows.append([load.name, plain(own, "cpu_us"), plain(peer, "cpu_us"), times(own, peer, "cpu_us")])
    measured = section["measured"]
    head = ["CPU microseconds per delivered message", "Folkmoot", "Mosquitto", "ratio"]
    note = (
        f"*Transient sessions, 64-byte messages, one core for the broker, the same load generator for both: "
        f"{measured['folkmoot']}; {measured['mosquitto']}; {measured['processor']}, {measured['cores']} cores, "
        f"{measured['date']}. Less is better. Method and more figures: [BENCHMARKS.md](BENCHMARKS.md).*"
    )
    return f"{markdown(head, rows)}\n\n{note}"


def main() -> int:
    """Fill the README; 1 when nothing was measured yet."""
    results = ROOT / "benchmarks" / "results.json"
    if not results.is_file():
        print("nothing was measured yet: run `make bench`", file=sys.stderr)
        return 1
    found: Figures = json.loads(results.read_text(encoding="utf-8"))
    replace_between(ROOT / "README.md", "bench", summary(found["sections"]["transient"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
