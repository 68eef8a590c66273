"""Drawn runs: leaderships move while clients at other nodes wait for answers (A1 to A6, A8, A13).

In the end every client must have got every answer, once and in order, every message that was acknowledged must be where
it belongs, and no node may keep anything of what was under way.
"""

from __future__ import annotations

import pytest

from tests.harness.soak import seeds
from tests.simulated_cluster.moving import SCARCE, Run

DRAWN = seeds(range(8), range(400))
PRESSED = seeds(range(10, 20), range(300))


@pytest.mark.parametrize("seed", DRAWN)
def test_leaderships_move_while_clients_wait(seed: int) -> None:
    Run(seed).judged(pressed=False)


@pytest.mark.parametrize("seed", PRESSED)
def test_leaderships_are_handed_on_before_they_have_begun(seed: int) -> None:
    Run(seed, SCARCE).judged(pressed=True)
