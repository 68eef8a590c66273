"""The budget of faults: how many machines may fail before the cluster is whole again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from folkmoot.sim.trace import Trace
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.world import World


def trouble_of(nodes: int, copies: int, least: int = 1) -> Trouble:
    """A cluster of so many machines that run."""
    hosts: list[Any] = [
        SimpleNamespace(name=f"n{number}", member=True, witness=False, blank=False, up=False) for number in range(nodes)
    ]
    return Trouble(World(1, Trace()), hosts, copies, least)


def test_one_copy_less_than_there_are_may_fail_until_the_cluster_is_whole() -> None:
    trouble = trouble_of(5, 3)
    one, two, three, *_ = trouble.hosts
    assert trouble.affords([one, two])
    assert not trouble.affords([one, two, three])
    trouble.weaken([one])
    assert not trouble.calm
    assert trouble.affords([two])
    assert not trouble.affords([two, three])
    assert trouble.affords([one, two]), "the same machine counts once"
    trouble.rest()
    assert trouble.calm
    assert trouble.affords([two, three])


def test_in_a_split_and_beyond_the_budget_no_machine_has_certainly_everything() -> None:
    for failing in (0, 3):
        trouble = trouble_of(5, 3)
        if failing:
            trouble.weaken(trouble.hosts[:failing])
        else:
            trouble.split()
        assert not trouble.calm
        assert sorted(trouble.weak) == ["n0", "n1", "n2", "n3", "n4"]


@pytest.mark.parametrize(("least", "affordable"), [(1, False), (2, True)])
def test_a_disk_may_be_lost_while_others_lack_changes_if_two_disks_have_them(least: int, affordable: bool) -> None:
    trouble = trouble_of(3, 2, least)
    one, two, three = trouble.hosts
    trouble.weaken([one])
    assert not trouble.affords([two])
    assert trouble.affords_disk(two, []) == affordable
    trouble.fail([two])
    two.blank = True
    assert not trouble.affords_disk(three, [])


def test_a_machine_alone_may_fail_at_any_time() -> None:
    trouble = trouble_of(1, 1)
    trouble.weaken(trouble.hosts)
    assert trouble.calm
    assert trouble.affords(trouble.hosts)
    assert trouble.faults == 1
