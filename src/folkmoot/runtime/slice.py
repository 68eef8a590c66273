"""Slices of the loop's time for what costs much to take apart: WebSocket frames and TLS records of a few bytes.

A client may send its bytes in pieces that cost the node a hundred times more than usual, and so may a thousand clients
at once, each of them within its own limits. Nothing of it is known to the node, whose turns are bounded (see
`folkmoot.turn.work`). So the driver bounds it too: a connection whose pieces have cost much is not read for a while. It
waits in a line, and those in it take turns, for SLICE_S per iteration of the loop together.

Owns the line and the measuring of costs.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from asyncio import AbstractEventLoop
from collections import deque
from typing import Final

__all__ = ["COSTLY_S", "PIECE_BYTES_MAX", "PIECE_BYTES_MIN", "SLICE_S", "PieceProtocol", "Pieces", "Slices", "Waiting"]

SLICE_S: Final = 0.004
COSTLY_S: Final = 0.0005  # of one piece; usual ones take some ten microseconds

# A connection is read in pieces. With TLS the size is also the largest number of records that one piece takes: a new
# connection begins with the fewest, and gets more as long as they are cheap.
PIECE_BYTES_MIN: Final = 256
PIECE_BYTES_MAX: Final = 131_072

# Shared by all connections: what was received is copied out before the next read.
_RECEIVED: Final = memoryview(bytearray(PIECE_BYTES_MAX))
_VIEWS: Final = {1 << shift: _RECEIVED[: 1 << shift] for shift in range(8, 18)}


class Waiting:
    """What waits in the line."""

    __slots__ = ()

    @abstractmethod
    def go_on(self) -> None:
        """Read on: its turn has come."""


class Slices:
    """The line of a loop."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self.handled_s = 0.0  # spent in the node with what was taken apart, which is not counted as its cost
        self._line: deque[tuple[Waiting, float]] = deque()
        self._left_s = SLICE_S
        self._running = False

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._line)

    def wait(self, one: Waiting, cost_s: float) -> None:
        """Put a connection that is not read any more at the end of the line; its next piece may cost as much."""
        self._line.append((one, cost_s))
        if not self._running:
            self._running = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        """Let connections read on, as far as the slice reaches. What it was exceeded by is taken off the next ones."""
        self._left_s = min(self._left_s + SLICE_S, SLICE_S)
        for _ in range(len(self._line)):
            if self._left_s <= 0:
                break
            one, cost_s = self._line.popleft()
            began_s = time.perf_counter()
            one.go_on()
            # It costs something now, or in the next iteration of the loop, when it is read.
            self._left_s -= max(cost_s, time.perf_counter() - began_s)
        if self._line:
            self._loop.call_soon(self._step)
        else:
            self._running = False


class Pieces:
    """The pieces of one connection: how large the next one may be, and what the last one has cost."""

    __slots__ = ("_asked_s", "_size")

    def __init__(self) -> None:
        self._size = PIECE_BYTES_MIN
        self._asked_s = 0.0

    def buffer(self) -> memoryview:
        """Return the buffer for the next piece."""
        self._asked_s = time.perf_counter()
        return _VIEWS[self._size]

    def take(self, size: int) -> float:
        """Choose the size of the next piece; return the cost of this one if it was much, else 0."""
        cost_s = time.perf_counter() - self._asked_s
        if cost_s >= COSTLY_S:
            self.shrink()
            return cost_s
        if size == self._size < PIECE_BYTES_MAX:
            self._size <<= 1
        return 0.0

    def shrink(self) -> None:
        """Read less at once: what comes is costly."""
        self._size = max(self._size >> 2, PIECE_BYTES_MIN)


class PieceProtocol(asyncio.BufferedProtocol):
    """A protocol that is read in pieces; a subclass has `_pieces`."""

    __slots__ = ()

    _pieces: Pieces

    def get_buffer(self, _hint: int) -> memoryview:
        """Return the buffer for the next piece."""
        return self._pieces.buffer()

    def buffer_updated(self, size: int) -> None:
        """Take a piece."""
        data = bytes(_RECEIVED[:size])
        cost_s = self._pieces.take(size)
        if cost_s:
            self.costly(cost_s)
        self.data_received(data)

    @abstractmethod
    def data_received(self, data: bytes) -> None:
        """Take bytes."""

    @abstractmethod
    def costly(self, cost_s: float) -> None:
        """The piece that comes now has cost much; read no more until the line of costly ones has come to it."""
