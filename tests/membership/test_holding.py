"""Holdings: their order, and their bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.membership.holding import (
    COMPLETE,
    DAMAGED,
    NONE,
    PARTIAL,
    Holding,
    decode_holdings,
    encode_holdings,
    later,
)

COPY = Holding(COMPLETE, 9, 30, [(3, 0), (5, 10), (9, 20)])


def test_later_goes_by_epoch_then_sequence() -> None:
    assert later(Holding(COMPLETE, 5, 1, []), Holding(COMPLETE, 4, 9, []))
    assert later(Holding(COMPLETE, 5, 2, []), Holding(COMPLETE, 5, 1, []))
    assert not later(COPY, COPY)


HOLDINGS = st.lists(
    st.builds(
        Holding,
        st.integers(PARTIAL, DAMAGED),
        st.integers(0, 1 << 63),
        st.integers(0, 1 << 50),
        st.lists(st.tuples(st.integers(0, 1 << 63), st.integers(0, 1 << 50)), max_size=40),
    ),
    max_size=20,
).map(lambda some: [*some, Holding(NONE, 0, 0, [])])


@given(HOLDINGS)
def test_holdings_come_back_from_their_bytes(holdings: list[Holding]) -> None:
    assert repr(decode_holdings(encode_holdings(holdings))) == repr(holdings)


def test_what_a_node_does_not_have_costs_a_byte() -> None:
    assert len(encode_holdings([Holding(NONE, 0, 0, []) for _ in range(4096)])) < 4096 + 16


@given(st.binary(max_size=80))
def test_nonsense_is_a_value_error(data: bytes) -> None:
    try:
        decode_holdings(data)
    except ValueError:
        return
