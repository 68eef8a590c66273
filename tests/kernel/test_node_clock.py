"""The time of a node: what most clocks say, within a bound, and never in a hurry."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import HOUR, MILLISECOND, SECOND
from folkmoot.kernel.node_clock import BOUND_US, OPINION_US, START_US, NodeClock, Opinion

BEGIN = 1_600_000_000 * SECOND
DAY = 24 * HOUR


def begun(alone: bool = True, wall_us: int = BEGIN) -> NodeClock:
    clock = NodeClock(alone=alone)
    clock.begin(wall_us, BEGIN)
    return clock


def hear(clock: NodeClock, node_id: str, wall_us: int, time_us: int | None = None, settled: bool = True) -> None:
    """Another node says by how much its wall clock, and its time, is ahead of the monotonic clock of this one."""
    clock.hear(node_id, Opinion(wall_us, wall_us if time_us is None else time_us, settled, clock.now))


def step(clock: NodeClock, by_us: int) -> None:
    """Set the own wall clock."""
    clock.set_wall(clock.now + clock.own_us + by_us)


def trio(own_us: int = 0) -> NodeClock:
    """A node whose two peers have right clocks."""
    clock = begun(alone=False, wall_us=BEGIN + own_us)
    hear(clock, "b", 0)
    hear(clock, "c", 0)
    return clock


def test_without_steps_all_three_are_the_same() -> None:
    clock = begun()
    for _ in range(10):
        clock.tick(clock.now + 7)
        assert clock.now == clock.time == clock.expiry_time


# One clock of three


@pytest.mark.parametrize("by_us", [BOUND_US + 1, DAY, 100 * 365 * DAY, -DAY])
def test_a_clock_that_is_set_wrong_moves_nothing(by_us: int) -> None:
    clock = trio()
    step(clock, by_us)
    assert clock.off
    assert not clock.divided
    clock.tick(BEGIN + SECOND)
    assert clock.time == clock.expiry_time == BEGIN + SECOND
    assert clock.set_by_us == 0
    step(clock, -by_us)
    assert not clock.off


@pytest.mark.parametrize("by_us", [DAY, -DAY, BOUND_US, -BOUND_US])
def test_a_wrong_clock_of_another_node_moves_nothing(by_us: int) -> None:
    clock = trio()
    hear(clock, "c", by_us)
    clock.tick(BEGIN + SECOND)
    assert clock.time == clock.expiry_time == BEGIN + SECOND
    assert not clock.off
    assert not clock.divided


def test_most_clocks_may_move_the_time_and_expiry_follows_at_double_speed() -> None:
    clock = trio()
    hear(clock, "b", HOUR)
    assert clock.time == BEGIN
    step(clock, HOUR)
    assert clock.time == BEGIN + HOUR
    assert clock.set_by_us == HOUR
    assert clock.expiry_time == BEGIN
    clock.tick(BEGIN + 60 * SECOND)
    assert clock.expiry_time == BEGIN + 120 * SECOND
    clock.tick(BEGIN + HOUR)
    assert clock.expiry_time == clock.time == BEGIN + 2 * HOUR


def test_a_small_correction_back_is_a_stand_still() -> None:
    clock = trio()
    for node_id in "bc":
        hear(clock, node_id, -3 * SECOND)
    assert clock.time == BEGIN
    clock.tick(BEGIN + 2 * SECOND)
    assert clock.time == clock.expiry_time == BEGIN
    clock.tick(BEGIN + 5 * SECOND)
    assert clock.time == clock.expiry_time == BEGIN + 2 * SECOND


def test_a_large_correction_back_is_at_once_for_all_that_is_new() -> None:
    clock = begun()
    step(clock, -DAY)
    assert clock.time == clock.expiry_time == BEGIN - DAY
    clock.tick(BEGIN + SECOND)
    assert clock.time == clock.expiry_time == BEGIN - DAY + SECOND


# The start


def test_a_start_with_a_wrong_clock_expires_nothing_before_others_are_heard() -> None:
    clock = begun(alone=False, wall_us=BEGIN + DAY)
    clock.tick(BEGIN + SECOND)
    assert clock.expiry_time == 0
    hear(clock, "b", 0)
    assert clock.time == clock.expiry_time == BEGIN + SECOND
    assert clock.off
    assert clock.divided, "of two clocks nobody knows which is right"
    hear(clock, "c", 0)
    assert (clock.off, clock.divided) == (True, False)
    assert clock.time == BEGIN + SECOND


def test_a_start_without_others_waits_for_them_and_then_believes_its_own_clock() -> None:
    clock = begun(alone=False, wall_us=BEGIN + DAY)
    clock.tick(BEGIN + START_US - 1)
    clock.look()
    assert clock.expiry_time == 0
    clock.tick(BEGIN + START_US)
    clock.look()
    assert clock.expiry_time == clock.time == BEGIN + DAY + START_US


@pytest.mark.parametrize("by_us", [HOUR, -HOUR])
def test_a_node_that_nobody_has_answered_since_its_start_does_not_follow_its_clock(by_us: int) -> None:
    clock = begun(alone=False)
    clock.tick(BEGIN + START_US)
    clock.look()
    assert clock.settled
    step(clock, by_us)
    assert clock.off
    clock.tick(BEGIN + 2 * START_US)
    assert clock.time == clock.expiry_time == BEGIN + 2 * START_US
    hear(clock, "b", 0)
    hear(clock, "c", 0)
    assert clock.expiry_time == BEGIN + 2 * START_US


def test_a_wrong_clock_that_is_heard_first_decides_nothing() -> None:
    """After a loss of all power nobody knows the time: the first two that disagree wait for more."""
    clock = begun(alone=False)
    hear(clock, "b", -DAY, settled=False)
    assert clock.expiry_time == 0
    hear(clock, "c", 1, settled=False)
    assert clock.time == clock.expiry_time == BEGIN
    assert clock.set_by_us == 0


# Two clocks


def test_two_clocks_that_disagree_keep_the_time_that_they_had() -> None:
    mine = begun(alone=False)
    hear(mine, "b", 0)
    other = begun(alone=False)
    hear(other, "a", 0)
    step(other, DAY)
    hear(mine, "b", DAY, time_us=other.shift_us)
    hear(other, "a", 0, time_us=mine.shift_us)
    for clock in (mine, other):
        clock.tick(BEGIN + SECOND)
        assert clock.divided
        assert clock.time == clock.expiry_time == BEGIN + SECOND
    assert (mine.off, other.off) == (False, True), "the one that was set"


@pytest.mark.parametrize("ahead_us", [DAY, -DAY])
def test_of_two_nodes_that_never_agreed_both_use_the_earlier_clock(ahead_us: int) -> None:
    """What expires late does less harm; and both must use the same, because messages go from one to the other."""
    mine = begun(alone=False)
    other = begun(alone=False, wall_us=BEGIN + ahead_us)
    for clock in (mine, other):  # each was alone for a while
        clock.tick(BEGIN + START_US)
        clock.look()
    hear(mine, "b", ahead_us)
    hear(other, "a", 0, time_us=mine.shift_us)
    hear(mine, "b", ahead_us, time_us=other.shift_us)
    assert mine.time == other.time == BEGIN + START_US + min(0, ahead_us)
    assert mine.expiry_time == other.expiry_time == mine.time


def test_a_disagreement_is_no_ratchet() -> None:
    """Errors of measurement must not move the time of two nodes that disagree."""
    clock = begun(alone=False)
    hear(clock, "b", 0)
    for _ in range(100):
        hear(clock, "b", DAY, time_us=clock.shift_us - 50 * MILLISECOND)
    assert clock.shift_us == 0


def test_with_two_pairs_there_is_no_majority() -> None:
    clock = begun(alone=False)
    hear(clock, "b", 0)
    hear(clock, "c", DAY, time_us=0)
    hear(clock, "d", DAY, time_us=0)
    assert clock.divided
    assert clock.time == clock.expiry_time == BEGIN


# Alone


def test_without_a_cluster_the_own_clock_is_followed_and_expiry_does_not_rush() -> None:
    clock = begun()
    step(clock, 3650 * DAY)
    assert not clock.off
    assert clock.time == BEGIN + 3650 * DAY
    clock.tick(BEGIN + HOUR)
    assert clock.expiry_time == BEGIN + 2 * HOUR


def test_a_node_that_has_lost_the_others_does_not_begin_to_believe_a_wrong_clock() -> None:
    clock = trio(own_us=DAY)
    clock.forget("b")
    clock.forget("c")
    clock.tick(BEGIN + HOUR)
    clock.look()
    assert clock.off
    assert clock.time == clock.expiry_time == BEGIN + HOUR
    step(clock, -DAY)
    assert not clock.off


def test_what_was_said_long_ago_counts_no_more() -> None:
    clock = trio()
    clock.tick(BEGIN + OPINION_US)
    clock.look()
    assert clock.clocks == 3
    clock.tick(BEGIN + OPINION_US + 1)
    clock.look()
    assert clock.clocks == 1


@pytest.mark.parametrize("order", [("b", "c", "d", "e"), ("e", "d", "c", "b")])
def test_the_order_of_opinions_does_not_matter(order: tuple[str, ...]) -> None:
    walls = {"b": 2 * SECOND, "c": -SECOND, "d": DAY, "e": SECOND}
    clock = begun(alone=False)
    for node_id in order:
        hear(clock, node_id, walls[node_id])
    assert clock.shift_us == SECOND
