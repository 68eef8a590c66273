"""Turns of the locations of a group: what is remembered of a name is small, however long it is."""

from __future__ import annotations

from typing import Any

from folkmoot.routing.interest import Location, SharedLocation
from tests.harness.box import Box


def test_long_names_of_groups_take_no_memory_and_have_turns_of_their_own(box: Box) -> None:
    node: Any = box.node
    shared = node._broker.delivery.shared
    for length in (10, 60_000):
        turns = {}
        for last in (b"a", b"b"):
            name = b"$share/" + b"g" * length + last + b"/t"
            places = [SharedLocation(name, Location(node_id, -1)) for node_id in ("x", "y", "z")]
            for place in places:
                place.count = 1
            turns[last] = [shared.choose_location(name, None, places).location.node_id for _ in range(4)]
        assert turns == {b"a": ["x", "y", "z", "x"], b"b": ["x", "y", "z", "x"]}
    assert sum(len(name) for name in shared._next) < 100


def test_locations_that_have_just_lost_their_members_get_nothing(box: Box) -> None:
    node: Any = box.node
    places = [SharedLocation(b"$share/g/t", Location(node_id, -1)) for node_id in ("x", "y")]
    assert node._broker.delivery.shared.choose_location(b"$share/g/t", None, places) is None
