"""Link matrices: which directions between machines are cut, in the shapes that real networks take when they break.

Pure: a drawing is a function of the generator and of the names. Omni-Paxos (Ng et al., EuroSys 2023) names the partial
connectivity in which consensus stands still: quorum-loss, constrained election and chained scenarios are among these.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from folkmoot.kernel.rng import Rng

__all__ = ["KINDS", "Cuts", "draw"]

Cuts = list[tuple[str, str]]
"""Directions that are cut: (from, to)."""


def _groups(rng: Rng, names: list[str], count: int) -> list[list[str]]:
    """Return the names in so many groups, none of them empty if there are enough names."""
    groups: list[list[str]] = [[name] for name in names[:count]]
    for name in names[count:]:
        groups[rng.below(len(groups))].append(name)
    return groups


def _between(groups: list[list[str]]) -> Cuts:
    cuts: Cuts = []
    for number, group in enumerate(groups):
        for other in groups[number + 1 :]:
            for one in group:
                for two in other:
                    cuts += [(one, two), (two, one)]
    return cuts


def _all_but(names: list[str], kept: list[tuple[str, str]]) -> Cuts:
    both = {*kept, *[(two, one) for one, two in kept]}
    return [(one, two) for one in names for two in names if one != two and (one, two) not in both]


def _sides(rng: Rng, names: list[str]) -> Cuts:
    return _between(_groups(rng, names, 2))


def _three_sides(rng: Rng, names: list[str]) -> Cuts:
    return _between(_groups(rng, names, 3))


def _alone(_rng: Rng, names: list[str]) -> Cuts:
    return _between([names[:1], names[1:]])


def _partial(rng: Rng, names: list[str]) -> Cuts:
    percent = (20, 40, 60)[rng.below(3)]
    cuts: Cuts = []
    for number, one in enumerate(names):
        for two in names[number + 1 :]:
            if rng.chance(percent, 100):
                cuts += [(one, two), (two, one)]
    return cuts


def _one_way(rng: Rng, names: list[str]) -> Cuts:
    return [(one, two) for one in names for two in names if one != two and rng.chance(1, 4)]


def _half_side(rng: Rng, names: list[str]) -> Cuts:
    """One side hears the other, and is not heard."""
    first, second = _groups(rng, names, 2)
    return [(one, two) for one in first for two in second]


def _single_link(rng: Rng, names: list[str]) -> Cuts:
    """Two sides with one link between them."""
    first, second = _groups(rng, names, 2)
    kept = (first[rng.below(len(first))], second[rng.below(len(second))])
    return [cut for cut in _between([first, second]) if cut not in (kept, kept[::-1])]


def _bridge(rng: Rng, names: list[str]) -> Cuts:
    """Two sides that both reach one machine."""
    return _between(_groups(rng, names[1:], 2))


def _star(_rng: Rng, names: list[str]) -> Cuts:
    return _all_but(names, [(names[0], name) for name in names[1:]])


def _chain(_rng: Rng, names: list[str]) -> Cuts:
    return _all_but(names, list(pairwise(names)))


def _ring(_rng: Rng, names: list[str]) -> Cuts:
    return _all_but(names, [*pairwise(names), (names[-1], names[0])])


KINDS: dict[str, Callable[[Rng, list[str]], Cuts]] = {
    "two sides": _sides,
    "three sides": _three_sides,
    "one alone": _alone,
    "partial": _partial,
    "one way": _one_way,
    "half a side": _half_side,
    "single link": _single_link,
    "bridge": _bridge,
    "star": _star,
    "chain": _chain,
    "ring": _ring,
}
"""Every kind of matrix; those that need three machines are the same as `one alone` with two."""


def draw(rng: Rng, names: list[str]) -> tuple[str, Cuts]:
    """Return (kind, directions that are cut) of a matrix between these machines, at least two of them."""
    rest = list(names)
    shuffled: list[str] = []
    while rest:
        shuffled.append(rest.pop(rng.below(len(rest))))
    kinds = list(KINDS) if len(names) > 2 else ["one alone", "half a side"]
    kind = kinds[rng.below(len(kinds))]
    return kind, KINDS[kind](rng, shuffled)
