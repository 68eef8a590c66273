"""The table of the README: CPU per delivered message from `benchmarks/results.json`, between the markers `bench`.

Owns its few columns; `benchmarks.pages` puts it into the page. It never measures.
"""

from __future__ import annotations

from benchmarks import server
from benchmarks.rounds import Figures
from benchmarks.table import markdown, plain, times
from folkmoot.client.workload import TRANSIENT

__all__ = ["summary"]


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
