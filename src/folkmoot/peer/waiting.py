"""Messages of one node that wait until they can be handled: of too many bytes the newest ones."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["Waiting"]

_MESSAGE_BYTES: Final = 64  # approximate overhead of a message


class Waiting:
    """The messages (kind, body), oldest first; is_cut: older ones were dropped, because they had too many bytes."""

    def __init__(self, bytes_max: int) -> None:
        self.messages: deque[tuple[int, bytes]] = deque()
        self.is_cut: bool = False
        self._bytes_max = bytes_max
        self._bytes: int = 0

    def keep(self, kind: int, body: bytes) -> int:
        """Keep a message; return how many older ones were dropped for it."""
        self.messages.append((kind, body))
        self._bytes += len(body) + _MESSAGE_BYTES
        dropped = 0
        while self._bytes > self._bytes_max:
            self._bytes -= len(self.messages.popleft()[1]) + _MESSAGE_BYTES
            self.is_cut = True
            dropped += 1
        return dropped
