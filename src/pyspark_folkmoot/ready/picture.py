"""The report on availability as a picture: down time and nines by day, messages within the objective by day."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

__all__ = ["plot"]

ALL: Final = "(all)"
GROUPS_MAX: Final = 8


def plot(rows: list[dict[str, Any]], path: Path, target: float) -> None:
    """Draw the rows of a report on availability; needs matplotlib (the extra `demo`)."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    days = [row for row in rows if row["period"] == "day"]
    figure, (down, share) = plt.subplots(2, 1, figsize=(10, 7), layout="constrained")
    for name, line in _lines(days, "clients", "down_s"):
        down.plot(*line, marker="o", label=name)
    down.set(title="Clients without service", ylabel="seconds of all clients per day")
    for name, line in _lines(days, "topics", "share"):
        share.plot(*line, marker="o", label=name)
    share.axhline(target, color="black", linestyle="--", linewidth=1, label=f"target {target:.0%}")
    share.set(title="Messages acknowledged within the objective", ylabel="share", ylim=(None, 1.002))
    for axes in (down, share):
        axes.grid(alpha=0.3)
        axes.legend(loc="best", fontsize=8)
        axes.tick_params(axis="x", rotation=30)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _lines(rows: list[dict[str, Any]], kind: str, column: str) -> list[tuple[str, tuple[list[str], list[float]]]]:
    """Return a line by day for each group, those with most to show first."""
    found: dict[str, tuple[list[str], list[float]]] = {}
    for row in sorted(rows, key=lambda row: str(row["start"])):
        if row["kind"] == kind and row[column] is not None:
            starts, values = found.setdefault(row["name"], ([], []))
            starts.append(str(row["start"]))
            values.append(float(row[column]))
    ranked = sorted(found.items(), key=lambda line: (line[0] != ALL, -max(line[1][1], default=0.0)))
    return ranked[:GROUPS_MAX]
