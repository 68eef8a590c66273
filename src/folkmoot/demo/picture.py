"""The figures of the table gold: a table of text, and a plot as PNG."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from rich.table import Table

__all__ = ["gold_rows", "plot", "table"]


def gold_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the table gold."""
    rows: list[dict[str, Any]] = DeltaTable(str(folder / "tables" / "gold")).to_pyarrow_table().to_pylist()
    return rows


def table(rows: list[dict[str, Any]], count: int = 12) -> Table:
    """Return the carriers and airports with the largest mean delay, with the wind at their departures."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[(row["carrier"], row["origin"])].append(row)
    shown = Table(title="Departure delays by carrier and airport", title_justify="left")
    for name in ("carrier", "from", "flights", "cancelled", "mean delay (min)", "worst (min)", "mean wind (mph)"):
        shown.add_column(name, justify="left" if name in ("carrier", "from") else "right")
    ranked = sorted(groups.items(), key=lambda group: -_mean_delay(group[1]))
    for (carrier, origin), hours in [group for group in ranked if _flights(group[1]) >= 20][:count]:
        wind = _mean([(row["wind_speed"], row["flights"]) for row in hours])
        worst = max((row["max_delay"] for row in hours if row["max_delay"] is not None), default=0.0)
        cancelled = sum(row["cancelled"] for row in hours)
        figures = (f"{_flights(hours):,}", f"{cancelled:,}", f"{_mean_delay(hours):.1f}", f"{worst:.0f}", f"{wind:.1f}")
        shown.add_row(carrier, origin, *figures)
    return shown


def _flights(rows: list[dict[str, Any]]) -> int:
    return sum(int(row["flights"]) for row in rows)


def _mean_delay(rows: list[dict[str, Any]]) -> float:
    return _mean([(row["mean_delay"], row["flights"] - row["cancelled"]) for row in rows])


def _mean(values: list[tuple[float | None, int]]) -> float:
    known = [(value, weight) for value, weight in values if value is not None and weight > 0]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else 0.0


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the mean delay by day and airport, and by wind speed."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (by_day, by_wind) = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    for origin in sorted({row["origin"] for row in rows}):
        days: dict[datetime, list[dict[str, Any]]] = defaultdict(list)
        winds: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            if row["origin"] == origin:
                days[row["hour"].replace(hour=0, tzinfo=None)].append(row)
                if row["wind_speed"] is not None and row["wind_speed"] < 40:
                    winds[int(row["wind_speed"] // 5) * 5].append(row)
        by_day.plot(sorted(days), [_mean_delay(days[day]) for day in sorted(days)], label=origin)
        by_wind.plot(sorted(winds), [_mean_delay(winds[wind]) for wind in sorted(winds)], marker="o", label=origin)
    by_day.set(title="Mean departure delay per day", ylabel="minutes")
    by_wind.set(title="Mean departure delay by wind of the hour", xlabel="wind (mph)", ylabel="minutes")
    for axes in (by_day, by_wind):
        axes.grid(alpha=0.3)
        axes.legend()
    by_day.tick_params(axis="x", rotation=30)
    figure.savefig(path, dpi=110)
    plt.close(figure)
