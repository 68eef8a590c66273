"""A look into each table: the rows that say most, in cells of one line."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from rich.console import Console
from rich.table import Table

from folkmoot.demo.alert import Alert
from folkmoot.demo.sample import alert_table, availability_table, bronze_table, quarantine_table


def lines(table: Table) -> list[str]:
    """The rows of a table as they are printed."""
    console = Console(width=300)
    with console.capture() as capture:
        console.print(table)
    heading, _, rows = capture.get().partition("─")
    assert heading
    return [line for line in rows.strip("─ \n").splitlines() if line.strip()]


def test_bronze_shows_a_few_rows_and_cuts_what_is_long(tmp_path: Path) -> None:
    rows = [{"partition": 0, "offset": number, "topic": "nyc/t", "payload": b"x" * 500} for number in range(50)]
    write_deltalake(str(tmp_path / "tables" / "bronze"), pa.Table.from_pylist(rows))
    found = lines(bronze_table(tmp_path, 50))
    assert 1 <= len(found) <= 5
    assert all("…" in line and "x" * 100 not in line for line in found)


def test_the_quarantine_shows_each_kind_of_reason(tmp_path: Path) -> None:
    kinds = [("no JSON object", None), ("field 'dep_delay' is 'two hours' and no DOUBLE", None), ("not known", "known")]
    rows = [
        {"topic": f"nyc/{number}", "payload": b"\xff", "reason": reason, "step": "events", "expectation": expectation}
        for number in range(10)
        for reason, expectation in kinds
    ]
    write_deltalake(str(tmp_path / "tables" / "quarantine"), pa.Table.from_pylist(rows))
    found = "\n".join(lines(quarantine_table(tmp_path, 30)))
    assert all(found.count(reason) == 1 for reason, _ in kinds)


def test_alerts_are_those_of_the_longest_delays() -> None:
    alerts = []
    for delay in range(121, 141):
        fields = {"time": "t", "dest": "LAX", "flight": 1.0, "tailnum": "N1", "dep_delay": float(delay)}
        alerts.append(Alert("alerts/JFK/AA", json.dumps(fields).encode(), 0.0))
    found = lines(alert_table(alerts))
    assert "140" in found[0]
    assert "139" in found[1]
    assert len(found) < 20


def test_availability_has_days_and_a_dash_where_there_is_no_figure(tmp_path: Path) -> None:
    row = {"start": date(2026, 3, 1), "kind": "clients", "name": "fleet", "service_s": 100.0, "down_s": 1.5, "gaps": 2}
    row |= {"availability": 0.985, "cause": "node lost n1", "messages": None, "share": None}
    row |= {"p50_us": None, "p99_us": None}
    rows = [{**row, "period": period} for period in ("day", "month")]
    columns = {name: pa.array([one[name] for one in rows], kind_of(name)) for name in rows[0]}
    write_deltalake(str(tmp_path / "availability"), pa.table(columns))
    (found,) = lines(availability_table(tmp_path))
    assert "clients fleet" in found
    assert "node lost n1" in found
    assert "-" in found


def kind_of(name: str) -> pa.DataType | None:
    """The type of a column that is empty here."""
    return pa.int64() if name in ("messages", "p50_us", "p99_us") else pa.float64() if name == "share" else None
