"""The clock for deadlines goes on whatever is done to the wall clock, and steps of that are seen."""

from __future__ import annotations

import time

import pytest

from folkmoot.kernel.clock import HOUR, SECOND
from folkmoot.runtime.clock import Clock


class Times:
    """The clocks of the system, in microseconds."""

    def __init__(self) -> None:
        self.wall = 1_600_000_000_000_000
        self.steady = 5_000_000
        self.delay = 0  # between two readings

    def wall_ns(self) -> int:
        self.elapse(self.delay)
        return self.wall * 1000

    def steady_ns(self) -> int:
        return self.steady * 1000

    def elapse(self, us: int) -> None:
        self.wall += us
        self.steady += us


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.mark.parametrize("step_us", [HOUR, -HOUR])
def test_it_begins_at_the_wall_clock_and_does_not_follow_its_steps(times: Times, step_us: int) -> None:
    clock = Clock(times.wall_ns, times.steady_ns)
    began = clock.read()
    assert began == times.wall
    times.elapse(7)
    times.wall += step_us
    assert clock.read() == began + 7
    assert clock.wall() == times.wall


def test_a_step_is_reported_once(times: Times) -> None:
    clock = Clock(times.wall_ns, times.steady_ns)
    assert not clock.has_stepped()
    for step_us in (HOUR, -SECOND, -HOUR):
        times.wall += step_us
        times.elapse(100_000)
        assert clock.has_stepped()
        times.elapse(100_000)
        assert not clock.has_stepped()


def test_small_corrections_add_up_to_a_step(times: Times) -> None:
    clock = Clock(times.wall_ns, times.steady_ns)
    seen = []
    for _ in range(4):
        times.wall += 400
        seen.append(clock.has_stepped())
    assert seen == [False, False, True, False]


def test_an_interruption_between_two_readings_is_no_step(times: Times) -> None:
    clock = Clock(times.wall_ns, times.steady_ns)
    times.delay = HOUR
    assert not clock.has_stepped()
    times.delay = 0
    assert not clock.has_stepped()


def test_it_counts_the_time_for_which_the_machine_was_suspended() -> None:
    """Only a kernel can tell: the clock that counts it is the one that is read, where there is one."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("only Linux has this clock")
    clock = Clock()
    ahead_us = clock.read() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    assert abs(clock.read() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000 - ahead_us) < SECOND
    assert abs(clock.wall() - clock.read()) < SECOND
