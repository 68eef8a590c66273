"""Periodic discovery of other nodes: frequent until this node has found one, rare afterwards.

Owns the intervals. A `folkmoot.discovery.Discovery` finds addresses; the node decides whether to dial them and whether
they belong to its cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from folkmoot.kernel.errors import FolkmootError

__all__ = ["Lookup", "Say", "Seeker"]

Lookup = Callable[[], Awaitable[list[str]]]
"""Finds peer addresses of other nodes: `lookup` of a `folkmoot.discovery.Discovery`."""
Say = Callable[..., None]
"""`say(level, kind, **fields)` writes an event."""

AGAIN_S: Final = 1.0
AGAIN_S_MAX: Final = 30.0
# Bounds how long two parts of a cluster that never met stay apart, and how long a changed address goes unnoticed.
STEADY_S: Final = 60.0
PATIENCE_S: Final = 10.0


class Seeker:
    """The lookups of one node.

    tell: receives the addresses whenever they change. found: returns whether the node has found another one.
    """

    def __init__(self, lookup: Lookup, tell: Callable[[list[str]], None], found: Callable[[], bool], say: Say) -> None:
        self._lookup = lookup
        self._tell = tell
        self._found = found
        self._say = say
        self._seeds: list[str] | None = None
        self._complaint = ""
        self._pause_s = AGAIN_S

    async def ask(self) -> list[str] | None:
        """Look up once; return the addresses, or None if the lookup failed."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                seeds = await self._lookup()
        except (FolkmootError, TimeoutError) as error:
            why = str(error) or f"no answer within {PATIENCE_S:g} s"
            if why != self._complaint:
                self._complaint = why
                self._say("warning", "lookup_failed", reason=why)
            return None
        self._complaint = ""
        if self._seeds is not None and sorted(seeds) != sorted(self._seeds):
            self._say("info", "seeds_changed", seeds=sorted(seeds))
        if self._seeds is None or sorted(seeds) != sorted(self._seeds):
            self._seeds = list(seeds)
            self._tell(seeds)
        return seeds

    def pause_s(self) -> float:
        """Return how long to wait before the next lookup."""
        if self._found():
            self._pause_s = AGAIN_S
            return STEADY_S
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, AGAIN_S_MAX)
        return pause_s

    async def run(self) -> None:
        """Look up repeatedly, until cancelled."""
        while True:
            await self.ask()
            await asyncio.sleep(self.pause_s())
