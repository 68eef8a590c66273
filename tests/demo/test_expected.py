"""Gold in pandas: figures that a person can work out, and a comparison that sees every kind of mistake."""

from __future__ import annotations

import json
from typing import Any

import pytest

from folkmoot.demo.expected import alert_counts, differences, expected_alerts, expected_gold
from folkmoot.demo.flight import Event

HOUR = "2013-01-01T10:00:00Z"


def flight(carrier: str, delay: float | None, origin: str = "JFK") -> Event:
    fields = {"time": HOUR, "hour": HOUR, "dest": "LAX", "cancelled": delay is None, "dep_delay": delay}
    return Event(HOUR, f"nyc/flights/{origin}/{carrier}/N1", json.dumps(fields).encode())


def weather(origin: str, wind: float) -> Event:
    fields = {"time": HOUR, "hour": HOUR, "temp": 40.0, "wind_speed": wind, "precip": None, "visib": 10.0}
    return Event(HOUR, f"nyc/weather/{origin}", json.dumps(fields).encode())


@pytest.fixture
def gold() -> Any:
    busy = [flight("AA", delay) for delay in (1.0, 2.0, 2.0, None)]
    others = [flight("UA", None), flight("AA", 7.0, "EWR")]
    return expected_gold([*busy, *others, weather("JFK", 12.5), weather("LGA", 3.0)])


def test_figures_of_each_group(gold: Any) -> None:
    rows = {(row["carrier"], row["origin"]): row for row in gold.to_dict("records")}
    assert set(rows) == {("AA", "JFK"), ("UA", "JFK"), ("AA", "EWR")}
    busy = rows["AA", "JFK"]
    assert (busy["flights"], busy["cancelled"], busy["max_delay"], busy["wind_speed"]) == (4, 1, 2.0, 12.5)
    assert busy["mean_delay"] == pytest.approx(5 / 3)
    none = rows["UA", "JFK"]
    assert (none["flights"], none["cancelled"]) == (1, 1)
    assert none["mean_delay"] != none["mean_delay"]  # not a number: no flight left
    assert rows["AA", "EWR"]["wind_speed"] != rows["AA", "EWR"]["wind_speed"]


def test_rounded_and_in_another_order_it_is_the_same(gold: Any) -> None:
    found = gold.iloc[::-1].assign(mean_delay=gold["mean_delay"].round(2))
    assert differences(found, gold) == 0


@pytest.mark.parametrize(
    ("column", "wrong"), [("flights", 5), ("cancelled", 0), ("mean_delay", 1.68), ("max_delay", 3.0), ("temp", None)]
)
def test_a_wrong_figure_is_seen(gold: Any, column: str, wrong: object) -> None:
    found = gold.copy()
    (place,) = found.index[(found["carrier"] == "AA") & (found["origin"] == "JFK")]
    found.loc[place, column] = wrong
    assert differences(found, gold) >= 1


def test_missing_and_repeated_rows_are_seen(gold: Any) -> None:
    assert differences(gold.iloc[1:], gold) == 1
    assert differences(gold.iloc[[0, 0, 1, 2]], gold) == 1
    assert differences(gold.iloc[[0, 0, 2]], gold) >= 1


def alert(carrier: str, delay: float, time: str = "2013-01-01T10:00:00.000Z") -> tuple[str, bytes]:
    """An alert as the pipeline writes it."""
    fields = {"time": time, "dest": "LAX", "flight": 11.0, "tailnum": "N1", "dep_delay": delay}
    return f"alerts/JFK/{carrier}", json.dumps({**fields, "taken": "2026-03-01T12:00:00Z"}).encode()


def late(carrier: str, delay: float | None) -> Event:
    found = flight(carrier, delay)
    return Event(HOUR, found.topic, json.dumps({**json.loads(found.payload), "flight": 11.0}).encode())


def test_an_alert_for_each_flight_that_is_more_than_two_hours_late() -> None:
    flights = [late("AA", 121.0), late("UA", 300.0), late("AA", 120.0), late("AA", 3.0), late("AA", None)]
    expected = expected_alerts([*flights, weather("JFK", 500.0)])
    assert expected == alert_counts([alert("UA", 300.0), alert("AA", 121.0)])
    assert expected.total() == 2


@pytest.mark.parametrize("wrong", [alert("AA", 122.0), alert("UA", 121.0), alert("AA", 121.0, "2013-01-01T11:00:00Z")])
def test_an_alert_of_something_else_is_seen(wrong: tuple[str, bytes]) -> None:
    assert expected_alerts([late("AA", 121.0)]) != alert_counts([wrong])


def test_two_flights_that_are_alike_are_two_alerts_and_none_is_none() -> None:
    twice = expected_alerts([late("AA", 121.0)] * 2)
    assert twice == alert_counts([alert("AA", 121.0)] * 2)
    assert twice - alert_counts([alert("AA", 121.0)]) == alert_counts([alert("AA", 121.0)])
    assert alert_counts([]) == expected_alerts([late("AA", 1.0)])
    assert alert_counts([]).total() == 0
