"""What a connection of the admin server may cost, as functions of bytes and time: owns the limits, and no socket.

Two ideas bound everything. All bytes of a message that are not its body count against one limit: request line, headers,
sizes and extensions of chunks, trailers. And whoever has to send or to take something must make progress: after a grace
period, RATE_MIN bytes per second on average, and never STALL_S without any.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["BODY_AHEAD_BYTES", "GRACE_S", "HEAD_BYTES_MAX", "HEAD_S", "IDLE_S", "STALL_S", "FramingBound", "Patience"]

HEAD_BYTES_MAX: Final = 65_536  # of one message, trailers and framing of chunks included
BODY_AHEAD_BYTES: Final = 65_536  # of a body that its endpoint has not taken yet, or never takes
IDLE_S: Final = 30.0  # without a request
HEAD_S: Final = 10.0  # from the first byte of a request to the end of its head
GRACE_S: Final = 10.0
RATE_MIN: Final = 1024  # bytes per second
STALL_S: Final = 30.0


class FramingBound:
    """Counts the bytes of one message that are not its body."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = 0

    def received(self, size: int) -> None:
        """Count bytes from the socket."""
        self._bytes += size

    def body(self, size: int) -> None:
        """Some of them were body."""
        self._bytes -= size

    def exceeded(self, unread: int = 0) -> bool:
        """Whether the message has too many, not counting `unread` bytes behind what was understood."""
        return self._bytes - unread > HEAD_BYTES_MAX

    def next_message(self, unread: int) -> None:
        """The message is complete; `unread` bytes belong to the next one."""
        self._bytes = unread


class Patience:
    """The time until which a peer must have made progress; times are seconds of one clock."""

    __slots__ = ("_due_s",)

    def __init__(self) -> None:
        self._due_s = math.inf

    def begin(self, now_s: float, grace_s: float) -> None:
        """It is the peer's turn."""
        self._due_s = now_s + grace_s

    def progress(self, size: int, now_s: float) -> None:
        """The peer has sent or taken `size` bytes."""
        self._due_s = min(self._due_s + size / RATE_MIN, now_s + STALL_S)

    def end(self) -> None:
        """The peer has nothing to do."""
        self._due_s = math.inf

    def waits(self) -> bool:
        """Whether it is the peer's turn."""
        return self._due_s < math.inf

    def over(self, now_s: float) -> bool:
        """Whether the peer has been too slow."""
        return now_s > self._due_s
