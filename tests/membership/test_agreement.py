"""Agreement under trouble, by many seeds: what `simulation` checks at each view, and that all find together again."""

from __future__ import annotations

import pytest

from tests.membership.simulated_membership import S, SimulatedMembership, recover, trouble


@pytest.mark.parametrize("seed", range(40))
def test_under_any_trouble_views_agree_and_afterwards_all_are_in_one(seed: int) -> None:
    simulation = SimulatedMembership(2 + seed % 6, seed, policy="majority" if seed % 4 == 3 else "available")
    simulation.start_all()
    simulation.run_until(simulation.settled, 10 * S)
    trouble(simulation, 25)
    recover(simulation, 40 * S)
    assert not simulation.lost()


def test_fifty_nodes_agree_with_few_messages() -> None:
    simulation = SimulatedMembership(50, 1, partitions=32)
    simulation.pump = 200_000
    simulation.start_all()
    simulation.run_until(simulation.settled, 20 * S)
    before = simulation.control_messages()
    views = len(simulation.views)
    simulation.kill("n007")
    rest = [one for one in sorted(simulation.nodes) if one != "n007"]
    assert simulation.run_until(lambda: simulation.agreed(rest), 2 * S) < S // 2
    # Asked, promised, told, installed: each once per member of each view.
    assert simulation.control_messages() - before <= 4 * 48 * (len(simulation.views) - views)
