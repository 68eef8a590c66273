"""The proof: counts messages in the tables, with `deltalake` and pandas, not with Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from folkmoot.demo.alert import Alert
from folkmoot.demo.expected import alert_counts, differences, expected_alerts, expected_gold
from folkmoot.demo.fleet import Fleet
from folkmoot.demo.flight import Event

__all__ = ["Proof", "prove"]


class Proof:
    """The counts: messages published and acknowledged, rows of the tables, alerts; lost, duplicate and wrong ones."""

    def __init__(self) -> None:
        self.published = 0
        self.acknowledged = 0
        self.broken = 0
        self.bronze = 0
        self.silver = 0
        self.quarantine = 0
        self.quarantine_wrong = 0
        self.gold_rows = 0
        self.gold_flights = 0
        self.gold_wrong = 0
        self.alerts = 0
        self.late_flights = 0
        self.lost = 0
        self.duplicates = 0

    @property
    def holds(self) -> bool:
        """Whether every message is acknowledged and exactly once where it belongs, and gold is right."""
        return (
            self.lost == 0
            and self.duplicates == 0
            and self.gold_wrong == 0
            and self.quarantine_wrong == 0
            and self.published == self.acknowledged == self.bronze == self.silver + self.broken
            and self.quarantine == self.broken
            and self.alerts == self.late_flights
        )


def prove(
    fleet: Fleet, flights: Sequence[Event], broken: Sequence[Event], alerts: Sequence[Alert], folder: Path
) -> Proof:
    """Compare the tables and alerts with what was published.

    Bronze is compared by producer and number, silver by partition and offset, the quarantine by topic and bytes, gold
    and alerts with the expected ones. `lost` and `duplicates` are sums over bronze, silver and alerts.
    """
    proof = Proof()
    proof.published = fleet.published
    proof.acknowledged = fleet.acknowledged
    proof.broken = len(broken)
    wanted = Counter((device.producer, str(number)) for device in fleet.devices for number in range(device.published))
    proof.bronze = _compare(proof, _messages(folder), wanted)
    silver = Counter(zip(*_columns(folder, "silver", "partition", "offset"), strict=True))
    proof.silver = silver.total()
    proof.duplicates += silver.total() - len(silver)
    found = Counter(zip(*_columns(folder, "quarantine", "topic", "payload"), strict=True))
    sent = Counter((event.topic, event.payload) for event in broken)
    proof.quarantine = found.total()
    proof.quarantine_wrong = (found - sent).total() + (sent - found).total()
    late = expected_alerts(flights)
    proof.late_flights = late.total()
    proof.alerts = _compare(proof, alert_counts((alert.topic, alert.payload) for alert in alerts), late)
    gold = DeltaTable(str(folder / "tables" / "gold")).to_pyarrow_table().to_pandas()
    proof.gold_rows = len(gold)
    proof.gold_flights = int(gold["flights"].sum())
    proof.gold_wrong = differences(gold, expected_gold(flights))
    return proof


def _compare(proof: Proof, found: Counter[Any], wanted: Counter[Any]) -> int:
    """Add lost messages and duplicates to the proof, and return how many were found."""
    proof.lost += (wanted - found).total()
    proof.duplicates += (found - wanted).total()
    return found.total()


def _messages(folder: Path) -> Counter[tuple[str, str]]:
    (pairs,) = _columns(folder, "bronze", "user_properties")
    found = (dict(properties) for properties in pairs)
    return Counter((properties["folkmoot-producer"], properties["folkmoot-seq"]) for properties in found)


def _columns(folder: Path, name: str, *columns: str) -> list[list[Any]]:
    """Return each of these columns of a table as a list."""
    table = DeltaTable(str(folder / "tables" / name)).to_pyarrow_table(columns=list(columns))
    return [table.column(column).to_pylist() for column in columns]
