"""Looking for other nodes again and again."""

from __future__ import annotations

import asyncio

from folkmoot.discovery import DiscoveryError
from folkmoot.runtime import seek
from folkmoot.runtime.seek import Seeker


class World:
    """Answers lookups, and notes what comes of them."""

    def __init__(self) -> None:
        self.answer: list[str] | None = ["a:1"]
        self.told: list[list[str]] = []
        self.said: list[str] = []
        self.found = False
        self.seeker = Seeker(self.lookup, self.told.append, lambda: self.found, self.say)

    async def lookup(self) -> list[str]:
        if self.answer is None:
            raise DiscoveryError("no name server answers")
        return self.answer

    def say(self, level: str, kind: str, **fields: object) -> None:
        self.said.append(f"{level} {kind} {fields}")

    def ask(self) -> list[str] | None:
        return asyncio.run(self.seeker.ask())


def test_what_is_found_is_told_when_it_changes() -> None:
    world = World()
    assert world.ask() == ["a:1"]
    world.ask()
    world.answer = ["b:2", "a:1"]
    world.ask()
    world.answer = ["a:1", "b:2"]
    world.ask()
    assert world.told == [["a:1"], ["b:2", "a:1"]]
    assert world.said == ["info seeds_changed {'seeds': ['a:1', 'b:2']}"]


def test_a_failure_is_said_once_and_changes_nothing() -> None:
    world = World()
    world.ask()
    world.answer = None
    assert world.ask() is None
    world.ask()
    assert world.told == [["a:1"]]
    assert world.said == ["warning lookup_failed {'reason': 'no name server answers'}"]
    world.answer = ["a:1"]
    world.ask()
    world.answer = None
    world.ask()
    assert len(world.said) == 2, "it failed again"


def test_it_asks_often_until_others_are_found_and_seldom_then() -> None:
    world = World()
    pauses = [world.seeker.pause_s() for _ in range(8)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    world.found = True
    assert world.seeker.pause_s() == world.seeker.pause_s() == seek.STEADY_S
    world.found = False
    assert world.seeker.pause_s() == 1
