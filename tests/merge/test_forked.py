"""Records of a stream in drawn splits with retention: the model finds nothing, and each planted bug."""

from __future__ import annotations

import pytest

from tests.merge.forked import Forked, Violation

SEEDS = 150
STEPS = 20

PLANTED = {"bounds_lost": 6, "epochs_lost": 6, "trims_forgotten": 98}
"""The first seed that finds a bug."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_record_is_there_once_and_keeps_its_offset(seed: int) -> None:
    Forked(seed).run(STEPS)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    for seed in range(PLANTED[name]):
        Forked(seed, name).run(STEPS)
    with pytest.raises(Violation):
        Forked(PLANTED[name], name).run(STEPS)
