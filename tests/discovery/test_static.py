"""A list of seeds is what it says."""

from __future__ import annotations

import asyncio

import pytest

from folkmoot.discovery import Discovery, DiscoveryError, Static
from folkmoot.kernel.errors import FolkmootError


def test_a_list_is_answered_as_it_is_without_doubles() -> None:
    static: Discovery = Static(["b:2", "a:1", "b:2"])
    found = asyncio.run(static.lookup())
    assert found == ["b:2", "a:1"]
    found.clear()
    assert asyncio.run(static.lookup()) == ["b:2", "a:1"], "the answer is the caller's own"


def test_a_list_in_a_file_may_change() -> None:
    now = ["a:1"]

    def reread() -> list[str]:
        if not now:
            raise FolkmootError("there is no list")
        return now

    static = Static(["a:1"], reread)
    assert asyncio.run(static.lookup()) == ["a:1"]
    now[:] = ["c:3", "a:1", "c:3"]
    assert asyncio.run(static.lookup()) == ["c:3", "a:1"]
    now.clear()
    with pytest.raises(DiscoveryError, match="there is no list"):
        asyncio.run(static.lookup())
