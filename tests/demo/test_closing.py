"""The last words: they say that the promise holds only when it does, and what is wrong when it does not."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from folkmoot.cli.place import Place
from folkmoot.demo.alert import Alert
from folkmoot.demo.closing import Closing, Delays, availability_lines
from folkmoot.demo.driver import Driver, Report
from folkmoot.demo.proof import Proof
from folkmoot.demo.trouble import Loss

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


def test_delays_tell_what_the_restart_cost() -> None:
    # Killed at 10 s; the next alert comes at 40 s. The last one waits for it too, but only from 38 s on.
    alerts = [
        alert(0.0, 1.0), alert(1.0, 2.5), alert(2.0, 4.0), alert(9.0, 31.0), alert(20.0, 21.0), alert(38.0, 5.0),
    ]  # fmt: skip
    found = Delays(alerts, (TAKEN_S + 10.0, TAKEN_S + 35.0))
    assert found.restart_s == pytest.approx(30.0)
    assert found.median_s == pytest.approx(4.5)  # of 1, 2.5, 4, 5, 21, 31
    assert found.calm_s == pytest.approx(1.75)  # of 1, 2.5, 4, 1 (31 - 30), 1 (21 - 20), 3 (5 - 2)
    assert found.waited == 3
    assert found.longest_s == pytest.approx(31.0)


def test_an_alert_on_its_way_at_the_kill_does_not_end_the_restart() -> None:
    found = Delays([alert(9.0, 1.2), alert(12.0, 20.0)], (TAKEN_S + 10.0, TAKEN_S + 30.0))
    assert found.restart_s == pytest.approx(22.0)


def test_the_share_of_the_restart_is_told() -> None:
    last, out = closing()
    last.delays(Delays([alert(9.0, 31.0)], (TAKEN_S + 10.0, TAKEN_S + 35.0)), "started in 20.0 s: x", str, 82.0)
    assert "alert latency: 31.0 s in the median, 30.0 s of it the restart" in out.getvalue()
    assert "at 82.0: 30.0 s to the next alert, 1 waited, 31.0 s at most" in out.getvalue()
    assert "it started in 20.0 s" in out.getvalue()


def test_without_a_kill_no_alert_has_waited() -> None:
    found = Delays([alert(0.0, 1.0)], None)
    assert (found.median_s, found.calm_s, found.restart_s, found.waited) == (1.0, 1.0, None, 0)
    last, out = closing()
    last.delays(found, "", str, None)
    assert "alert latency: 1.0 s in the median" in out.getvalue()
    assert "restart" not in out.getvalue()


def test_without_alerts_there_is_no_latency() -> None:
    assert Delays([], (0.0, 10.0)).median_s is None


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


def rows(**figures: Any) -> list[dict[str, Any]]:
    """The rows for all clients and all topics, and one of a group."""
    clients = {"kind": "clients", "service_s": 123_456.7, "down_s": 98.76, "gaps": 1234, "availability": 0.9992}
    topics = {"kind": "topics", "messages": 12_345_678, "share": 0.9876, "p50_us": 1234, "p99_us": 98_765}
    all_of = {"name": "(all)", "cause": "node lost n1 view 12"}
    return [{**clients, **all_of, **figures}, {**topics, **all_of}, {**clients, "name": "fleet"}]


def test_availability_is_a_line_for_clients_and_one_for_messages() -> None:
    assert availability_lines(rows()) == [
        "clients in service: 99.920% of 123,457 s, 1,234 gaps, 98.8 s in all; cause: node lost n1 view 12",
        "acknowledged in time: 98.76% of 12,345,678 messages; p50 1.2 ms, p99 98.8 ms",
    ]
    calm = availability_lines(rows(gaps=0, availability=1.0, down_s=0.0, cause=None))
    assert calm[0] == "clients in service: 100.000% of 123,457 s, 0 gaps"


def test_all_of_it_fits_on_one_screen() -> None:
    out = io.StringIO()
    last = Closing(Console(file=out, width=100), Path("run"))
    found = proof(published=1_234_567, acknowledged=1_234_567, bronze=1_234_567, silver=1_234_555, gold_rows=123_456)
    last.figures(found, ["Quota exceeded"])
    for line in availability_lines(rows()):
        out.write(line + "\n")
    first, second = (
        Loss(SimpleNamespace(place=Place(name, {})), dead_s)  # type: ignore[arg-type]
        for name, dead_s in (("n1", 82.0), ("n2", 109.0))
    )
    first.back_s, first.whole_s = 97.0, 99.5
    fleet: Any = SimpleNamespace(longest_pause_s=lambda _begin_s, _end_s: 12.3)
    last.losses([first, second], fleet, 5.0, 130.0, lambda at_s: f"{at_s // 60:.0f}:{at_s % 60:02.0f}")
    alerts = [alert(9.0, 131.0), alert(20.0, 121.0), alert(38.0, 125.0)]
    started = "started in 123.4 s: Spark's session 41.2 s, analysis 22.3 s, plans 14.5 s, queries 45.6 s"
    last.delays(Delays(alerts, (TAKEN_S + 10.0, TAKEN_S + 135.0)), started, str, 82.0)
    driver = Driver(Path("run"))
    last.further(SimpleNamespace(folder=Path("run/cluster")), driver, Report(Path("run")))  # type: ignore[arg-type]
    lines = out.getvalue().splitlines()
    assert len(lines) <= 24
    assert max(len(line) for line in lines) <= 100, max(lines, key=len)
    order = [
        next(n for n, line in enumerate(lines) if word in line) for word in ("lost", "in service", "alert lat", "Pict")
    ]
    assert order == sorted(order), "the important first"
