"""Trials that count what is lost and what comes twice: `make torture` and `make run ARGS=--full`, as recorded runs.

Owns their tables. A trial is no section of `make bench`: its counts are written into `benchmarks/results.json` by hand,
once, from the report at the end of a run.
"""

from __future__ import annotations

from benchmarks.rounds import Figures
from benchmarks.table import markdown

__all__ = ["demo_table", "torture_table"]


def torture_table(section: Figures) -> str:
    """Return what a pipeline made of rounds of kills."""
    found, measured = section["figures"], section["measured"]
    kills = found["kills"]
    rows = [
        [where, f"{count['messages']:,}", f"{count['missing']:,}", f"{count['twice']:,}"]
        for where, count in found["counts"].items()
    ]
    said = (
        f"The result of {measured['date']}, after {kills['nodes']} kills of nodes, {kills['driver']} of the driver and "
        f"{kills['executors']} of executors in {found['minutes']} minutes on {measured['cores']} cores:"
    )
    return f"{said}\n\n{markdown(['where', 'messages', 'missing', 'twice'], rows)}"


def demo_table(section: Figures) -> str:
    """Return what the demonstration with the data of a year came to, against what pandas computes."""
    found, measured = section["figures"], section["measured"]
    minutes, seconds = divmod(found["seconds"], 60)
    rows = [
        [
            "published, acknowledged, table of the stream",
            f"{found['published']:,} each",
            f"{found['lost']} lost, {found['twice']} twice",
        ],
        [
            "decoded events, and messages in the quarantine",
            f"{found['decoded']:,} and {found['quarantine']}",
            f"exactly the {found['broken']} that were broken on purpose",
        ],
        ["flights in the aggregates", f"{found['flights']:,}", "as published"],
        [
            "rows of aggregates (counts, sums, means by hour, airport and carrier)",
            f"{found['aggregates']:,}",
            "equal to what pandas makes of the flights",
        ],
        ["alerts back over MQTT", f"{found['alerts']:,}", "one for each flight that pandas finds"],
    ]
    said = (
        f"The result of {measured['date']}, in {minutes} min {seconds} s on {measured['cores']} cores, with two nodes "
        f"and the driver killed meanwhile:"
    )
    return f"{said}\n\n{markdown(['what', 'messages or rows', 'against the input'], rows)}"
