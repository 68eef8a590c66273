"""Majorities: arithmetic over all memberships of up to seven nodes."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from folkmoot.membership.quorum import count_of, has_majority, has_majority_or_tie, is_majority, votes_of


@pytest.mark.parametrize(
    ("count", "total", "expected"),
    [
        (0, 0, False),
        (1, 1, True),
        (1, 2, False),
        (2, 3, True),
        (2, 4, False),
        (3, 4, True),
        (2, 5, False),
        (3, 5, True),
    ],
)
def test_a_majority_is_more_than_half(count: int, total: int, expected: bool) -> None:
    assert is_majority(count, total) is expected


def test_only_those_who_count_are_counted() -> None:
    assert count_of(["a", "b", "c"], ["c", "x", "a", "y"]) == 2
    assert not has_majority(["a", "b", "c"], ["a", "x", "y"])
    assert not has_majority_or_tie(["b", "c"], ["a", "c"])  # "a" is lower, and does not count


def test_votes_are_twice_the_number_and_one_for_the_lowest_id() -> None:
    assert votes_of(["a", "b", "c"], ["b", "c"]) == 4
    assert votes_of(["c", "b", "a"], ["b", "a"]) == 5  # whatever the order
    assert votes_of([], ["a"]) == 0


@pytest.mark.parametrize("size", range(1, 8))
def test_two_components_never_both_have_a_majority(size: int) -> None:
    known = [f"n{number}" for number in range(size)]
    for sides in product((0, 1, 2), repeat=size):  # 2: at neither side
        one, other = ([node_id for node_id, side in zip(known, sides, strict=True) if side == at] for at in (0, 1))
        assert not (has_majority(known, one) and has_majority(known, other))
        assert not (has_majority_or_tie(known, one) and has_majority_or_tie(known, other))


@pytest.mark.parametrize("size", range(1, 8))
def test_one_of_two_halves_that_are_all_there_is_goes_on(size: int) -> None:
    known = [f"n{number}" for number in range(size)]
    for count in range(size + 1):
        for side in combinations(known, count):
            rest = [node_id for node_id in known if node_id not in side]
            assert has_majority_or_tie(known, side) is not has_majority_or_tie(known, rest)
