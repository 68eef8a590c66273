"""The chart of the README: CPU per delivered message, Folkmoot, Mosquitto and the floor.

Owns the picture. It never measures: it is drawn from the figures of the same run. Dots and not bars, because the length
of a bar says nothing on a logarithmic scale.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import server
from benchmarks.rounds import Figures, median
from folkmoot.client.workload import TRANSIENT

INK = "#30343b"
FAINT = "#8b919b"
LINE = "#d9dce1"
COLOURS = {server.FOLKMOOT: "#0b7a75", server.MOSQUITTO: "#c8553d"}


def draw(figures: Figures, path: Path, subtitle: str) -> None:
    """Draw the figures of the transient section to `path` (SVG), one line of dots per workload."""
    import matplotlib as mpl

    mpl.use("svg")
    # The same figures give the same file.
    mpl.rcParams.update({"svg.hashsalt": "folkmoot", "font.family": "DejaVu Sans", "text.color": INK})
    from matplotlib import pyplot as plt

    loads = [load.name for load in TRANSIENT if load.name in figures]
    figure, axes = plt.subplots(figsize=(9, 4.4), layout="constrained")
    for row, load in enumerate(loads):
        draw_row(axes, row, {name: median(by, "cpu_us") for name, by in figures[load].items() if not by.get("faults")})
    for name, colour in COLOURS.items():
        axes.plot([], [], "o", color=colour, markersize=9, label=name)
    axes.plot([], [], "|", color=FAINT, markersize=10, label="floor: system calls and event loop")
    dress(axes, loads)
    figure.suptitle("Broker's CPU per delivered message, microseconds", x=0.01, ha="left", fontsize=13)
    axes.set_title(subtitle, loc="left", fontsize=9, color=FAINT)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def label(value: float) -> str:
    """Return a figure as it stands above its dot."""
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def draw_row(axes: Any, row: int, values: dict[str, float]) -> None:
    """Draw the dots of one workload, each with its figure above it."""
    shown = {name: values[name] for name in COLOURS if values.get(name)}
    if shown:
        axes.plot([min(shown.values()), max(shown.values())], [row, row], color=LINE, linewidth=3, zorder=1)
    for name, value in shown.items():
        axes.plot(value, row, "o", color=COLOURS[name], markersize=9, zorder=3)
        axes.annotate(
            label(value), (value, row), (0, 8), textcoords="offset points", ha="center", fontsize=9, color=COLOURS[name]
        )
    if values.get(server.FLOOR):
        axes.plot(values[server.FLOOR], row, "|", color=FAINT, markersize=10, zorder=2)


def dress(axes: Any, loads: list[str]) -> None:
    """Set scale, labels and legend."""
    axes.set_yticks(range(len(loads)), loads)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.1, y=0.08)
    axes.xaxis.set_major_formatter(lambda value, _place: f"{value:g}")
    axes.set_xlabel("logarithmic; less is better", fontsize=9, color=FAINT)
    axes.grid(axis="x", color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.4, -0.14), ncols=3, fontsize=9)
