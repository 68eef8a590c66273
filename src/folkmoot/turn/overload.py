"""The load of a node: a level from 0 to 10, from what waits in it. The highest level of all members slows publishers.

Owns the rule that derives a level from measured pressures, with its hysteresis. What a level does is in `throttle` and
`commit`: at level n a client that has published is not heard for 2^n milliseconds, so that at each level half as much
comes as at the level below. Limits that must never be passed do not depend on levels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.kernel.event import ERROR, INFO, WARNING
from folkmoot.turn.commit import Commits
from folkmoot.turn.memory import DROPPING
from folkmoot.turn.state import TIMER_LEVEL, State

__all__ = ["LEVEL_MAX", "Overload", "Pressures", "Waits", "next_level"]

LEVEL_MAX: Final = 10
FALL_US: Final = 50 * MILLISECOND  # a level is left downwards after this time, one at a time
_FULL: Final = 1000  # a pressure, in thousandths of what makes level 10
_STEP: Final = _FULL // LEVEL_MAX
_CALM: Final = _STEP // 2  # how far below its beginning a level is left
_STILL_US: Final = 2500 * MILLISECOND  # what has not moved for so long makes level 10
_TOLD_FROM: Final = 5  # the level at which the log is told


class Pressures:
    """What is measured, each in thousandths of what makes level 10.

    waiting: bytes that wait for disks and other nodes; age: of the oldest turn that waits; links: bytes under way to
    the slowest node; queue: how long data has waited for the slowest link; loop: the lag of the event loop; memory: of
    the process, above what is normal.
    """

    def __init__(self, waiting: int, age: int, links: int, loop: int, memory: int = 0, queue: int = 0) -> None:
        self.waiting = waiting
        self.age = age
        self.links = links
        self.loop = loop
        self.memory = memory
        self.queue = queue

    def highest(self) -> int:
        """Return the highest pressure."""
        return max(self.waiting, self.age, self.links, self.loop, self.memory, self.queue)

    def why(self) -> str:
        """Return the name of the highest pressure."""
        highest = self.highest()
        if highest == self.waiting:
            return "waiting"
        if highest == self.age:
            return "age"
        if highest == self.links:
            return "links"
        if highest == self.queue:
            return "queue"
        return "loop" if highest == self.loop else "memory"

    def __repr__(self) -> str:
        return (
            f"Pressures(waiting={self.waiting} age={self.age} links={self.links} loop={self.loop} memory={self.memory} "
            f"queue={self.queue})"
        )


def next_level(level: int, pressure: int, may_fall: bool) -> int:
    """Return the level after `level` under a pressure in thousandths: up at once, down by one, and only if well below.

    may_fall: the level has lasted long enough.
    """
    raw = min(pressure // _STEP, LEVEL_MAX)
    if raw >= level:
        return raw
    if may_fall and pressure < level * _STEP - _CALM:
        return level - 1
    return level


@mypyc_attr(allow_interpreted_subclasses=True)
class Waits(ABC):
    """Knows what the oldest turn waits for."""

    @abstractmethod
    def text(self) -> str:
        """Return it for the log; empty: nothing."""


class Overload:
    """The level of this node, and that of the cluster as far as this node knows."""

    def __init__(self, state: State, commits: Commits) -> None:
        self.state = state
        self.throttle = commits.throttle
        self.commits = commits
        self.others = 0  # the highest level that another member has reported
        self.link_bytes = 0  # under way to the slowest node
        self.link_bytes_full = 1  # at which links make level 10
        self.link_queue_us = 0  # how long the oldest data has waited for the slowest link
        self.link_queue_us_full = 1  # at which that makes level 10
        self.lag_us = 0  # the latest lag of the event loop
        self.waits: Waits | None = None  # set by the owner
        self._moved_us = 0
        self._told = False

    def pressures(self) -> Pressures:
        """Measure."""
        state = self.state
        throttle = self.throttle
        waiting = throttle.backlog_bytes + state.writer.batch.bytes
        # On a full disk every turn waits, and that is reported otherwise: to stop live messages too would help no one.
        age_us = 0 if state.storage_full else state.now - self.commits.oldest_us()
        return Pressures(
            waiting * _FULL // throttle.backlog_bytes_max,
            age_us * _FULL // _STILL_US,
            self.link_bytes * _FULL // self.link_bytes_full,
            self.lag_us * _FULL // _STILL_US,
            state.memory.pressure(),
            self.link_queue_us * _FULL // self.link_queue_us_full,
        )

    def _is_calm(self) -> bool:
        """Whether no pressure can make level 1: a cheap check, because almost every turn ends so."""
        throttle = self.throttle
        if throttle.backlog_bytes * LEVEL_MAX >= throttle.backlog_bytes_max:
            return False
        if self.link_bytes * LEVEL_MAX >= self.link_bytes_full or throttle.congested:
            return False
        if self.state.memory.pressure() >= _STEP or self.link_queue_us * LEVEL_MAX >= self.link_queue_us_full:
            return False
        return not throttle.backlog_bytes or self.state.now - self.commits.oldest_us() < _STILL_US // LEVEL_MAX

    def step(self) -> None:
        """Compute the level, at the end of a turn."""
        state = self.state
        self._look_at_memory()
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
        if level:  # so that it falls although nothing else happens; what relieves the pressure is a turn of its own
            due_us = self._moved_us + FALL_US
            state.timers.set(due_us if due_us > state.now else state.now + FALL_US, TIMER_LEVEL, 0)
        self._tell(level)
        highest = max(level, self.others)
        fallen = highest < state.overload
        state.overload = highest
        if fallen:
            self.throttle.relax()
        state.counters.cluster_overload = highest
        full = pressures.links >= _FULL
        if full or (self.throttle.congested and pressures.links < _FULL // 2):
            was = self.throttle.congested
            self.throttle.congested = full
            if was and not full:
                self.throttle.resume()

    def _look_at_memory(self) -> None:
        state = self.state
        memory = state.memory
        if not memory.is_due(state.now):
            return
        throttle = self.throttle
        waiting = throttle.backlog_bytes + throttle.stranded_bytes + throttle.stash_bytes
        moving = waiting + state.counters.peer_backlog_bytes
        before = memory.stage
        if not memory.look(len(state.sessions), moving + state.accounts.kept_bytes, state.now):
            return
        fields: dict[str, object] = {"bytes": memory.used, "bytes_max": memory.budget}
        if memory.stage == DROPPING:
            state.event(ERROR, "memory_full", fields)
        elif memory.stage > before:
            state.event(WARNING, "memory_short", fields)
        elif not memory.stage:
            state.event(INFO, "memory_has_room", fields)

    def _tell(self, level: int) -> None:
        """Log the beginning and the end of a high level."""
        if level >= _TOLD_FROM and not self._told:
            self._told = True
            fields: dict[str, object] = {"overload": level, "why": self.state.overload_why}
            text = "" if self.waits is None else self.waits.text()
            if text:
                fields["waits_for"] = text
            self.state.event(WARNING, "overloaded", fields)
        elif not level and self._told:
            self._told = False
            self.state.event(INFO, "overload_over", {})
