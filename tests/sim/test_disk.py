"""The simulated disk: durable in order, whole batches, a prefix survives a crash, nothing while it is full."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.sim.disk import Disk
from folkmoot.sim.trace import Trace
from folkmoot.sim.world import World
from folkmoot.store.batch import Batch


class Fixture:
    """A disk in an empty world, and the tokens that it reported."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed, Trace())
        self.disk = Disk(self.world, Rng(seed), "disk", 1_000)
        self.told: list[int] = []
        self.disk.on_written = self.told.append

    def submit(self, token: int) -> None:
        batch = Batch(token)
        batch.put(b"k%d" % token, b"a")
        batch.put(b"l%d" % token, b"b")
        self.disk.submit(batch)

    def rows(self) -> list[bytes]:
        return [key for key, _ in self.disk.store.items()]

    def wait(self) -> None:
        self.world.run(self.world.now + SECOND)


def test_nothing_is_durable_at_once() -> None:
    fixture = Fixture()
    fixture.submit(1)
    assert fixture.rows() == []
    assert not fixture.disk.idle
    fixture.wait()
    assert fixture.rows() == [b"k1", b"l1"]
    assert fixture.told == [1]
    assert fixture.disk.idle


def test_what_waits_becomes_durable_together() -> None:
    fixture = Fixture()
    for token in (1, 2, 3):
        fixture.submit(token)
    fixture.wait()
    assert fixture.told == [1, 3]
    assert len(fixture.rows()) == 6


def test_a_crash_keeps_whole_batches_from_the_front() -> None:
    kept: dict[int, int] = {}
    for seed in range(40):
        fixture = Fixture(seed)
        for token in (1, 2, 3):
            fixture.submit(token)
        fixture.disk.crash()
        fixture.wait()
        count = len(fixture.rows()) // 2
        assert fixture.rows() == sorted([b"%c%d" % (letter, t) for letter in b"kl" for t in range(1, count + 1)])
        assert fixture.told == []
        kept[count] = kept.get(count, 0) + 1
    assert sorted(kept) == [0, 1, 2, 3]


def test_a_crash_never_loses_what_was_reported() -> None:
    fixture = Fixture()
    fixture.submit(1)
    fixture.wait()
    fixture.disk.crash()
    assert fixture.rows() == [b"k1", b"l1"]


def test_a_full_disk_waits_for_room() -> None:
    fixture = Fixture()
    fixture.disk.fill()
    fixture.submit(1)
    fixture.wait()
    assert fixture.told == []
    fixture.disk.free()
    fixture.wait()
    assert fixture.told == [1]


def test_a_stall_delays_the_next_sync() -> None:
    fixture = Fixture()
    fixture.disk.stall(2 * SECOND)
    fixture.submit(1)
    fixture.wait()
    assert fixture.told == []
    fixture.world.run(fixture.world.now + 2 * SECOND)
    assert fixture.told == [1]
