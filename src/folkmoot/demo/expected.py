"""The expected gold and alerts: pandas computes them from the published messages, without the broker and Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from folkmoot.demo.flight import Event

__all__ = ["alert_counts", "differences", "expected_alerts", "expected_gold"]

_KEY = ["hour", "origin", "carrier"]
_COUNTS = ["flights", "cancelled"]
_WEATHER = ["temp", "wind_speed", "precip", "visib"]
_ALERT = ["topic", "time", "dest", "flight", "tailnum", "dep_delay"]
_LATE_MIN = 120
# Gold has the mean with two decimals.
_MEAN_ERROR = 0.005 + 1e-9


def expected_gold(events: Sequence[Event]) -> Any:
    """Return a DataFrame with the columns of gold; `mean_delay` is not rounded."""
    flights = _rows(events, "flights").groupby(_KEY)
    delays = flights.agg(
        flights=("cancelled", "size"),
        cancelled=("cancelled", "sum"),
        mean_delay=("dep_delay", "mean"),
        max_delay=("dep_delay", "max"),
    )
    weather = _rows(events, "weather")[["hour", "origin", *_WEATHER]]
    return delays.reset_index().merge(weather, on=["hour", "origin"], how="left")


def expected_alerts(events: Sequence[Event]) -> Counter[tuple[Any, ...]]:
    """Return how often each alert is expected: once per flight that leaves more than two hours late."""
    flights = _rows(events, "flights")
    late = flights[flights["dep_delay"] > _LATE_MIN]
    return _counts(late.assign(topic="alerts/" + late["origin"] + "/" + late["carrier"]))


def alert_counts(messages: Iterable[tuple[str, bytes]]) -> Counter[tuple[Any, ...]]:
    """Return how often each alert was received, from topics and payloads; with the keys of `expected_alerts`."""
    rows = [{"topic": topic, **json.loads(payload)} for topic, payload in messages]
    return _counts(pd.DataFrame(rows, columns=_ALERT))


def _counts(alerts: Any) -> Counter[tuple[Any, ...]]:
    alerts = alerts.assign(time=pd.to_datetime(alerts["time"], utc=True))
    return Counter(alerts[_ALERT].itertuples(index=False, name=None))


def _rows(events: Sequence[Event], kind: str) -> Any:
    """The messages of one kind as a DataFrame, from their topics and payloads."""
    rows = []
    for event in events:
        _, this, origin, *rest = event.topic.split("/")
        if this == kind:
            carrier, tailnum = rest or (None, None)
            rows.append({"origin": origin, "carrier": carrier, "tailnum": tailnum, **json.loads(event.payload)})
    frame = pd.DataFrame(rows)
    frame["hour"] = pd.to_datetime(frame["hour"], utc=True)
    return frame


def differences(found: Any, expected: Any) -> int:
    """Return how many rows of gold are missing, superfluous, or have different figures."""
    order = [*_KEY, *_WEATHER]
    found, expected = (frame.sort_values(order, ignore_index=True) for frame in (found, expected))
    if len(found) != len(expected):
        return abs(len(found) - len(expected))
    right = pd.Series(data=True, index=found.index)
    for name in (*_KEY, *_COUNTS, "max_delay", *_WEATHER):
        right &= (found[name] == expected[name]) | (found[name].isna() & expected[name].isna())
    mean, exact = found["mean_delay"], expected["mean_delay"]
    right &= ((mean - exact).abs() <= _MEAN_ERROR) | (mean.isna() & exact.isna())
    return int((~right).sum())
