"""Agreement under trouble, by many seeds: what `moot` checks at each view, and that all find together again."""

from __future__ import annotations

import pytest

from tests.membership.simulated_membership import Moot, S, recover, trouble


@pytest.mark.parametrize("seed", range(40))
def test_under_any_trouble_views_agree_and_afterwards_all_are_in_one(seed: int) -> None:
    moot = Moot(2 + seed % 6, seed, policy="majority" if seed % 4 == 3 else "available")
    moot.start_all()
    moot.run_until(moot.settled, 10 * S)
    trouble(moot, 25)
    recover(moot, 40 * S)
    assert not moot.lost()


def test_fifty_nodes_agree_with_few_messages() -> None:
    moot = Moot(50, 1, partitions=32)
    moot.pump = 200_000
    moot.start_all()
    moot.run_until(moot.settled, 20 * S)
    before = moot.control_messages()
    views = len(moot.views)
    moot.kill("n007")
    rest = [one for one in sorted(moot.nodes) if one != "n007"]
    assert moot.run_until(lambda: moot.agreed(rest), 2 * S) < S // 2
    # Asked, promised, told, installed: each once per member of each view.
    assert moot.control_messages() - before <= 4 * 48 * (len(moot.views) - views)
