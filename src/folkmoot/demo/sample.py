"""The first rows of each table, as text. Reads with `deltalake`, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from rich import box
from rich.table import Table

from folkmoot.demo.alert import Alert

__all__ = [
    "alert_table",
    "availability_rows",
    "availability_table",
    "bronze_table",
    "quarantine_table",
    "silver_table",
]

_ROWS = 3
_ALERTS = 5
_CHARACTERS = 56
_SILVER = ("partition", "offset", "kind", "origin", "carrier", "tailnum", "time", "dest", "dep_delay", "air_time")
_GROUPS = ("name", "service_s", "down_s", "gaps", "availability", "cause", "messages", "share", "p50_us", "p99_us")


def bronze_table(folder: Path, count: int) -> Table:
    """Return the first messages of bronze; it has `count`."""
    return _delta(folder, "bronze", f"bronze: {count:,} messages", ("partition", "offset", "topic", "payload"))


def silver_table(folder: Path, count: int) -> Table:
    """Return the first events of silver; it has `count`."""
    return _delta(folder, "silver", f"silver: {count:,} events as columns (some of them)", _SILVER)


def quarantine_table(folder: Path, count: int) -> Table:
    """Return a row of the quarantine for each kind of reason; it has `count` rows."""
    rows = DeltaTable(str(folder / "tables" / "quarantine")).to_pyarrow_table().to_pylist()
    kinds = {row["step"] if row["expectation"] is None else row["expectation"]: row for row in rows}
    reasons = {row["reason"].partition("'")[0]: row for row in rows}
    shown = list({id(row): row for row in [*reasons.values(), *kinds.values()]}.values())
    return _table(f"quarantine: {count:,} invalid payloads", ("topic", "payload", "reason"), shown)


def alert_table(alerts: Sequence[Alert]) -> Table:
    """Return the alerts with the longest delays, as the subscriber received them."""
    rows = [{"topic": alert.topic, **json.loads(alert.payload)} for alert in alerts]
    rows.sort(key=lambda row: -row["dep_delay"])
    title = f"alerts/#: {len(alerts):,} messages that Spark published, the longest delays"
    return _table(title, ("topic", "time", "dest", "flight", "tailnum", "dep_delay"), rows[:_ALERTS])


def availability_rows(report: Path) -> list[dict[str, Any]]:
    """Return the rows by day of the report on availability, for groups that wanted service."""
    rows = DeltaTable(str(report / "availability")).to_pyarrow_table().to_pylist()
    days = [row for row in rows if row["period"] == "day" and row["service_s"] is not None]
    days.sort(key=lambda row: (row["start"], row["kind"], row["name"]))
    return days


def availability_table(report: Path) -> Table:
    """Return the rows of the report on availability as a table."""
    days = availability_rows(report)
    for row in days:
        row["name"] = f"{row['kind']} {row['name']}"
    return _table("availability: what clients and topics had, from the events of the nodes", _GROUPS, days)


def _delta(folder: Path, name: str, title: str, columns: Sequence[str]) -> Table:
    dataset = DeltaTable(str(folder / "tables" / name)).to_pyarrow_dataset()
    return _table(title, columns, dataset.head(_ROWS, columns=list(columns)).to_pylist())


def _table(title: str, columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> Table:
    found = list(rows)
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        number = any(isinstance(row[name], int | float) for row in found)
        shown.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in found:
        shown.add_row(*[_cell(row[name]) for name in columns])
    return shown


def _cell(value: Any) -> str:
    """Return a value as one short line of text."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 1] + "…"
