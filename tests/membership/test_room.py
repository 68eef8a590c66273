"""Disks without room: how a disk at the border is borne."""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND as MS
from folkmoot.kernel.clock import SECOND as S
from folkmoot.membership.room import Room

WAIT = 3 * S
HOLD = 10 * S


class Watch:
    """A `Room` that is looked at every tenth of a second."""

    def __init__(self, fresh: bool = False) -> None:
        self.room = Room(WAIT, HOLD)
        self.room.fresh = fresh
        self.now = 1_000 * S

    def after(self, full: bool, duration: int) -> bool:
        """What it says when the disk has been so for a while."""
        self.room.full = full
        until = self.now + duration
        while self.now < until:
            self.now += 100 * MS
            self.room.look(self.now)
        return self.room.lacks

    def hold(self) -> int:
        """How long it takes until room that is there again is believed."""
        began = self.now
        while self.after(False, 100 * MS):
            assert self.now - began < 3_600 * S
        return self.now - began


def test_a_disk_that_is_full_for_a_moment_is_not_told() -> None:
    watch = Watch()
    for _ in range(5):
        assert not watch.after(True, WAIT - 200 * MS)
        assert not watch.after(False, 200 * MS)
    assert watch.after(True, WAIT + 200 * MS)


def test_a_disk_that_is_full_at_the_start_is_told_at_once() -> None:
    watch = Watch(fresh=True)
    assert not watch.after(False, 200 * MS), "the first look may be too early"
    assert watch.after(True, 100 * MS)
    assert abs(watch.hold() - HOLD) <= 300 * MS
    watch.room.fresh = False
    assert not watch.after(True, WAIT - 200 * MS), "from then on it is like any other"


def test_room_for_a_moment_is_not_believed() -> None:
    watch = Watch()
    watch.after(True, 2 * WAIT)
    for _ in range(5):
        assert watch.after(False, HOLD - 200 * MS)
        assert watch.after(True, 200 * MS)
    assert abs(watch.hold() - HOLD) <= 300 * MS


def test_who_is_full_again_soon_has_to_hold_out_for_longer_each_time() -> None:
    watch = Watch()
    holds = []
    for _ in range(9):
        watch.after(True, 2 * WAIT)
        holds.append(round(watch.hold() / S))
    assert holds == [10, 20, 40, 80, 160, 320, 600, 600, 600]
    watch.after(False, 2 * 3_600 * S)
    watch.after(True, 2 * WAIT)
    assert round(watch.hold() / S) == 10  # that was long ago
