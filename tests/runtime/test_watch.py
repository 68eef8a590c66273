"""What stands still on this machine is told once, and once more when it goes on."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.runtime.clock import Clock
from folkmoot.runtime.loop import Turns
from folkmoot.runtime.watch import LOOK_S, REST_S, STALL_US, StallWatch
from folkmoot.store.batch import Batch
from tests.runtime.fake import FakeLoop, FakeNode


class StallNode(FakeNode):
    def stalled(self, what: str, since_us: int, now: int) -> None:
        self.calls.append(("stalled", what, since_us, now))

    def lagged(self, late_us: int, now: int) -> None:
        self.calls.append(("lagged", late_us, now))

    def set_wall(self, wall_us: int, now: int) -> None:
        self.calls.append(("set_wall", wall_us, now))


class Bench:
    def __init__(self, stall_us: int = STALL_US) -> None:
        self.node = StallNode()
        self.loop = FakeLoop()
        node: Any = self.node
        loop: Any = self.loop
        self.turns = Turns(node, loop, Clock(self.time_ns, self.time_ns))
        self.turns.submit = lambda batch: None
        self.watch = StallWatch(self.turns, stall_us)
        self.watch.start()

    def time_ns(self) -> int:
        return 10**18 + int(self.loop.now * 1e9)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / LOOK_S)):
            self.loop.advance(LOOK_S)
            self.loop.iterate()

    def submit(self, token: int) -> int:
        self.node.effects.write = Batch(token)
        self.turns.begin()
        self.loop.iterate()
        return self.turns.clock.read()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_disk_that_stands_still_is_told_since_when_and_that_it_goes_on(bench: Bench) -> None:
    since = bench.submit(1)
    bench.pass_time(STALL_US / 1e6 - LOOK_S)
    assert bench.node.named("stalled") == []
    bench.pass_time(1.0)
    assert [call[:2] for call in bench.node.named("stalled")] == [("disk", since)]
    bench.turns.written(1)
    bench.pass_time(0.2)
    assert [call[:2] for call in bench.node.named("stalled")] == [("disk", since), ("disk", 0)]


def test_a_busy_disk_is_no_stall(bench: Bench) -> None:
    for token in range(1, 30):
        bench.submit(token)
        bench.pass_time(0.3)
        bench.turns.written(token)
    assert bench.node.named("stalled") == []


def test_a_disk_that_works_off_a_backlog_does_not_stand_still(bench: Bench) -> None:
    for token in range(1, 9):
        bench.submit(token)
    for token in range(1, 8):
        bench.pass_time(0.3)
        bench.turns.written(token)
    assert bench.node.named("stalled") == []
    since = bench.turns.clock.read()
    bench.pass_time(STALL_US / 1e6 + LOOK_S)
    assert [call[:2] for call in bench.node.named("stalled")] == [("disk", since)]


@pytest.mark.parametrize(("setting_us", "told_s"), [(200_000, 0.2), (450_000, 0.5), (2_000_000, 0.5)])
def test_a_shorter_stall_that_counts_is_told_in_time(setting_us: int, told_s: float) -> None:
    bench = Bench(setting_us)
    since = bench.submit(1)
    bench.pass_time(told_s - LOOK_S)
    assert bench.node.named("stalled") == []
    bench.pass_time(LOOK_S)
    assert [call[:2] for call in bench.node.named("stalled")] == [("disk", since)]


def test_who_has_stopped_looks_no_more(bench: Bench) -> None:
    bench.submit(1)
    bench.watch.stop()
    bench.pass_time(5.0)
    assert bench.node.named("stalled") == []


def test_a_loop_that_stood_still_says_nothing_of_the_disk(bench: Bench) -> None:
    bench.pass_time(1.0)
    bench.loop.advance(3.0)
    assert bench.node.named("stalled") == []


def test_a_loop_that_comes_late_tells_how_late_and_when_it_is_over(bench: Bench) -> None:
    bench.pass_time(1.0)
    assert bench.node.named("lagged") == []
    bench.watch.stop()
    bench.watch.start()
    bench.loop.advance(REST_S + 0.25)
    bench.pass_time(1.0)
    assert [call[0] for call in bench.node.named("lagged")] == [pytest.approx(250_000, abs=2), 0]
    assert bench.node.named("stalled") == []


def test_a_step_of_the_wall_clock_is_told_and_closes_nothing(bench: Bench) -> None:
    ahead = 0
    bench.turns.clock = Clock(lambda: bench.time_ns() + ahead, bench.time_ns)
    bench.pass_time(1.0)
    assert bench.node.named("set_wall") == []
    ahead = 3600 * 10**9
    bench.pass_time(1.0)
    told = [(wall_us - now) // 1_000_000 for wall_us, now in bench.node.named("set_wall")]
    assert told == [3600]
    assert bench.node.named("lagged") == []
