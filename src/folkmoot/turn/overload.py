"""How much a node can bear: a level from 0 to 10, from what waits in it. The highest of all members slows publishers.

Owns the rule that makes a level of measured pressures, with its hysteresis. What a level does is in `throttle` and
`commit`: at level n a client that has published is not heard for 2^n milliseconds, so that at each level half as much
comes as at the level below. Limits that must never be passed do not depend on levels.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.kernel.event import INFO, WARNING
from folkmoot.turn.commit import Commits
from folkmoot.turn.state import TIMER_LEVEL, State

__all__ = ["LEVEL_MAX", "Overload", "Pressures", "next_level"]

LEVEL_MAX: Final = 10
FALL_US: Final = 50 * MILLISECOND  # a level is left downwards after this time, one at a time
_FULL: Final = 1000  # a pressure, in thousandths of what makes level 10
_STEP: Final = _FULL // LEVEL_MAX
_CALM: Final = _STEP // 2  # how far below its beginning a level is left
_STILL_US: Final = 2500 * MILLISECOND  # what has not moved for so long makes level 10
_TOLD_FROM: Final = 5  # the level at which the log is told


class Pressures:
    """What is measured, each in thousandths of what makes level 10.

    waiting: bytes that wait for disks and other nodes; age: the oldest turn that waits; links: bytes on the way to the
    slowest node; loop: how late the event loop is.
    """

    def __init__(self, waiting: int, age: int, links: int, loop: int) -> None:
        self.waiting = waiting
        self.age = age
        self.links = links
        self.loop = loop

    def highest(self) -> int:
        """Return the highest."""
        return max(self.waiting, self.age, self.links, self.loop)

    def why(self) -> str:
        """Return which one is the highest."""
        highest = self.highest()
        if highest == self.waiting:
            return "waiting"
        if highest == self.age:
            return "age"
        return "links" if highest == self.links else "loop"

    def __repr__(self) -> str:
        return f"Pressures(waiting={self.waiting} age={self.age} links={self.links} loop={self.loop})"


def next_level(level: int, pressure: int, may_fall: bool) -> int:
    """Return the level after `level` under a pressure in thousandths: up at once, down by one and only when well below.

    may_fall: the level has stood for long enough.
    """
    raw = min(pressure // _STEP, LEVEL_MAX)
    if raw >= level:
        return raw
    if may_fall and pressure < level * _STEP - _CALM:
        return level - 1
    return level


class Overload:
    """The level of this node, and that of the cluster as this node knows it."""

    def __init__(self, state: State, commits: Commits) -> None:
        self.state = state
        self.commits = commits
        self.others = 0  # the highest level that another member has told
        self.link_bytes = 0  # on the way to the slowest node
        self.link_bytes_full = 1  # when links make level 10
        self.lag_us = 0  # how late the event loop was at last
        self._moved_us = 0
        self._told = False

    def pressures(self) -> Pressures:
        """Return what is measured now."""
        state = self.state
        commits = self.commits
        waiting = commits.backlog_bytes + state.writer.batch.bytes
        # On a full disk everything waits, and that is told in another way: nobody gains if all that is live stands too.
        age_us = 0 if state.storage_full else state.now - commits.oldest_us()
        return Pressures(
            waiting * _FULL // commits.backlog_bytes_max,
            age_us * _FULL // _STILL_US,
            self.link_bytes * _FULL // self.link_bytes_full,
            self.lag_us * _FULL // _STILL_US,
        )

    def _is_calm(self) -> bool:
        """Whether nothing can make level 1: almost every turn ends so, and should pay little for it."""
        commits = self.commits
        if commits.backlog_bytes * LEVEL_MAX >= commits.backlog_bytes_max:
            return False
        if self.link_bytes * LEVEL_MAX >= self.link_bytes_full or commits.congested:
            return False
        return not commits.backlog_bytes or self.state.now - commits.oldest_us() < _STILL_US // LEVEL_MAX

    def step(self) -> None:
        """End of a turn: see what the level is."""
        state = self.state
        if not (state.overload or self.others or self.lag_us) and self._is_calm():
            return
        pressures = self.pressures()
        before = state.overload_own
        level = next_level(before, pressures.highest(), state.now - self._moved_us >= FALL_US)
        if level != before:
            if level > before:
                state.overload_why = pressures.why()
            state.overload_own = level
            if not level:
                state.overload_why = ""
            state.counters.overload = level
            self._moved_us = state.now
        if level:  # it falls also when nothing else happens
            state.timers.set(max(self._moved_us, state.now - FALL_US + MILLISECOND) + FALL_US, TIMER_LEVEL, 0)
        self._tell(level)
        highest = max(level, self.others)
        fallen = highest < state.overload
        state.overload = highest
        if fallen:
            self.commits.relax()
        state.counters.cluster_overload = highest
        full = pressures.links >= _FULL
        if full or (self.commits.congested and pressures.links < _FULL // 2):
            was = self.commits.congested
            self.commits.congested = full
            if was and not full:
                self.commits.resume()

    def _tell(self, level: int) -> None:
        """Put the beginning and the end of what an operator should know into the log."""
        if level >= _TOLD_FROM and not self._told:
            self._told = True
            self.state.event(WARNING, "overloaded", {"overload": level, "why": self.state.overload_why})
        elif not level and self._told:
            self._told = False
            self.state.event(INFO, "overload_over", {})
