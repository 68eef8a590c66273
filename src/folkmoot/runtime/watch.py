"""Watchdogs of a node: a stalled disk, which costs the node its lease, a busy event loop, a clock that was set.

Owns when to check; the node decides what a stall of a given length, or a step of the wall clock, means. A stalled loop
is not reported: it cannot report itself, and sends no heartbeats, so that its lease ends.
"""

from __future__ import annotations

from asyncio import TimerHandle
from typing import Final

from folkmoot.runtime.clock import next_beat
from folkmoot.runtime.loop import Turns

__all__ = ["STALL_US", "StallWatch"]

LOOK_S: Final = 0.1
# How soon to look again while the disk has nothing to do: no later than any stall.
REST_S: Final = 0.5
# A busy disk takes this long occasionally. A longer stall is reported; a shorter one if `stall_us` is shorter.
STALL_US: Final = 500_000
# An iteration of the loop that is this late is no stall, but the node counts it as load.
LAG_US: Final = 100_000


class StallWatch:
    """Checks a few times a second, reports changes to the node; stall_us: a disk that stalls this long is reported."""

    def __init__(self, turns: Turns, stall_us: int = STALL_US) -> None:
        self._turns = turns
        self._stall_us = min(STALL_US, stall_us)
        self._disk_since_us = 0
        self._lagged = False
        self._expected_s = 0.0
        self._handle: TimerHandle | None = None

    def start(self) -> None:
        """Begin to check."""
        rests = not self._lagged and not self._turns.waiting_since()
        pause_s = min(REST_S, self._stall_us / 1e6) if rests else LOOK_S
        self._expected_s = next_beat(self._turns.loop.time(), pause_s)
        self._handle = self._turns.loop.call_at(self._expected_s, self._look)

    def stop(self) -> None:
        """Stop checking; idempotent."""
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
        if turns.clock.has_stepped():
            now = turns.begin()
            turns.node.set_wall(turns.clock.wall() - turns.clock.read() + now, now)
        self.start()

    def _look_at_disk(self) -> None:
        turns = self._turns
        since_us = turns.waiting_since()
        if since_us and turns.clock.read() - since_us < self._stall_us:
            since_us = 0
        if since_us != self._disk_since_us:
            self._disk_since_us = since_us
            turns.node.stalled("disk", since_us, turns.begin())
