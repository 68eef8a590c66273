"""The last words: they say that the promise holds only when it does, and what is wrong when it does not."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from folkmoot.demo.alert import Alert
from folkmoot.demo.closing import Closing
from folkmoot.demo.proof import Proof

TAKEN_S = 1772366400.0  # 2026-03-01T12:00:00Z
HOLDS = "every message exactly once"


def proof(**wrong: int) -> Proof:
    """A proof that holds, but for what is said."""
    found = Proof()
    found.published = found.acknowledged = found.bronze = 10
    found.silver, found.broken, found.quarantine = 8, 2, 2
    found.alerts = found.late_flights = 3
    for name, value in wrong.items():
        assert hasattr(found, name)
        setattr(found, name, value)
    return found


def said(found: Proof, refused: list[str]) -> str:
    console = Console(file=io.StringIO(), width=150)
    payload = json.dumps({"taken": "2026-03-01T12:00:00.000Z"}).encode()
    alerts = [Alert("alerts/JFK/AA", payload, TAKEN_S + span_s) for span_s in (1.0, 2.5, 30.0)]
    Closing(console, Path("run")).figures(found, alerts, refused)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_it_says_that_all_is_right_and_how_long_alerts_took() -> None:
    text = said(proof(), [])
    assert HOLDS in text
    assert "2.5 s after the flight's message, 30 s at most" in text


@pytest.mark.parametrize(
    "wrong",
    [
        {"lost": 1}, {"duplicates": 1}, {"gold_wrong": 1}, {"quarantine_wrong": 1}, {"acknowledged": 9}, {"bronze": 9},
        {"silver": 9}, {"quarantine": 1}, {"alerts": 2},
    ],
)  # fmt: skip
def test_it_says_that_the_promise_does_not_hold(wrong: dict[str, int]) -> None:
    text = said(proof(**wrong), [])
    assert HOLDS not in text
    assert "does not hold" in text


def test_a_refused_message_is_told() -> None:
    text = said(proof(), ["Quota exceeded"])
    assert HOLDS not in text
    assert "Quota exceeded" in text
