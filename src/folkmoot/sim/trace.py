"""The record of a run: owns the digest of everything and the last lines; never decides anything.

Every line and every byte that crosses a border (network, disk) goes into the digest, so two runs with the same digest
did the same. Lines are kept as values, and formatted when they are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from folkmoot.kernel.clock import SECOND

__all__ = ["TAIL_LINES", "Trace", "shorten"]

TAIL_LINES: Final = 20_000
"""How many lines are kept for the tail of a failed run."""


class Trace:
    """The lines of a run.

    `sink` receives every line as text at once (`--trace`); without it only the tail can be read, by `tail`.
    """

    def __init__(self, sink: Callable[[str], None] | None = None) -> None:
        self._digest = blake2b(digest_size=12)
        self._tail: deque[tuple[int, str, str, tuple[object, ...]]] = deque(maxlen=TAIL_LINES)
        self._sink = sink
        self.start_us = 0

    def note(self, now: int, who: str, what: str, *details: object) -> None:
        """Record that `who` did `what` at `now` (microseconds); the details are for readers, not for the digest."""
        self._digest.update(b"%d %s %s\n" % (now, who.encode(), what.encode()))
        self._tail.append((now, who, what, details))
        if self._sink is not None:
            self._sink(self._line(now, who, what, details))

    def mix(self, data: bytes) -> None:
        """Put bytes that crossed a border into the digest."""
        self._digest.update(data)

    def hexdigest(self) -> str:
        """Return the digest of the run so far."""
        return self._digest.hexdigest()

    def tail(self, lines: int) -> list[str]:
        """Return the last lines as text, oldest first."""
        kept = list(self._tail)[-lines:]
        return [self._line(*entry) for entry in kept]

    def _line(self, now: int, who: str, what: str, details: tuple[object, ...]) -> str:
        seconds = (now - self.start_us) / SECOND
        text = " ".join([shorten(detail) for detail in details])
        return f"{seconds:12.6f} {who:<10} {what} {text}".rstrip()


def shorten(value: object) -> str:
    """Return `value` as text of limited length: payloads are long, and their first bytes identify them."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 400 else f"{text[:380]}... ({len(text)} characters)"
