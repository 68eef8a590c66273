"""What became of the messages: counted in the tables themselves, with `deltalake` and pandas and not with Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from deltalake import DeltaTable

from folkmoot.demo.expected import differences, expected_gold
from folkmoot.demo.fleet import Fleet
from folkmoot.demo.flight import Event

__all__ = ["Proof", "prove"]


class Proof:
    """Counts: messages published and acknowledged, rows of the tables, lost, repeated, wrong in gold."""

    def __init__(self) -> None:
        self.published = 0
        self.acknowledged = 0
        self.bronze = 0
        self.silver = 0
        self.gold_rows = 0
        self.gold_flights = 0
        self.gold_wrong = 0
        self.lost = 0
        self.duplicates = 0

    @property
    def holds(self) -> bool:
        """Whether every published message is acknowledged and in each table exactly once, and gold is right."""
        return (
            self.lost == 0
            and self.duplicates == 0
            and self.gold_wrong == 0
            and self.published == self.acknowledged == self.bronze == self.silver
        )


def prove(fleet: Fleet, events: Sequence[Event], folder: Path) -> Proof:
    """Compare the tables with what was published: each message by its producer and number, gold by computing it."""
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
    gold = DeltaTable(str(folder / "tables" / "gold")).to_pyarrow_table().to_pandas()
    proof.gold_rows = len(gold)
    proof.gold_flights = int(gold["flights"].sum())
    proof.gold_wrong = differences(gold, expected_gold(events))
    return proof
