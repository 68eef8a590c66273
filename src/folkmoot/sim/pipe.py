"""One direction of a connection: chunks in order, and the reasons why none is delivered. Owns the bytes in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from folkmoot.sim.world import World

__all__ = ["CLOGGED", "CUT", "PAUSED", "STOPPED", "Pipe"]

PAUSED: Final = 1  # by the reader
CLOGGED: Final = 2  # by a fault of this connection
STOPPED: Final = 4  # the reader's process does not run
CUT: Final = 8  # nothing comes through between the two machines


class Pipe:
    """Chunks arrive in order, and wait while `held` has a reason; `deliver` gets each, None is the end.

    `busy`: whether bytes in flight keep the world from being quiet, see `World.after`.
    """

    def __init__(self, world: World, deliver: Callable[[Pipe, bytes | None], None], *, busy: bool = True) -> None:
        self.bytes = 0  # sent and not yet delivered
        self.dead = False
        self.held = 0
        self._schedule = world.after if busy else world.later
        self._world = world
        self._deliver = deliver
        self._chunks: deque[bytes | None] = deque()
        self._arrived = 0
        self._last_us = 0

    @property
    def paused(self) -> bool:
        """Whether its reader does not read."""
        return bool(self.held & PAUSED)

    def send(self, chunk: bytes | None, delay_us: int) -> None:
        """Put a chunk (None: the end of the stream) on its way."""
        now = self._world.now
        self._chunks.append(chunk)
        if chunk is not None:
            self.bytes += len(chunk)
        arrival = now + delay_us
        if arrival < self._last_us:
            arrival = self._last_us
        self._last_us = arrival
        self._schedule(arrival - now, self._arrive)

    def block(self, *, paused: bool | None = None, clogged: bool | None = None) -> None:
        """Change the two reasons that belong to this connection alone."""
        if paused is not None:
            self.hold(PAUSED, paused)
        if clogged is not None:
            self.hold(CLOGGED, clogged)

    def hold(self, why: int, on: bool) -> None:
        """Set or clear a reason; delivers what waited when nothing stands in the way any more."""
        self.held = self.held | why if on else self.held & ~why
        if self._arrived and not self.held:
            self._schedule(0, self._pump)

    def kill(self) -> None:
        """Lose the bytes in flight and all that are sent later."""
        self.dead = True
        self._chunks.clear()
        self._arrived = 0
        self.bytes = 0

    def _arrive(self) -> None:
        if not self.dead:
            self._arrived += 1
            if not self.held:
                self._pump()

    def _pump(self) -> None:
        while self._arrived and not self.held and not self.dead:
            chunk = self._chunks.popleft()
            self._arrived -= 1
            if chunk is not None:
                self.bytes -= len(chunk)
            self._deliver(self, chunk)
