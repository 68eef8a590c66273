"""Who goes because of links that are broken: the quick choice is the plain one."""

from __future__ import annotations

import pytest

from folkmoot.kernel.rng import Rng
from folkmoot.membership.command import Place, PlaceItem
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.controller import _worst
from folkmoot.membership.transition import Transition
from tests.membership.reference import founded


def plainly(pairs: list[tuple[int, int]], me: int, configuration: ClusterConfiguration) -> list[int]:
    """Return who goes: each time the one in most pairs, of several the one that costs least, of these the highest."""
    chosen: list[int] = []

    def lost_without(disk: int) -> int:
        isrs = [configuration.able(state.isr) for state in configuration.partitions]
        return len([isr for isr in isrs if isr and set(isr) <= {*chosen, disk}])

    while pairs:
        ends = [disk for pair in pairs for disk in pair if disk != me]
        chosen.append(max(ends, key=lambda disk: (ends.count(disk), -lost_without(disk), disk)))
        pairs = [pair for pair in pairs if chosen[-1] not in pair]
    return chosen


@pytest.mark.parametrize("seed", range(200))
def test_the_one_with_most_broken_links_goes_and_the_cheapest_of_several(seed: int) -> None:
    rng = Rng(seed)
    disks = list(range(1, 3 + rng.below(7)))
    partitions = 1 + rng.below(8)
    transition = Transition(ClusterConfiguration())
    transition.apply_command(2, founded(disks, partitions))
    items: list[PlaceItem] = []
    for number in range(partitions):
        left = list(disks)
        replicas = [left.pop(rng.below(len(left))) for _ in range(1 + rng.below(min(3, len(disks))))]
        items.append(PlaceItem(number, 0, replicas))
    transition.apply_command(3, Place(items))
    often = 1 + rng.below(4)
    pairs = [(one, other) for one in disks for other in disks if one < other and rng.chance(often, 5)]
    me = disks[rng.below(len(disks))]
    assert _worst(pairs, me, transition.configuration) == plainly(pairs, me, transition.configuration)
