"""What is sent broken on purpose: each message once, of three kinds, and in the midst of the others."""

from __future__ import annotations

import json
from typing import Any

from folkmoot.demo.broken import broken_events, spread
from folkmoot.demo.flight import Event


def kind(event: Event) -> str:
    """What is wrong with a message, as a person would say it; "" for nothing."""
    try:
        fields: dict[str, Any] = json.loads(event.payload)
    except ValueError:
        return "no JSON"
    if event.topic.split("/")[1] not in ("flights", "weather"):
        return "unknown level"
    return "" if isinstance(fields["dep_delay"], float) else "wrong type"


def test_each_kind_comes_equally_often_and_no_message_twice() -> None:
    found = broken_events()
    kinds = [kind(event) for event in found]
    assert set(kinds) == {"no JSON", "unknown level", "wrong type"}
    assert len({kinds.count(name) for name in kinds}) == 1
    assert len({(event.topic, event.payload) for event in found}) == len(found)
    assert all(event.topic.startswith("nyc/") for event in found)


def test_few_are_spread_among_many_and_all_keep_their_order() -> None:
    many = [Event("", "many", b"%d" % number) for number in range(9)]
    few = [Event("", "few", b"a"), Event("", "few", b"b")]
    found = spread(few, many)
    assert [event for event in found if event.topic == "many"] == many
    assert [found.index(event) for event in few] == [3, 7]
    assert spread(few, []) == few
    assert spread([], many) == many
