"""The report on availability as a picture: latencies, throughput and clients without service over time, with marks.

Owns the layout. The figures come from `timeline`; times are seconds since 1970, UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark_folkmoot.ready.availability import ALL
from pyspark_folkmoot.ready.timeline import DAY, HOUR, MINUTE, Mark, Span

__all__ = ["Axis", "Label", "axis_of", "join_marks", "place_labels", "plot"]

GROUPS_MAX: Final = 5
"""Groups of clients with a colour of their own; the others share one."""

REST: Final = "(more)"
LANES_MAX: Final = 4
NEAR_PART: Final = 0.004
"""Marks that are nearer to each other than this part of the span share a line and a label."""

CHARACTER: Final = 0.0066
"""The width of a character of a label, as a part of the width of the picture."""

BLUE: Final = "#2b6cb0"
ORANGE: Final = "#dd6b20"
RED: Final = "#c53030"
GREY: Final = "#4a5568"
GROUP_COLOURS: Final = ("#c53030", "#dd6b20", "#d69e2e", "#38a169", "#805ad5")

Row = dict[str, Any]


class Axis:
    """The x axis: times are drawn in units of `unit_s` seconds since `zero_s`, or as dates if `unit_s` is 0."""

    def __init__(self, zero_s: float, unit_s: int, title: str) -> None:
        self.zero_s = zero_s
        self.unit_s = unit_s
        self.title = title

    def place(self, at_s: float) -> Any:
        """Return the coordinate of a time."""
        if self.unit_s == 0:
            return datetime.fromtimestamp(at_s, UTC).replace(tzinfo=None)
        return (at_s - self.zero_s) / self.unit_s


class Label:
    """The text of a mark: the part of the width at which it begins, and its lane (0 is the lowest)."""

    def __init__(self, text: str, left: float, lane: int) -> None:
        self.text = text
        self.left = left
        self.lane = lane


def axis_of(begin_s: float, end_s: float) -> Axis:
    """Return minutes for up to three hours, hours for up to two days, else dates."""
    span_s = end_s - begin_s
    if span_s > 2 * DAY:
        return Axis(begin_s, 0, "date (UTC)")
    since = f"{datetime.fromtimestamp(begin_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if span_s > 3 * HOUR:
        return Axis(begin_s, HOUR, f"hours since {since}")
    return Axis(begin_s, MINUTE, f"minutes since {since}")


def join_marks(marks: Sequence[Mark], span_s: float) -> list[Mark]:
    """Return marks in order of time; marks too close to distinguish become one with all their labels."""
    found: list[tuple[float, list[str]]] = []
    for mark in sorted(marks, key=lambda mark: mark.at_s):
        if not found or mark.at_s - found[-1][0] > span_s * NEAR_PART:
            found.append((mark.at_s, [mark.label]))
        elif mark.label not in found[-1][1]:
            found[-1][1].append(mark.label)
    return [Mark(at_s, ", ".join(labels)) for at_s, labels in found]


def place_labels(
    places: Sequence[float], texts: Sequence[str], character: float, lanes: int = LANES_MAX
) -> list[Label | None]:
    """Return a position for each text so that none overlaps another; None if there is no room.

    places: where their lines are, ascending, in parts of the width. character: the width of one, in the same unit.
    """
    ends = [float("-inf")] * lanes
    found: list[Label | None] = []
    for place, text in zip(places, texts, strict=True):
        width = (len(text) + 2) * character
        left = max(0.0, min(place, 1.0 - width))
        lane = next((lane for lane, end in enumerate(ends) if end <= left), None)
        if lane is None:
            found.append(None)
            continue
        ends[lane] = left + width
        found.append(Label(text, left, lane))
    return found


def plot(rows: Sequence[Row], marks: Sequence[Mark], span: Span, path: Path) -> None:
    """Draw the rows of `timeline` as PNG; needs matplotlib (the extra `demo`)."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    if not rows:
        return
    width_s = rows[0]["width_s"]
    begin_s, end_s = span.begin_s // width_s * width_s, -(-span.end_s // width_s) * width_s
    axis = axis_of(begin_s, end_s)
    shown = join_marks([mark for mark in marks if begin_s <= mark.at_s <= end_s], end_s - begin_s)
    labels = _labels(shown, begin_s, end_s)
    lanes = 1 + max((label.lane for label in labels if label is not None), default=-1)
    heights = (0.09 * lanes + 0.01, 1.3, 1.0, 1.0)
    with mpl.rc_context({"axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 12}):
        figure, (strip, *panels) = plt.subplots(
            4, 1, figsize=(11, 8.4), sharex=True, layout="constrained", height_ratios=heights
        )
        _latency(panels[0], _of(rows, "topics"), axis, width_s, span.objective_us)
        _throughput(panels[1], _of(rows, "topics"), axis, width_s)
        _clients(panels[2], [row for row in rows if row["kind"] == "clients"], axis, width_s, (begin_s, end_s))
        panels[2].set_xlabel(f"{axis.title} (a point or a bar is {duration(width_s)})")
        panels[2].set_xlim(axis.place(begin_s), axis.place(end_s))
        for panel in panels:
            panel.grid(alpha=0.25, linewidth=0.6)
            panel.set_axisbelow(True)
        _draw_marks(strip, panels, shown, labels, axis)
        figure.savefig(path, dpi=120)
        plt.close(figure)


def duration(seconds: float) -> str:
    """Return a time in its largest unit that leaves a whole number, such as `10 s`, `2 min`, `6 h`, `1 d`."""
    for unit_s, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= unit_s and seconds % unit_s == 0:
            return f"{seconds // unit_s:.0f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def _seconds(row: Row) -> float:
    return datetime.fromisoformat(row["start"]).timestamp()


def _of(rows: Sequence[Row], kind: str) -> list[Row]:
    """Return the rows for all groups of a kind, in order of time."""
    return sorted((row for row in rows if row["kind"] == kind and row["name"] == ALL), key=_seconds)


def _runs(rows: Sequence[Row], width_s: int) -> list[list[Row]]:
    """Return sequences of adjacent buckets: a line across buckets without messages would invent figures."""
    found: list[list[Row]] = []
    for row in rows:
        if found and _seconds(row) - _seconds(found[-1][-1]) <= 1.5 * width_s:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def _latency(panel: Any, rows: Sequence[Row], axis: Axis, width_s: int, objective_us: int | None) -> None:
    known = [row for row in rows if row["p50_us"] is not None]
    for number, run in enumerate(_runs(known, width_s)):
        times = [axis.place(_seconds(row) + width_s / 2) for row in run]
        p50 = [row["p50_us"] / 1000 for row in run]
        p99 = [row["p99_us"] / 1000 for row in run]
        first = number == 0
        panel.fill_between(times, p50, p99, color=BLUE, alpha=0.22, linewidth=0, label="p50 to p99" if first else None)
        dot = "o" if len(run) == 1 else None
        panel.plot(times, p50, color=BLUE, linewidth=1.8, marker=dot, markersize=3, label="p50" if first else None)
        panel.plot(times, p99, color=BLUE, linewidth=0.7, marker=dot, markersize=3, alpha=0.7)
    if objective_us is not None:
        label = f"objective, {objective_us / 1000:g} ms"
        panel.axhline(objective_us / 1000, color=GREY, linestyle="--", linewidth=1, label=label)
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _head(panel, "From PUBLISH to its acknowledgement", "latency (ms)", 3)


def _throughput(panel: Any, rows: Sequence[Row], axis: Axis, width_s: int) -> None:
    left = [axis.place(_seconds(row)) for row in rows]
    within = [row["within"] / width_s for row in rows]
    late = [max(0.0, row["messages"] - row["within"]) / width_s for row in rows]
    wide = _wide(axis, width_s)
    messages, good = sum(row["messages"] for row in rows), sum(row["within"] for row in rows)
    panel.bar(left, within, wide, align="edge", color=BLUE, alpha=0.75, label="within the objective")
    panel.bar(left, late, wide, bottom=within, align="edge", color=ORANGE, label="later")
    share = f": {messages:,.0f} in all, {good / messages:.2%} within the objective" if messages else ""
    _head(panel, f"Messages acknowledged{share}", "messages/s", 2)


def _clients(panel: Any, rows: Sequence[Row], axis: Axis, width_s: int, limits: tuple[float, float]) -> None:
    every = _of(rows, "clients")
    groups = sorted({row["name"] for row in rows} - {ALL})
    hit = {name: sum(row["clients"] for row in rows if row["name"] == name) for name in groups}
    ranked = sorted(groups, key=lambda name: (-hit[name], name))
    named, rest = ranked[:GROUPS_MAX], ranked[GROUPS_MAX:]
    bottom: dict[float, float] = {}
    colours = [*GROUP_COLOURS[: len(named)], "#a0aec0"]
    for names, label, colour in zip([*[[name] for name in named], rest], [*named, REST], colours, strict=True):
        mine = [row for row in rows if row["name"] in names]
        for number, row in enumerate(sorted(mine, key=_seconds)):
            at_s = _seconds(row)
            base = bottom.get(at_s, 0.0)
            bottom[at_s] = base + row["clients"]
            place, wide = axis.place(at_s), _wide(axis, width_s)
            panel.bar(
                place, row["clients"], wide, bottom=base, align="edge", color=colour, label=None if number else label
            )
    begun = [row for row in every if row["longest_s"] is not None]
    texts = [f"≤ {duration(row['longest_s'])}" for row in begun]
    middles = [(_seconds(row) + width_s / 2 - limits[0]) / (limits[1] - limits[0]) for row in begun]
    room = place_labels(middles, texts, CHARACTER, lanes=1)
    for row, text, label in zip(begun, texts, room, strict=True):
        if label is not None:
            place = axis.place(_seconds(row) + width_s / 2)
            panel.annotate(
                text, (place, row["clients"]), (0, 2), textcoords="offset points", ha="center", fontsize=8, color=GREY,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            )  # fmt: skip
    down_s, gaps = sum(row["down_s"] for row in every), sum(row["gaps"] for row in every)
    what = f"{gaps:,} gaps, {down_s:,.1f} s in all" if gaps else "never"
    highest = max(bottom.values(), default=0.0)
    panel.set_ylim(0, max(1.0, 1.2 * highest))
    panel.yaxis.get_major_locator().set_params(integer=True)
    _head(panel, f"Clients without service: {what}", "clients", len(colours) if bottom else 0)


def _wide(axis: Axis, width_s: int) -> Any:
    """Return the width of a bar: in the unit of the axis, in days where it has dates."""
    return width_s / (axis.unit_s or DAY)


def _labels(marks: Sequence[Mark], begin_s: float, end_s: float) -> list[Label | None]:
    places = [(mark.at_s - begin_s) / (end_s - begin_s) for mark in marks]
    return place_labels(places, [mark.label for mark in marks], CHARACTER)


def _draw_marks(
    strip: Any, panels: Sequence[Any], marks: Sequence[Mark], labels: Sequence[Label | None], axis: Axis
) -> None:
    """Draw a line through all panels for each mark, and its label in the strip above them."""
    strip.set_axis_off()
    lanes = 1 + max((label.lane for label in labels if label is not None), default=0)
    strip.set_ylim(0, lanes)
    for mark, label in zip(marks, labels, strict=True):
        place = axis.place(mark.at_s)
        for panel in panels:
            panel.axvline(place, color=RED, linewidth=1, linestyle=(0, (4, 2)), alpha=0.8)
        if label is not None:
            strip.plot([place, place], [0, label.lane + 0.9], color=RED, linewidth=0.7, alpha=0.5)
            strip.text(
                label.left + CHARACTER / 2, (label.lane + 0.15) / lanes, label.text, transform=strip.transAxes,
                fontsize=8.5, color=RED, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
            )  # fmt: skip


def _head(panel: Any, title: str, unit: str, columns: int = 0) -> None:
    """Give a panel its title at the left, its legend at the right of the same line, and the unit of its axis."""
    panel.set_title(title, loc="left")
    panel.set_ylabel(unit)
    if columns:
        panel.legend(
            loc="lower right", bbox_to_anchor=(1.0, 0.99), fontsize=8.5, frameon=False, ncols=columns,
            handlelength=1.4, columnspacing=1.2, borderaxespad=0.1,
        )  # fmt: skip
