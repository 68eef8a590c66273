"""Gold as pandas makes it from the messages that were published, without the broker and without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from folkmoot.demo.flight import Event

__all__ = ["differences", "expected_gold"]

_KEY = ["hour", "origin", "carrier"]
_COUNTS = ["flights", "cancelled"]
_WEATHER = ["temp", "wind_speed", "precip", "visib"]
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


def _rows(events: Sequence[Event], kind: str) -> Any:
    """The messages of one kind as a DataFrame: what their topics and payloads say."""
    rows = []
    for event in events:
        _, this, origin, *rest = event.topic.split("/")
        if this == kind:
            rows.append({"origin": origin, "carrier": rest[0] if rest else None, **json.loads(event.payload)})
    frame = pd.DataFrame(rows)
    frame["hour"] = pd.to_datetime(frame["hour"], utc=True)
    return frame


def differences(found: Any, expected: Any) -> int:
    """Return how many rows of gold are missing, too many, or have other figures."""
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
