"""Bugs are planted by name: a name plants that bug and no other, and a wrong name plants none in silence."""

from __future__ import annotations

import pytest

from folkmoot.kernel.planted import PLANTED, Planted
from folkmoot.peer.config import ClusterConfig


def test_a_node_has_no_bugs_of_its_own() -> None:
    planted = Planted(ClusterConfig().planted)
    assert not [name for name in PLANTED if getattr(planted, name)]


@pytest.mark.parametrize("name", PLANTED)
def test_a_name_plants_that_bug_and_no_other(name: str) -> None:
    planted = Planted([name])
    assert [other for other in PLANTED if getattr(planted, other)] == [name]


def test_a_wrong_name_is_not_taken() -> None:
    with pytest.raises(AssertionError, match="no bug 'unmaked'"):
        Planted(["unmaked"])
