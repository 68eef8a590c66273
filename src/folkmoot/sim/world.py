"""Virtual time: the queue of future events, the clock, the seed, and the violations and marks of all parts.

Never knows the meaning of an event. Events of the same time run in the order in which they were set, so that a run is a
function of its seed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from folkmoot.kernel.rng import Rng
from folkmoot.sim.trace import Trace

__all__ = ["START_US", "Violation", "World"]

_DETAILS: Final = re.compile(r"\(.*?\)|\[.*?\]|b?'.*?'|b?\".*?\"")
_NAMES: Final = re.compile(r"\b[\w.]*\d[\w./-]*")
_KIND_LENGTH: Final = 60

START_US: Final = 1_700_000_000_000_000
"""The wall clock at the start of a run, microseconds since 1970."""


class Violation:
    """A broken promise: which one, when, and how it shows."""

    def __init__(self, promise: str, now: int, text: str) -> None:
        self.promise = promise
        self.now = now
        self.text = text

    @property
    def kind(self) -> str:
        """The promise, and how it is broken, without names and numbers."""
        text = _NAMES.sub("_", _DETAILS.sub("", self.text.partition("\n")[0]))
        return f"{self.promise}: {' '.join(text.split())[:_KIND_LENGTH]}"

    def __repr__(self) -> str:
        return f"{self.promise} at {(self.now - START_US) / 1_000_000:.6f}: {self.text}"


class World:
    """The scheduler of a run.

    `busy` counts the events that move something (bytes, writes, turns) as opposed to timers that merely wait: a
    world with none of them is quiet.
    """

    def __init__(self, seed: int, trace: Trace) -> None:
        self.seed = seed
        self.now = START_US
        self.trace = trace
        self.events = 0
        self.busy = 0
        self.turns = 0  # of all hosts
        self.marks: dict[str, int] = {}
        self.violations: list[Violation] = []
        self._rng = Rng(seed)
        self._queue: list[tuple[int, int, bool, Callable[..., Any], tuple[Any, ...]]] = []
        self._count = 0
        trace.start_us = START_US

    def fork(self) -> Rng:
        """Return a generator for one part of the world; parts with their own generator do not disturb each other."""
        return self._rng.fork()

    def after(self, delay_us: int, action: Callable[..., Any], *arguments: Any) -> None:
        """Call `action` in `delay_us` as something that moves."""
        self.busy += 1
        self._count += 1
        heappush(self._queue, (self.now + delay_us, self._count, True, action, arguments))

    def later(self, delay_us: int, action: Callable[..., Any], *arguments: Any) -> None:
        """Call `action` in `delay_us` as a timer: waiting for it does not keep the world from being quiet."""
        self._count += 1
        heappush(self._queue, (self.now + delay_us, self._count, False, action, arguments))

    def run(self, until_us: int) -> None:
        """Run all events that are due by `until_us`; stops at the first violation."""
        queue = self._queue
        violations = self.violations
        while queue and queue[0][0] <= until_us and not violations:
            self.now, _, busy, action, arguments = heappop(queue)
            self.events += 1
            if busy:
                self.busy -= 1
            action(*arguments)
        if not violations:
            self.now = max(self.now, until_us)

    def note(self, who: str, what: str, *details: object) -> None:
        """Record a line of the trace."""
        self.trace.note(self.now, who, what, *details)

    def mark(self, name: str) -> None:
        """Count that a rare branch was reached: a run that never gets there proves nothing about it."""
        self.marks[name] = self.marks.get(name, 0) + 1

    def violate(self, promise: str, text: str) -> None:
        """Report that `promise` (A1 to A13, or the name of a protocol rule) is broken."""
        self.violations.append(Violation(promise, self.now, text))
        self.trace.note(self.now, "VIOLATION", promise, text)
