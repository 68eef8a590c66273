"""The memory budget: the estimate, the stages with their hysteresis, and measurements."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.limits import Limits
from folkmoot.metrics.counters import Counters
from folkmoot.turn.memory import CALM, DROPPING, REFUSING, Memory

BUDGET = 1_000_000
NOW = 1_600_000_000 * SECOND


def made(budget: int = BUDGET) -> Memory:
    limits = Limits()
    limits.memory_bytes_max = budget
    return Memory(limits, Counters())


def stages(memory: Memory, *used: int) -> list[int]:
    found = []
    for percent in used:
        memory.unsent_bytes = BUDGET * percent // 100
        memory.look(0, 0, NOW)
        found.append(memory.stage)
    return found


def test_the_stages_come_in_order_and_end_well_below() -> None:
    up = stages(made(), 50, 84, 85, 94, 95, 150)
    assert up == [CALM, CALM, REFUSING, REFUSING, DROPPING, DROPPING]
    memory = made()
    stages(memory, 95)
    assert stages(memory, 94, 79, 78, 77) == [DROPPING, DROPPING, DROPPING, CALM]
    assert stages(memory, 84, 85, 78, 77) == [CALM, REFUSING, REFUSING, CALM]


def test_after_ten_seconds_somebody_has_to_go() -> None:
    """Else a client that reads nothing could keep all new ones out for ever."""
    memory = made()
    memory.unsent_bytes = BUDGET * 86 // 100
    found = []
    for second in (0, 5, 9, 10, 11):
        memory.look(0, 0, NOW + second * SECOND)
        found.append(memory.stage)
    assert found == [REFUSING, REFUSING, REFUSING, DROPPING, DROPPING]
    assert memory.excess() == BUDGET * 8 // 100


def test_publishers_are_slowed_before_anybody_is_refused() -> None:
    memory = made()
    pressures = []
    for percent in (0, 70, 72, 80, 84, 85, 100):
        stages(memory, percent)
        pressures.append(memory.pressure())
    assert pressures == [0, 0, 100, 500, 700, 700, 700]


def test_without_a_budget_nothing_follows() -> None:
    for budget in (0, -1):
        memory = made(budget)
        assert stages(memory, 10_000) == [CALM]
        assert memory.used == 100 * BUDGET
        assert memory.pressure() == memory.excess() == 0


def test_what_was_measured_counts_and_what_has_changed_since() -> None:
    memory = made()
    memory.unsent_bytes = 300_000
    memory.look(0, 0, NOW)
    memory.measured(700_000, NOW)
    memory.unsent_bytes = 400_000
    memory.look(0, 0, NOW)
    assert memory.used == 800_000
    memory.measured(350_000, NOW)  # less than was estimated: a message that many wait for is there once
    memory.look(0, 0, NOW)
    assert memory.used == 350_000


def test_nobody_is_refused_because_of_an_estimate_alone() -> None:
    memory = made()
    memory.look(0, 0, NOW)
    memory.measured(100_000, NOW)
    memory.unsent_bytes = 5 * BUDGET
    memory.look(0, 0, NOW + SECOND)
    assert (memory.stage, memory.wanted) == (CALM, True)
    assert memory.pressure() == 700, "publishers are slowed meanwhile"
    memory.measured(200_000, NOW + SECOND)
    memory.look(0, 0, NOW + SECOND)
    assert (memory.stage, memory.wanted, memory.used) == (CALM, False, 200_000)
    memory.measured(990_000, NOW + SECOND)
    assert memory.look(0, 0, NOW + SECOND)
    assert memory.stage == DROPPING


def test_a_busy_node_looks_once_in_a_millisecond_and_after_each_measurement() -> None:
    memory = made()
    assert memory.is_due(NOW)
    memory.look(0, 0, NOW)
    assert [memory.is_due(NOW + us) for us in (0, 999, 1000)] == [False, False, True]
    memory.measured(1, NOW + 10)
    assert memory.is_due(NOW + 10)


def test_each_thing_has_its_cost() -> None:
    memory = made()
    memory.look(0, 0, NOW)
    seen = [memory.used]
    memory.look(10, 0, NOW)
    seen.append(memory.used)
    memory.counters.subscriptions_persistent = 10
    memory.counters.connections = 10
    memory.counters.route_cached = 10
    memory.ready_count = 10
    memory.ready_bytes = memory.parts_bytes = memory.alias_bytes = memory.relay_bytes = 10
    memory.look(10, 10, NOW)
    seen.append(memory.used)
    assert seen[0] == 0 < seen[1] < seen[2]


def test_what_must_go_brings_it_to_where_nobody_is_refused() -> None:
    memory = made()
    stages(memory, 100)
    assert memory.excess() == BUDGET * 22 // 100
