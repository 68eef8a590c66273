"""Single measured figures for the text of pages, by name: `<!-- figure: NAME -->text<!-- end -->`.

Owns the names, and how each figure is taken from `benchmarks/results.json` and rounded. It never measures, and knows
no page (see `benchmarks.pages`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from benchmarks.rounds import Figures, median
from benchmarks.table import number

__all__ = ["FIGURES", "figure"]

FULL: Final = "persistent QoS 1"
THREE_COPIES: Final = "three nodes, 3 copies"


def figure(name: str, before: str, results: Figures) -> str:
    """Return the text of a figure, `before` while its section was not measured; ValueError for an unknown name.

    The first word of a name is its section.
    """
    if name not in FIGURES:
        raise ValueError(f"there is no figure {name!r}: choose one of {', '.join(FIGURES)}, or add it to FIGURES")
    sections = results["sections"]
    return FIGURES[name](sections) if name.partition(".")[0] in sections else before


def cluster_rate(found: Figures) -> str:
    """Return the messages per second of three nodes with three copies at full load."""
    return number(median(found["cluster"]["figures"]["kept"][THREE_COPIES][FULL], "per_second"))


def pause(key: str) -> Callable[[Figures], str]:
    """Return the function for a pause, in milliseconds, of all clients that a `kill -9` concerns."""
    return lambda found: number(found["failover"]["figures"]["pauses"]["all"][key])


def ring(size: str) -> Callable[[Figures], str]:
    """Return the function for the time, in milliseconds, that a placement takes to compute."""
    return lambda found: number(median(found["views"]["figures"]["rings"], size))


def heartbeats(nodes: str) -> Callable[[Figures], str]:
    """Return the function for the heartbeats that each node sends in a second."""
    return lambda found: number(found["views"]["figures"]["views"][nodes]["heartbeats_a_second"])


def messages_of_a_view(found: Figures) -> str:
    """Return the control messages of a view change for each node, of the largest cluster."""
    nodes, view = list(found["views"]["figures"]["views"].items())[-1]
    return f"{view['kill']['messages'] / int(nodes):.0f}"


def files(found: Figures, choose: Callable[[list[int]], int]) -> str:
    """Return the fewest or most files that belong to the table, over all points in time."""
    return str(choose([point["files"] for point in found["growth"]["figures"]["points"]]))


def returned(cluster: str) -> Callable[[Figures], str]:
    """Return the function for the seconds until all clients of a killed node are back, in one of the clusters."""
    return lambda found: number(found["returning"]["figures"][cluster]["back_s"])


def worst_attack(found: Figures) -> str:
    """Return the highest p99 of all attacks."""
    return number(max(row["p99_ms"] for row in found["attacks"]["figures"]["rows"]))


FIGURES: Final[dict[str, Callable[[Figures], str]]] = {
    # Three nodes, three copies, all on the machine of BENCHMARKS.md.
    "cluster.rate": cluster_rate,
    "failover.p50_ms": pause("p50_ms"),
    "failover.max_ms": pause("max_ms"),
    "returning.told_s": returned("nodes tell each other what they have found right"),
    "returning.alone_s": returned("each node checks for itself"),
    "attacks.p99_ms": worst_attack,
    "views.messages": messages_of_a_view,
    "views.heartbeats.5": heartbeats("5"),
    "views.heartbeats.200": heartbeats("200"),
    "views.ring.200x4096_ms": ring("200 x 4096"),
    "connection.kilobytes": lambda found: number(
        median(found["connection"]["figures"]["idle"]["Folkmoot"], "bytes_per_connection") / 1000
    ),
    "pipeline.start_s": lambda found: f"{median(found['pipeline']['figures']['rates']['bronze'], 'start_s'):.0f}",
    "growth.files.least": lambda found: files(found, min),
    "growth.files.most": lambda found: files(found, max),
    "demo.alert_s.month": lambda found: number(found["demo"]["figures"]["alert_p50_s"]["month"]),
    "demo.alert_s.year": lambda found: number(found["demo"]["figures"]["alert_p50_s"]["year"]),
}
