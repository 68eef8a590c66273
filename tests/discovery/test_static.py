"""A list of seeds is what it says."""

from __future__ import annotations

import asyncio

from folkmoot.discovery import Discovery, Static


def test_a_list_is_answered_as_it_is_without_doubles() -> None:
    static: Discovery = Static(["b:2", "a:1", "b:2"])
    found = asyncio.run(static.lookup())
    assert found == ["b:2", "a:1"]
    found.clear()
    assert asyncio.run(static.lookup()) == ["b:2", "a:1"], "the answer is the caller's own"
