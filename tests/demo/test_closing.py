"""The last words: they say that the promise holds only when it does, and what is wrong when it does not."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
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


def closing() -> tuple[Closing, io.StringIO]:
    out = io.StringIO()
    return Closing(Console(file=out, width=150), Path("run")), out


def said(found: Proof, refused: list[str]) -> str:
    last, out = closing()
    last.figures(found, refused)
    return out.getvalue()


def alert(taken_s: float, span_s: float) -> Alert:
    taken = datetime.fromtimestamp(TAKEN_S + taken_s, UTC).isoformat(timespec="milliseconds")
    return Alert("alerts/JFK/AA", json.dumps({"taken": taken}).encode(), TAKEN_S + taken_s + span_s)


def test_alerts_that_waited_for_the_driver_are_told_apart() -> None:
    alerts = [alert(0.0, 1.0), alert(1.0, 2.5), alert(2.0, 4.0), alert(10.0, 30.0), alert(20.0, 20.0)]
    last, out = closing()
    last.delays(alerts, (TAKEN_S + 10.0, TAKEN_S + 35.0))
    assert "came 2.5 s after" in out.getvalue()
    assert "the 2 alerts of the 25 s" in out.getvalue()
    assert "30 s at most" in out.getvalue()


def test_without_a_kill_no_alert_has_waited() -> None:
    last, out = closing()
    last.delays([alert(0.0, 1.0)], None)
    assert "came 1.0 s after" in out.getvalue()
    assert "driver" not in out.getvalue()


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


def test_it_says_that_all_is_right() -> None:
    assert HOLDS in said(proof(), [])


def test_a_refused_message_is_told() -> None:
    text = said(proof(), ["Quota exceeded"])
    assert HOLDS not in text
    assert "Quota exceeded" in text
