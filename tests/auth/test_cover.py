"""The relations between filters, proven by enumerating the topics of a small alphabet."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.auth.cover import covers, overlaps
from folkmoot.topics.name import check_filter, matches

# Two more levels than a filter has, and a letter that no filter uses: if topics outside a filter exist, one is here.
TOPICS = [b"/".join(t) for n in range(1, 6) for t in itertools.product((b"", b"a", b"$", b"z"), repeat=n)][1:]
FILTERS = [
    text
    for n in range(1, 4)
    for text in map(b"/".join, itertools.product((b"", b"a", b"$", b"+", b"#"), repeat=n))
    if check_filter(text, 3) is None
]


def matched(text: bytes) -> int:
    """The topics that a filter matches, as a set of bits."""
    return sum(1 << i for i, topic in enumerate(TOPICS) if matches(text, topic))


def test_relations_equal_enumeration() -> None:
    sets = {text: matched(text) for text in FILTERS}
    assert len(FILTERS) > 80
    for one, other in itertools.product(FILTERS, repeat=2):
        assert covers(one, other) is (sets[other] & ~sets[one] == 0), (one, other)
        assert overlaps(one, other) is (sets[one] & sets[other] != 0), (one, other)


def test_for_a_topic_both_mean_that_it_matches() -> None:
    for text in FILTERS:
        for topic in TOPICS[:400]:
            assert covers(text, topic) is overlaps(text, topic) is matches(text, topic), (text, topic)


LEVELS = st.lists(st.sampled_from(["", "a", "b", "$", "+", "+"]), max_size=6)
FILTER = st.builds(lambda levels, tail: "/".join(levels + tail).encode(), LEVELS, st.sampled_from([[], ["#"]])).filter(
    bool
)


@given(FILTER, FILTER, FILTER)
def test_laws(one: bytes, two: bytes, three: bytes) -> None:
    assert covers(one, one)
    assert overlaps(one, one)
    assert overlaps(one, two) is overlaps(two, one)
    if covers(one, two):
        assert overlaps(one, two)
        assert covers(one, three) or not covers(two, three)


@pytest.mark.parametrize("level", [b"a", b"+"])
def test_32768_levels(level: bytes) -> None:
    deep = b"/".join([level] * 32_768)
    assert covers(deep, b"/".join([b"a"] * 32_768))
    assert covers(b"#", deep)
    assert not covers(deep, b"#")
    assert not overlaps(deep, deep + b"/a")
    assert overlaps(deep, deep[:-1] + b"#")
