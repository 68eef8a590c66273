"""Watchdogs of a node's own machine: a disk that stands still must count as dead to the others, a full loop is a load.

Owns when to look, not what follows: the node decides what a stall of some length means. A loop that stands still cannot
say so, and afterwards nothing is left to say: the others have noticed its silence.
"""

from __future__ import annotations

from asyncio import TimerHandle
from typing import Final

from folkmoot.runtime.loop import Turns

__all__ = ["STALL_US", "StallWatch"]

LOOK_S: Final = 0.1
# A busy disk takes this long now and then; what is longer is worth telling, if not a shorter stall counts already.
STALL_US: Final = 500_000
# What a full loop takes to come round is no stall, but the node counts it as a pressure.
LAG_US: Final = 100_000


class StallWatch:
    """Looks ten times a second, and tells the node only what is new; `stall_us`: a disk that waits so long is dead."""

    def __init__(self, turns: Turns, stall_us: int = STALL_US) -> None:
        self._turns = turns
        self._stall_us = min(STALL_US, stall_us)
        self._disk_since_us = 0
        self._lagged = False
        self._expected_s = 0.0
        self._handle: TimerHandle | None = None

    def start(self) -> None:
        """Look from now on."""
        self._expected_s = self._turns.loop.time() + LOOK_S
        self._handle = self._turns.loop.call_later(LOOK_S, self._look)

    def stop(self) -> None:
        """Look no more; idempotent."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        turns = self._turns
        if turns.halted:
            return
        late_us = int((turns.loop.time() - self._expected_s) * 1e6)
        if self._lagged or late_us >= LAG_US:
            self._lagged = late_us >= LAG_US
            turns.node.lagged(late_us if self._lagged else 0, turns.begin())
        self._look_at_disk()
        self.start()

    def _look_at_disk(self) -> None:
        turns = self._turns
        since_us = turns.waiting_since()
        if since_us and turns.clock.read() - since_us < self._stall_us:
            since_us = 0
        if since_us != self._disk_since_us:
            self._disk_since_us = since_us
            turns.node.stalled("disk", since_us, turns.begin())
