"""Retained wills: the topic of one client's wills has the last one that was published."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import V5, Publish
from folkmoot.sim import Options
from folkmoot.sim.check_retained import RetainedChecker
from folkmoot.sim.check_will import MAYBE, NO, YES
from folkmoot.sim.fact import Life
from folkmoot.sim.ledger import Ledger
from tests.sim.test_causes import Machines

FIRST, SECOND_WILL, THIRD = b"m0", b"m1", b"m2"


@pytest.mark.parametrize(
    ("outcomes", "got", "broken"),
    [
        ((YES, YES, NO), SECOND_WILL, False),
        ((YES, YES, NO), FIRST, True),  # an older one stays
        ((YES, YES, NO), THIRD, True),  # its client has said goodbye
        ((YES, YES, NO), b"", True),
        ((YES, YES, MAYBE), THIRD, False),
        ((NO, NO, NO), b"", False),
        ((NO, NO, NO), FIRST, True),
        ((NO, MAYBE, NO), b"", False),
    ],
)
@pytest.mark.parametrize("troubled", [False, True])
def test_the_last_will_of_a_client_is_retained(
    outcomes: tuple[str, ...], got: bytes, broken: bool, troubled: bool
) -> None:
    machines = Machines()
    trouble: Any = None
    ledger = Ledger(machines.world, machines.hosts, trouble, machines.judge())
    judged: dict[int, str] = {}
    for outcome in outcomes:
        life = Life("c", V5, machines.link(1), False, machines.world.now)
        packet = Publish(b"will/c", b"m%d" % len(ledger.messages), 1, retain=True)
        will = ledger.publish("c", packet, once=True)
        will.is_will = True
        will.will_link = life.link
        judged[will.number] = outcome
        machines.wait(SECOND)
        life.link.ended_us = machines.world.now
    machines.run(3, up=not troubled)
    machines.wait(SECOND)
    RetainedChecker(ledger, judged).finish({b"will/c": got} if got else {})
    may_stay = troubled and got == FIRST and outcomes[0] == YES
    assert bool(machines.world.violations) == (broken and not may_stay)


def test_wills_are_retained_in_some_runs() -> None:
    swarms = [Options(seed, 10, 3).simulation().swarm for seed in range(60)]
    assert 10 < len([swarm for swarm in swarms if swarm.retained_wills]) < 30
    assert 10 < len([swarm for swarm in swarms if swarm.restless_replays]) < 30
