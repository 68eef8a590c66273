"""Tables of Markdown, and their places in a page between markers.

Owns the layout of figures as text. It never measures.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.rounds import Figures, median

LEFT = ":--"
RIGHT = "--:"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; the first column is text, the others are numbers."""
    lines = [head, [LEFT, *[RIGHT] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def number(value: float) -> str:
    """Return a value with about three significant digits and no exponent."""
    if value >= 100 or value == 0:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.0995 else f"{value:.3f}"


def with_spread(figures: Figures | None, name: str) -> str:
    """Return the median of a figure and its lowest and highest round; a dash where it was not measured."""
    if not figures or name not in figures:
        return "-"
    if figures.get("faults"):
        return "failed"
    found = figures[name]
    if found["low"] == found["high"]:
        return number(found["median"])
    return f"{number(found['median'])} ({number(found['low'])} to {number(found['high'])})"


def plain(figures: Figures | None, name: str, factor: float = 1.0) -> str:
    """Return the median of a figure; a dash where it was not measured."""
    if not figures or name not in figures:
        return "-"
    return "failed" if figures.get("faults") else number(median(figures, name) * factor)


def milliseconds(figures: Figures | None, name: str) -> str:
    """Return the median of a figure in microseconds as milliseconds."""
    return plain(figures, name, 0.001)


def times(figures: Figures | None, other: Figures | None, name: str) -> str:
    """Return how often a figure fits into that of another broker."""
    if not figures or not other or not median(figures, name) or figures.get("faults") or other.get("faults"):
        return "-"
    return f"{number(median(other, name) / median(figures, name))} x"


def faults(name: str, figures: Figures | None) -> list[str]:
    """Return a line with the faults of a broker in a workload, if there were any."""
    if not figures or not figures.get("faults"):
        return []
    counts = ", ".join(f"{kind} {count}" for kind, count in figures["faults"].items())
    return [f"- {name}: {counts}. {' '.join(figures['texts'])}"]


def filled(whole: str, name: str, text: str) -> str:
    """Return a page with text between the markers of `name`; raises ValueError if they are not there."""
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(whole):
        raise ValueError(f"the page has no {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n{text}\n{end}", whole)
