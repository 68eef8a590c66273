"""The chart of the README: CPU per delivered message, Folkmoot and Mosquitto.

Owns the picture. It never measures: it is drawn from the figures of the same run.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import server
from benchmarks.rounds import Figures, median
from folkmoot.client.workload import TRANSIENT

INK = "#30343b"
COLOURS = {server.FOLKMOOT: "#0b7a75", server.MOSQUITTO: "#c8553d"}


def draw(figures: Figures, path: Path, subtitle: str) -> None:
    """Draw horizontal bars on a logarithmic scale from the figures of the transient section, as SVG."""
    import matplotlib as mpl

    mpl.use("svg")
    # The same figures give the same file.
    mpl.rcParams.update({"svg.hashsalt": "folkmoot", "font.family": "DejaVu Sans", "text.color": INK})
    from matplotlib import pyplot as plt

    loads = [load.name for load in TRANSIENT if load.name in figures]
    figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
    height = 0.38
    for step, name in enumerate(COLOURS):
        values = [median(figures[load].get(name, {}), "cpu_us") for load in loads]
        places = [row + (step - 0.5) * height for row in range(len(loads))]
        bars = axes.barh(places, values, height, color=COLOURS[name], label=name)
        axes.bar_label(bars, [f"{value:.3g}" if value else "" for value in values], padding=4, fontsize=9, color=INK)
    axes.set_yticks(range(len(loads)), loads)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("broker's CPU per delivered message, microseconds (logarithmic; less is better)")
    axes.margins(x=0.12)
    axes.xaxis.set_major_formatter(lambda value, _place: f"{value:g}")
    axes.grid(axis="x", color="#d9dce1", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title(subtitle, loc="left", fontsize=9, color="#6b7078")
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
