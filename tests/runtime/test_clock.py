"""Time goes on whatever is done to the wall clock."""

from __future__ import annotations

import pytest

from folkmoot.runtime.clock import Clock

HOUR = 3_600_000_000


class Times:
    """The clocks of the system, in microseconds."""

    def __init__(self) -> None:
        self.wall = 1_600_000_000_000_000
        self.steady = 5_000_000

    def wall_ns(self) -> int:
        return self.wall * 1000

    def steady_ns(self) -> int:
        return self.steady * 1000

    def elapse(self, us: int) -> None:
        self.wall += us
        self.steady += us


@pytest.fixture
def times() -> Times:
    return Times()


def test_it_is_the_wall_clock(times: Times) -> None:
    node = Clock(times.wall_ns, times.steady_ns)
    assert node.read() == times.wall
    times.elapse(7)
    assert node.read() == times.wall
    times.wall += HOUR
    assert node.read() == times.wall, "a step forward is followed at once"


def test_set_back_it_goes_on_at_half_speed_until_the_wall_clock_is_ahead(times: Times) -> None:
    node = Clock(times.wall_ns, times.steady_ns)
    before = node.read()
    times.wall -= HOUR
    seen = [node.read()]
    for _ in range(1000):  # small steps add up
        times.elapse(1)
        seen.append(node.read())
    assert seen[0] == before
    assert seen[-1] == before + 500
    assert seen == sorted(seen)
    times.elapse(2 * HOUR - 1000 - 2)
    assert times.wall < node.read() == before + HOUR - 1
    times.elapse(4)
    assert node.read() == times.wall


def test_set_back_twice_it_loses_nothing(times: Times) -> None:
    node = Clock(times.wall_ns, times.steady_ns)
    before = node.read()
    times.wall -= HOUR
    node.read()
    times.elapse(100)
    times.wall -= HOUR
    assert node.read() == before + 50
    times.elapse(100)
    assert node.read() == before + 100
    times.wall += 10 * HOUR
    assert node.read() == times.wall
    times.wall -= HOUR
    ahead = node.read()
    times.elapse(100)
    assert node.read() == ahead + 50
