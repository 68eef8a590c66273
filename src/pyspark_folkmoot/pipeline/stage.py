"""How long a run takes to start: the stages between the command and the running queries."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Stages"]


class Stages:
    """Measures stages that follow each other; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.spans: list[tuple[str, float]] = []
        self._clock = clock
        self._begun_s = self._last_s = clock()

    def end(self, name: str) -> None:
        """End the current stage, with its `name`; the next one begins."""
        now_s = self._clock()
        self.spans.append((name, now_s - self._last_s))
        self._last_s = now_s

    def text(self) -> str:
        """Return a line such as `started in 9.5 s: Spark's session 4.1 s, analysis 2.0 s, queries 3.4 s`."""
        spans = ", ".join(f"{name} {span_s:.1f} s" for name, span_s in self.spans)
        return f"started in {self._last_s - self._begun_s:.1f} s: {spans}"
