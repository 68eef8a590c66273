"""Holdings: which copy has seen what another has, and their bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.cluster.holding import (
    COMPLETE,
    HISTORY_MAX,
    NONE,
    PARTIAL,
    Holding,
    contains,
    decode_holdings,
    encode_holdings,
    later,
)

COPY = Holding(COMPLETE, 9, 30, [(3, 0), (5, 10), (9, 20)])


@pytest.mark.parametrize(
    ("epoch", "seq", "has"),
    [
        (0, 0, True),
        (3, 1, True),
        (3, 10, True),
        (3, 11, False),  # epoch 3 ended with 10 here
        (5, 11, True),
        (5, 10, False),  # change 10 is of epoch 3
        (9, 30, True),
        (9, 31, False),
        (4, 5, False),  # another branch
        (10, 5, False),
    ],
)
def test_a_copy_has_the_changes_of_its_history(epoch: int, seq: int, has: bool) -> None:
    assert contains(COPY, epoch, seq) is has


def test_later_goes_by_epoch_then_sequence() -> None:
    assert later(Holding(COMPLETE, 5, 1, []), Holding(COMPLETE, 4, 9, []))
    assert later(Holding(COMPLETE, 5, 2, []), Holding(COMPLETE, 5, 1, []))
    assert not later(COPY, COPY)


HOLDINGS = st.lists(
    st.builds(
        Holding,
        st.integers(PARTIAL, 3),
        st.integers(0, 1 << 63),
        st.integers(0, 1 << 50),
        st.lists(st.tuples(st.integers(0, 1 << 63), st.integers(0, 1 << 50)), max_size=HISTORY_MAX),
    ),
    max_size=20,
).map(lambda some: [*some, Holding(NONE, 0, 0, [])])


@given(HOLDINGS)
def test_holdings_come_back_from_their_bytes(holdings: list[Holding]) -> None:
    assert repr(decode_holdings(encode_holdings(holdings))) == repr(holdings)


def test_a_longer_history_is_cut_to_the_newest() -> None:
    history = [(epoch, epoch) for epoch in range(HISTORY_MAX + 5)]
    (back,) = decode_holdings(encode_holdings([Holding(PARTIAL, 99, 99, history)]))
    assert back.history == history[5:]


def test_what_a_node_does_not_have_costs_a_byte() -> None:
    assert len(encode_holdings([Holding(NONE, 0, 0, []) for _ in range(4096)])) < 4096 + 16


@given(st.binary(max_size=80))
def test_nonsense_is_a_value_error(data: bytes) -> None:
    try:
        decode_holdings(data)
    except ValueError:
        return
