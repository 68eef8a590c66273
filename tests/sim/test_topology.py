"""Link matrices: each kind is what its name says, whatever is drawn."""

from __future__ import annotations

import pytest

from folkmoot.kernel.rng import Rng
from folkmoot.sim.topology import KINDS, Cuts, draw

NAMES = ["n1", "n2", "n3", "n4", "n5"]


def links(cuts: Cuts, names: list[str]) -> set[tuple[str, str]]:
    """The pairs that still reach each other both ways."""
    return {
        (one, two)
        for place, one in enumerate(names)
        for two in names[place + 1 :]
        if (one, two) not in cuts and (two, one) not in cuts
    }


def component(name: str, left: set[tuple[str, str]]) -> set[str]:
    found = {name}
    while True:
        more = {other for pair in left for other in pair if set(pair) & found} - found
        if not more:
            return found
        found |= more


def components(cuts: Cuts, names: list[str]) -> list[set[str]]:
    left = links(cuts, names)
    found: list[set[str]] = []
    for name in names:
        if not any(name in one for one in found):
            found.append(component(name, left))
    return found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("two sides", 2),
        ("three sides", 3),
        ("one alone", 2),
        ("single link", 1),
        ("bridge", 1),
        ("star", 1),
        ("ring", 1),
    ],
)
def test_a_kind_has_its_number_of_components(kind: str, count: int, seed: int) -> None:
    assert len(components(KINDS[kind](Rng(seed), NAMES), NAMES)) == count


@pytest.mark.parametrize(("kind", "count"), [("star", 4), ("chain", 4), ("ring", 5)])
def test_a_regular_kind_has_its_number_of_links(kind: str, count: int) -> None:
    assert len(links(KINDS[kind](Rng(1), NAMES), NAMES)) == count


@pytest.mark.parametrize("seed", range(20))
def test_a_bridge_falls_apart_without_its_middle(seed: int) -> None:
    cuts = KINDS["bridge"](Rng(seed), NAMES)
    assert len(components(cuts, NAMES[1:])) == 2


@pytest.mark.parametrize("seed", range(20))
def test_a_single_link_joins_two_sides(seed: int) -> None:
    cuts = KINDS["single link"](Rng(seed), NAMES)
    left = links(cuts, NAMES)
    joining = [pair for pair in left if component(pair[0], left - {pair}) != component(pair[1], left)]
    assert [len(components([*cuts, pair, pair[::-1]], NAMES)) for pair in joining].count(2) >= 1


@pytest.mark.parametrize("seed", range(20))
def test_half_a_side_hears_and_is_not_heard(seed: int) -> None:
    cuts = KINDS["half a side"](Rng(seed), NAMES)
    assert cuts
    assert not [cut for cut in cuts if cut[::-1] in cuts]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_whatever_is_drawn_is_between_two_machines_of_the_run(count: int) -> None:
    names = [f"n{number}" for number in range(1, count + 1)]
    kinds: set[str] = set()
    for seed in range(200):
        kind, cuts = draw(Rng(seed), names)
        kinds.add(kind)
        assert all(one != two and one in names and two in names for one, two in cuts)
    assert kinds == (set(KINDS) if count > 2 else {"one alone", "half a side"})
