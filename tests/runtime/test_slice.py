"""Slices of the loop's time for connections whose pieces cost much."""

from __future__ import annotations

import time
from typing import Any

from folkmoot.runtime.slice import (
    COSTLY_S,
    PIECE_BYTES_MAX,
    PIECE_BYTES_MIN,
    SLICE_S,
    PieceProtocol,
    Pieces,
    Slices,
    Waiting,
)


class Loop:
    """Runs what is called soon, when it is told to."""

    def __init__(self) -> None:
        self.soon: list[Any] = []

    def call_soon(self, call: Any) -> None:
        self.soon.append(call)

    def iterate(self) -> None:
        calls, self.soon = self.soon, []
        for call in calls:
            call()


class One(Waiting):
    """Something that has more to read, `pieces` times."""

    def __init__(self, line: Slices, cost_s: float, pieces: int) -> None:
        self.line = line
        self.cost_s = cost_s
        self.pieces = pieces

    def go_on(self) -> None:
        self.pieces -= 1
        if self.pieces:
            self.line.wait(self, self.cost_s)


def test_all_that_wait_get_a_slice_together_and_take_turns() -> None:
    loop = Loop()
    line = Slices(loop)  # type: ignore[arg-type]
    waiting = [One(line, SLICE_S / 2, 3) for _ in range(5)]
    for one in waiting:
        line.wait(one, one.cost_s)
    loop.iterate()
    assert [one.pieces for one in waiting] == [2, 2, 3, 3, 3]
    loop.iterate()
    assert [one.pieces for one in waiting] == [2, 2, 2, 2, 3]
    for _ in range(6):
        loop.iterate()
    assert [one.pieces for one in waiting] == [0, 0, 0, 0, 0]
    assert len(line) == 0
    assert loop.soon == [], "nothing is called when nothing waits"


def test_what_costs_more_than_a_slice_is_paid_later() -> None:
    loop = Loop()
    line = Slices(loop)  # type: ignore[arg-type]
    waiting = [One(line, 3.5 * SLICE_S, 1) for _ in range(2)]
    for one in waiting:
        line.wait(one, one.cost_s)
    ended = []
    for _ in range(6):
        loop.iterate()
        ended.append([one.pieces for one in waiting])
    assert ended == [[0, 1], [0, 1], [0, 1], [0, 0], [0, 0], [0, 0]]


class Reading(PieceProtocol):
    """Notes what it is told."""

    def __init__(self) -> None:
        self._pieces = Pieces()
        self.costs: list[float] = []
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data

    def costly(self, cost_s: float) -> None:
        self.costs.append(cost_s)


def test_pieces_grow_while_they_are_cheap_and_shrink_when_they_are_not(monkeypatch: Any) -> None:
    time_s = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: time_s[0])
    pieces = Reading()

    def read(cost_s: float, fill: bool = True) -> int:
        buffer = pieces.get_buffer(-1)
        time_s[0] += cost_s
        size = len(buffer) if fill else 1
        buffer[:size] = b"x" * size
        pieces.buffer_updated(size)
        return len(buffer)

    sizes = [read(0.00001) for _ in range(11)]
    assert sizes == [256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 131_072]
    assert sizes[-1] == PIECE_BYTES_MAX
    assert pieces.costs == []
    assert [read(2 * COSTLY_S) for _ in range(7)] == [131_072, 32_768, 8192, 2048, 512, 256, 256]
    assert len(pieces.costs) == 7
    assert [read(0.0, fill=False) for _ in range(3)] == [PIECE_BYTES_MIN] * 3, "little comes"
    assert pieces.data == b"x" * (sum(sizes) + 131_072 + 32_768 + 8192 + 2048 + 512 + 256 + 256 + 3)
