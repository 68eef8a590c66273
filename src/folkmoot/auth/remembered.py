"""Passwords that were found right, as marks: so that many clients can reconnect at once.

A mark is a keyed hash of user name, stored hash and password, made by a driver; no password can be read from it, and it
means nothing once the stored hash has changed. Nodes of a cluster tell each other their marks (`folkmoot.node.logins`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

__all__ = ["MARK_BYTES", "REMEMBERED_MAX", "Remembered"]

MARK_BYTES: Final = 16
REMEMBERED_MAX: Final = 100_000


class Remembered:
    """The marks, least recently used first; `digest` is equal in two tables with equal marks."""

    def __init__(self, marks_max: int = REMEMBERED_MAX) -> None:
        self.marks_max = marks_max
        self.digest = 0
        self._marks: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._marks)

    def has(self, mark: bytes) -> bool:
        """Whether a mark is there; it is the most recent one then."""
        if mark not in self._marks:
            return False
        self._marks.move_to_end(mark)
        return True

    def add(self, mark: bytes) -> bool:
        """Add a mark; the least recent one goes when there are too many. False if it was there."""
        assert len(mark) == MARK_BYTES, len(mark)
        if self.has(mark):
            return False
        self._marks[mark] = None
        self.digest ^= int.from_bytes(mark[:8], "big")
        if len(self._marks) > self.marks_max:
            oldest, _ = self._marks.popitem(last=False)
            self.digest ^= int.from_bytes(oldest[:8], "big")
        return True

    def marks(self) -> list[bytes]:
        """Return all marks, the least recent first."""
        return list(self._marks)
