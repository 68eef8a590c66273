"""The subscription tree against brute force, its order, and that nothing is left when all is removed."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.topics.name import check_filter, matches
from folkmoot.topics.tree import Tree

DEPTH = 32_768
LITERAL = ["", "a", "b", "$S"]
TOPIC = st.lists(st.sampled_from(LITERAL), min_size=1, max_size=5).map("/".join).filter(bool).map(str.encode)
LEVELS = st.lists(st.sampled_from([*LITERAL, "+", "+"]), max_size=5)
FILTER = (
    st.builds(lambda levels, tail: "/".join(levels + tail), LEVELS, st.sampled_from([[], ["#"]]))
    .filter(bool)
    .map(str.encode)
)
PAIR = st.tuples(FILTER, st.integers(0, 3))


def filled(pairs: list[tuple[bytes, int]]) -> Tree:
    tree = Tree()
    for topic_filter, value in pairs:
        tree.add(topic_filter, value)
    return tree


@given(st.lists(PAIR, max_size=30), st.lists(TOPIC, max_size=10))
def test_match_equals_brute_force(pairs: list[tuple[bytes, int]], topics: list[bytes]) -> None:
    tree = filled(pairs)
    for topic in topics:
        expected = sorted(value for text, value in dict.fromkeys(pairs) if matches(text, topic))
        assert numbers(tree, topic) == expected


@given(st.lists(st.tuples(st.booleans(), PAIR), max_size=60), TOPIC)
def test_add_and_remove_behave_like_a_set(steps: list[tuple[bool, tuple[bytes, int]]], topic: bytes) -> None:
    tree = Tree()
    model: dict[bytes, list[int]] = {}
    for adding, (text, value) in steps:
        values = model.setdefault(text, [])
        if adding:
            assert tree.add(text, value) is (not values)
            if value not in values:
                values.append(value)
        else:
            assert tree.remove(text, value) is (values == [value])
            if value in values:
                values.remove(value)
        assert tree.values(text) == values
    assert len(tree) == sum(map(len, model.values()))
    assert set(tree.items()) == {(text, value) for text, values in model.items() for value in values}
    assert numbers(tree, topic) == sorted(v for text, values in model.items() if matches(text, topic) for v in values)


@given(st.lists(PAIR, max_size=30), st.randoms(use_true_random=False))
def test_nothing_is_left(pairs: list[tuple[bytes, int]], random: Random) -> None:
    tree = filled(pairs)
    rest = list(dict.fromkeys(pairs))
    random.shuffle(rest)
    for text, value in rest:
        tree.remove(text, value)
    assert_empty(tree)


def numbers(tree: Tree, topic: bytes) -> list[int]:
    return sorted(value for value in tree.match(topic) if isinstance(value, int))


def assert_empty(tree: Tree) -> None:
    assert len(tree) == 0
    assert tree.wildcards == 0
    assert tree.filters == {}
    assert tree.root.is_empty()


def test_remove_says_when_the_last_value_went() -> None:
    tree = Tree()
    assert tree.add(b"a/+", "x") is True
    assert tree.add(b"a/+", "y") is False
    assert tree.add(b"a/+", "y") is False
    assert len(tree) == 2
    assert tree.remove(b"a/+", "z") is False
    assert tree.remove(b"b", "x") is False
    assert tree.remove(b"a/+", "x") is False
    assert tree.remove(b"a/+", "y") is True
    assert tree.remove(b"a/+", "y") is False
    assert_empty(tree)


@pytest.mark.parametrize("topic_filter", [b"#", b"+", b"+/+", b"a/#", b"a/+", b"+/#", b"/", b"a"])
def test_each_shape_is_pruned_alone_and_beside_another(topic_filter: bytes) -> None:
    tree = Tree()
    tree.add(b"a/+/c", 1)
    tree.add(topic_filter, 2)
    tree.remove(topic_filter, 2)
    assert tree.match(b"a/b/c") == [1]
    tree.remove(b"a/+/c", 1)
    assert_empty(tree)


def test_order_is_that_of_the_calls() -> None:
    tree = filled(
        [(b"a/+", 1), (b"+/b", 2), (b"a/b", 3), (b"#", 4), (b"a/#", 5), (b"a/b", 0), (b"+/+", 6), (b"a/b/#", 7)]
    )
    assert tree.match(b"a/b") == [3, 0, 4, 5, 7, 1, 2, 6]
    assert tree.items()[:4] == [(b"a/+", 1), (b"+/b", 2), (b"a/b", 3), (b"a/b", 0)]
    assert repr(tree) == "Tree(filters=7, wildcards=6, values=8)"


def test_a_value_comes_once_per_filter() -> None:
    tree = filled([(b"a", 1), (b"+", 1), (b"#", 1)])
    assert tree.match(b"a") == [1, 1, 1]


def test_dollar_topics_are_not_matched_by_leading_wildcards() -> None:
    tree = filled([(b"#", 1), (b"+/x", 2), (b"+/#", 3), (b"$SYS/#", 4), (b"$SYS/+", 5), (b"$SYS/x", 6)])
    assert tree.match(b"$SYS/x") == [6, 4, 5]
    assert tree.match(b"$SYS") == [4]
    assert tree.match(b"a/$SYS") == [1, 3]


@pytest.mark.parametrize("level", [b"a", b"+"])
@pytest.mark.parametrize("end", [b"+", b"#", b"a"])
def test_32768_levels(level: bytes, end: bytes) -> None:
    topic = b"/".join([b"a"] * DEPTH)
    deep = b"/".join([level] * (DEPTH - 1) + [end])
    assert check_filter(deep, DEPTH) is None
    tree = filled([(deep, 1), (b"#", 2)])
    assert numbers(tree, topic) == [1, 2]
    assert tree.match(b"a") == [2]
    assert tree.remove(deep, 1)
    assert tree.remove(b"#", 2)
    assert_empty(tree)


def test_a_deep_tree_can_be_dropped_whole() -> None:
    tree = filled([(b"/".join([b"+"] * DEPTH), 1), (b"/".join([b"a"] * (DEPTH - 1)) + b"/#", 1)])
    assert len(tree) == 2
    del tree


@settings(max_examples=20)
@given(st.integers(1, 12))
def test_all_combinations_of_plus(depth: int) -> None:
    tree = Tree()
    for mask in range(1 << depth):
        tree.add(b"/".join([b"+" if mask >> i & 1 else b"a" for i in range(depth)]), mask)
    assert len(tree.match(b"/".join([b"a"] * depth))) == 1 << depth
    assert tree.match(b"/".join([b"b"] * depth)) == [(1 << depth) - 1]
