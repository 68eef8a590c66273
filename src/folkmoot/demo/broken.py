"""Messages that are invalid on purpose: no JSON, a field of a wrong type, an unknown topic level."""

from __future__ import annotations

import json
from collections.abc import Sequence

from folkmoot.demo.flight import Event

__all__ = ["broken_events", "spread"]

_EACH = 4


def broken_events() -> list[Event]:
    """Return the invalid messages, a few of each kind in turn; no two are equal."""
    found = []
    for number in range(_EACH):
        hour = f"2013-01-01T{10 + number}:00:00Z"
        fields: dict[str, object] = {"time": hour, "hour": hour, "dest": "BOS", "cancelled": False, "flight": number}
        late = json.dumps({**fields, "dep_delay": 400.0})
        words = json.dumps({**fields, "dep_delay": "two hours"})
        found += [
            Event(hour, f"nyc/flights/JFK/B6/N{number}", late[: -10 - number].encode()),
            Event(hour, f"nyc/flights/LGA/DL/N{number}", words.encode()),
            Event(hour, f"nyc/trains/EWR/NJ/N{number}", late.encode()),
        ]
    return found


def spread(few: Sequence[Event], many: Sequence[Event]) -> list[Event]:
    """Return all events: `many` in order, with `few` inserted at even distances."""
    found: list[Event] = []
    begin = 0
    for number, event in enumerate(few, 1):
        end = number * len(many) // (len(few) + 1)
        found += [*many[begin:end], event]
        begin = end
    return [*found, *many[begin:]]
