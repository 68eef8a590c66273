"""The ledger of faults: when a period of trouble is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from folkmoot.kernel.clock import SECOND
from folkmoot.sim.trace import Trace
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.world import World


def trouble_of(nodes: int) -> Trouble:
    """A cluster of so many machines, of which the ledger looks at the name alone."""
    hosts: list[Any] = [SimpleNamespace(name=f"n{number}", member=True, refilled=False) for number in range(nodes)]
    return Trouble(World(1, Trace()), hosts, nodes)


def test_a_lost_link_excuses_nothing_that_begins_after_the_next_rest() -> None:
    trouble = trouble_of(3)
    world = trouble.world
    world.run(world.now + SECOND)
    before = world.now - 1
    trouble.lose_link()
    lost = world.now
    assert not trouble.calm
    assert trouble.has_lost_link(lost + SECOND, lost + 2 * SECOND), "until the next view"
    world.run(world.now + 3 * SECOND)
    trouble.rest()
    assert trouble.calm
    assert trouble.has_lost_link(before, lost)
    assert trouble.has_lost_link(lost + SECOND, lost + 9 * SECOND)
    assert not trouble.has_lost_link(before - SECOND, before)
    assert not trouble.has_lost_link(world.now + 1, world.now + SECOND)
    trouble.lose_link()
    assert trouble.has_lost_link(world.now, world.now + SECOND), "each has a period of its own"
