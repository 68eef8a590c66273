"""The proof on tables of a few rows: it holds for what is right, and each kind of mistake is seen where it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from folkmoot.demo.alert import Alert
from folkmoot.demo.expected import expected_gold
from folkmoot.demo.flight import Event
from folkmoot.demo.proof import Proof, prove

HOUR = "2013-01-01T10:00:00Z"
WEATHER = {"hour": HOUR, "temp": 40.0, "wind_speed": 3.0, "precip": 0.0, "visib": 10.0}
PAIRS = pa.map_(pa.string(), pa.string())


def flight(number: float, delay: float) -> Event:
    fields = {"time": HOUR, "hour": HOUR, "dest": "LAX", "cancelled": False, "flight": number, "dep_delay": delay}
    return Event(HOUR, f"nyc/flights/JFK/AA/N{number:.0f}", json.dumps(fields).encode())


def alert(number: float, delay: float) -> Alert:
    fields = {"time": HOUR, "dest": "LAX", "flight": number, "tailnum": f"N{number:.0f}", "dep_delay": delay}
    return Alert("alerts/JFK/AA", json.dumps(fields).encode(), 0.0)


FLIGHTS = [flight(1.0, 150.0), flight(2.0, 5.0), Event(HOUR, "nyc/weather/JFK", json.dumps(WEATHER).encode())]
BROKEN = [Event(HOUR, "nyc/flights/JFK/AA/N3", b"late")]
ALERTS = [alert(1.0, 150.0)]


class Tables:
    """What is in the tables; right as it is made."""

    def __init__(self) -> None:
        self.bronze = ["0", "1", "2", "3"]
        self.silver = [0, 1, 2]
        self.quarantine = [(event.topic, event.payload) for event in BROKEN]
        self.gold: Any = expected_gold(FLIGHTS)

    def write(self, folder: Path) -> None:
        """Write them below `folder`."""
        pairs = [[("folkmoot-producer", "p"), ("folkmoot-seq", number)] for number in self.bronze]
        tables = {
            "bronze": pa.table({"user_properties": pa.array(pairs, type=PAIRS)}),
            "silver": pa.table({"partition": [0] * len(self.silver), "offset": self.silver}),
            "quarantine": pa.table(
                {"topic": [row[0] for row in self.quarantine], "payload": [row[1] for row in self.quarantine]}
            ),
            "gold": pa.Table.from_pandas(self.gold, preserve_index=False),
        }
        for name, rows in tables.items():
            write_deltalake(str(folder / "tables" / name), rows)


def proof_of(folder: Path, tables: Tables, alerts: Sequence[Alert] = ALERTS) -> Proof:
    tables.write(folder)
    fleet: Any = SimpleNamespace(published=4, acknowledged=4, devices=[SimpleNamespace(producer="p", published=4)])
    return prove(fleet, FLIGHTS, BROKEN, alerts, folder)


def test_it_holds_for_what_is_right(tmp_path: Path) -> None:
    proof = proof_of(tmp_path, Tables())
    assert proof.holds
    assert (proof.bronze, proof.silver, proof.quarantine, proof.gold_rows, proof.gold_flights) == (4, 3, 1, 1, 2)
    assert (proof.alerts, proof.late_flights, proof.lost, proof.duplicates) == (1, 1, 0, 0)


@pytest.mark.parametrize(("rows", "lost", "duplicates"), [(["0", "1", "2"], 1, 0), (["0", "1", "2", "2"], 1, 1)])
def test_messages_of_bronze(tmp_path: Path, rows: list[str], lost: int, duplicates: int) -> None:
    tables = Tables()
    tables.bronze = rows
    proof = proof_of(tmp_path, tables)
    assert (proof.lost, proof.duplicates, proof.holds) == (lost, duplicates, False)


@pytest.mark.parametrize(("rows", "duplicates"), [([0, 1], 0), ([0, 1, 1], 1), ([0, 1, 2, 2], 1)])
def test_rows_of_silver(tmp_path: Path, rows: list[int], duplicates: int) -> None:
    tables = Tables()
    tables.silver = rows
    proof = proof_of(tmp_path, tables)
    assert (proof.duplicates, proof.holds) == (duplicates, False)


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ([("nyc/flights/JFK/AA/N3", b"late!")], 2),
        ([("nyc/flights/JFK/AA/N3", b"late")] * 2, 1),
        ([("nyc/flights/JFK/AA/N3", b"late"), (FLIGHTS[0].topic, FLIGHTS[0].payload)], 1),
    ],
)
def test_rows_of_the_quarantine(tmp_path: Path, rows: list[tuple[str, bytes]], wrong: int) -> None:
    tables = Tables()
    tables.quarantine = rows
    proof = proof_of(tmp_path, tables)
    assert (proof.quarantine_wrong, proof.holds) == (wrong, False)


def test_figures_of_gold(tmp_path: Path) -> None:
    tables = Tables()
    tables.gold = tables.gold.assign(max_delay=151.0)
    proof = proof_of(tmp_path, tables)
    assert (proof.gold_wrong, proof.holds) == (1, False)


@pytest.mark.parametrize(
    ("alerts", "lost", "duplicates"),
    [([], 1, 0), (ALERTS * 2, 0, 1), ([alert(1.0, 151.0)], 1, 1), ([*ALERTS, alert(2.0, 5.0)], 0, 1)],
)
def test_alerts(tmp_path: Path, alerts: list[Alert], lost: int, duplicates: int) -> None:
    proof = proof_of(tmp_path, Tables(), alerts)
    assert (proof.lost, proof.duplicates, proof.holds) == (lost, duplicates, False)
