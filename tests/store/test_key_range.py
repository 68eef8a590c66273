"""Ranges of keys: the same set as one that has every key by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.store.key_range import KeyRanges

NUMBERS = st.integers(0, 24)


def key_of(number: int) -> bytes:
    return b"k%02d" % number


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=20), NUMBERS, NUMBERS)
def test_ranges_have_the_keys_that_were_added(added: list[tuple[int, int]], low: int, high: int) -> None:
    ranges = KeyRanges()
    model: set[int] = set()
    for start, end in added:
        ranges.add(key_of(start), key_of(end))
        model.update(range(start, end))
    for number in range(25):
        around = ranges.around(key_of(number))
        assert (around is not None) == (number in model)
        assert around is None or around[0] <= key_of(number) < around[1]
    assert ranges.overlaps(key_of(low), key_of(high)) == any(number in model for number in range(low, high))
    borders = [border for pair in ranges.pairs() for border in pair]
    assert borders == sorted(set(borders)), "they neither overlap nor touch"
