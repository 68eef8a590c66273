"""The room on the disk is looked at by the clock and by the bytes; what is deleted gives its space back."""

from __future__ import annotations

from typing import Any

from folkmoot.runtime import room
from folkmoot.runtime.clock import Clock
from folkmoot.runtime.loop import Turns
from folkmoot.runtime.room import LOOK_BYTES, RoomWatch
from folkmoot.store.batch import Batch
from tests.runtime.fake import FakeLoop, FakeNode


class Bench:
    """A room watch between a fake node and a disk with a given number of free bytes."""

    def __init__(self) -> None:
        self.node, self.loop = FakeNode(), FakeLoop()
        node: Any = self.node
        loop: Any = self.loop
        self.turns = Turns(node, loop, Clock())
        self.free = 10 * LOOK_BYTES
        self.reclaims = 0
        this: Any = self
        self.room = RoomWatch(this, self.turns, this, self.loop.time)
        self.turns.handed = self.room.add
        self.turns.submit = lambda batch: None

    def shortage(self, waiting_bytes: int) -> str:
        return "short" if self.free - waiting_bytes < LOOK_BYTES else ""

    def is_low(self, waiting_bytes: int) -> bool:
        return self.free - waiting_bytes < 2 * LOOK_BYTES

    def reclaim(self) -> None:
        self.reclaims += 1

    def write(self, token: int, size: int) -> None:
        batch = Batch(token)
        batch.bytes = size
        self.node.effects.write = batch
        self.turns.begin()
        self.loop.iterate()

    def told(self) -> list[bool]:
        return [full for full, _ in self.node.named("storage")]


def test_what_is_written_fast_is_noticed_before_the_next_look_by_the_clock() -> None:
    bench = Bench()
    bench.free = LOOK_BYTES + 1
    bench.write(1, LOOK_BYTES // 2)
    assert bench.told() == []
    bench.write(2, LOOK_BYTES // 2)
    assert bench.told() == [True], "what waits for the disk counts as written"


def test_room_returns_when_the_disk_has_it() -> None:
    bench = Bench()
    bench.free = 0
    bench.room.look()
    bench.free = 10 * LOOK_BYTES
    bench.room.look()
    assert bench.told() == [True, False]


def test_a_disk_that_is_low_is_told_once_and_before_it_is_full() -> None:
    bench = Bench()
    for free in (9, 1.5, 1.4, 0.5, 1.5, 9):
        bench.free = int(free * LOOK_BYTES)
        bench.room.look()
    assert bench.node.named("disk_low") == [(True,), (False,)]
    assert bench.told() == [True, False]


def test_space_is_reclaimed_while_it_is_short_and_something_was_written() -> None:
    bench = Bench()
    bench.write(1, 10)
    bench.turns.written(1)
    bench.room.look()
    assert bench.reclaims == 0, "there is room"
    bench.free = 0
    bench.room.look()
    bench.room.look()
    assert bench.reclaims == 1
    bench.loop.advance(room.RECLAIM_S)
    bench.room.look()
    assert bench.reclaims == 1, "nothing was deleted since"
    bench.write(2, 10)
    bench.turns.written(2)
    bench.room.look()
    assert bench.reclaims == 2
    bench.write(3, 10)
    bench.turns.written(3)
    bench.room.look()
    assert bench.reclaims == 2, "not at every look"
    bench.loop.advance(room.RECLAIM_S)
    bench.room.look()
    assert bench.reclaims == 3
