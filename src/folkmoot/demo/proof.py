"""What became of the messages: counted in the tables themselves, with `deltalake` and not with Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from deltalake import DeltaTable

from folkmoot.demo.fleet import Fleet

__all__ = ["Proof", "prove"]


class Proof:
    """Counts: messages published and acknowledged, rows of bronze and silver, flights in gold, lost and repeated."""

    def __init__(self) -> None:
        self.published = 0
        self.acknowledged = 0
        self.bronze = 0
        self.silver = 0
        self.gold_flights = 0
        self.lost = 0
        self.duplicates = 0

    @property
    def holds(self) -> bool:
        """Whether every published message is acknowledged and in each table exactly once."""
        return (
            self.lost == 0
            and self.duplicates == 0
            and self.published == self.acknowledged == self.bronze == self.silver
        )


def prove(fleet: Fleet, folder: Path) -> Proof:
    """Compare the tables with what the fleet has published: each message by its producer and number."""
    proof = Proof()
    proof.published = fleet.published
    proof.acknowledged = fleet.acknowledged
    seen: Counter[tuple[str, str]] = Counter()
    table = DeltaTable(str(folder / "tables" / "bronze")).to_pyarrow_table(columns=["user_properties"])
    for pairs in table.column("user_properties").to_pylist():
        properties = dict(pairs)
        seen[(properties["folkmoot-producer"], properties["folkmoot-seq"])] += 1
    proof.bronze = seen.total()
    proof.duplicates = proof.bronze - len(seen)
    wanted = {(device.producer, str(number)) for device in fleet.devices for number in range(device.published)}
    proof.lost = len(wanted - seen.keys())
    proof.silver = DeltaTable(str(folder / "tables" / "silver")).to_pyarrow_table(columns=["offset"]).num_rows
    flights = DeltaTable(str(folder / "tables" / "gold")).to_pyarrow_table(columns=["flights"]).column("flights")
    proof.gold_flights = sum(flights.to_pylist())
    return proof
