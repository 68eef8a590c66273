"""The generator against published numbers, and what is built on it against its promises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.kernel.rng import Rng

SEEDS = st.integers(0, 2**64 - 1)

# SplitMix64 as others print it: seed 1234567 from Rosetta Code ("Pseudo-random numbers/Splitmix64"), seed 0 from the
# tests of the reference implementation's ports (Vigna, https://prng.di.unimi.it/splitmix64.c).
PUBLISHED = {
    1234567: [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ],
    0: [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC, 0x1B39896A51A8749B],
}


@pytest.mark.parametrize("seed", PUBLISHED)
def test_the_numbers_are_those_of_splitmix64(seed: int) -> None:
    rng = Rng(seed)
    assert [rng.next64() for _ in PUBLISHED[seed]] == PUBLISHED[seed]


def test_a_seed_counts_modulo_2_to_the_64() -> None:
    assert Rng(2**64 + 1234567).next64() == PUBLISHED[1234567][0]
    assert Rng(-(2**64)).next64() == PUBLISHED[0][0]


@given(SEEDS, st.integers(1, 2**64))
def test_below_stays_below(seed: int, bound: int) -> None:
    rng = Rng(seed)
    assert all(0 <= rng.below(bound) < bound for _ in range(20))


def test_below_reaches_every_value_about_equally_often() -> None:
    rng, counts = Rng(7), [0] * 10
    for _ in range(20_000):
        counts[rng.below(10)] += 1
    # 2000 each; the standard deviation is sqrt(20000 * 0.1 * 0.9) = 42, and five of them are 212.
    assert all(1788 < count < 2212 for count in counts), counts


def test_below_needs_a_positive_bound() -> None:
    with pytest.raises(AssertionError, match="positive"):
        Rng(1).below(0)


@given(SEEDS, st.integers(-1000, 1000), st.integers(0, 3))
def test_between_includes_both_ends(seed: int, low: int, width: int) -> None:
    rng = Rng(seed)
    assert {rng.between(low, low + width) for _ in range(200)} == set(range(low, low + width + 1))


@given(SEEDS)
def test_chance_is_certain_at_its_ends(seed: int) -> None:
    rng = Rng(seed)
    assert all(rng.chance(5, 5) for _ in range(20))
    assert not any(rng.chance(0, 5) for _ in range(20))


def test_chance_is_what_it_says() -> None:
    rng = Rng(3)
    hits = sum([rng.chance(1, 4) for _ in range(20_000)])
    assert 4694 < hits < 5306  # 5000, five standard deviations of sqrt(20000 * 3) / 4 = 61 on either side


@given(SEEDS, st.integers(0, 40))
def test_a_token_is_made_of_its_alphabet(seed: int, length: int) -> None:
    token = Rng(seed).token(length)
    assert len(token) == length
    assert set(token) <= set("abcdefghijklmnopqrstuvwxyz234567")


@given(SEEDS)
def test_the_same_seed_gives_the_same_numbers_and_a_fork_others(seed: int) -> None:
    rng, twin = Rng(seed), Rng(seed)
    assert [rng.next64() for _ in range(10)] == [twin.next64() for _ in range(10)]
    fork, other = rng.fork(), twin.fork()
    after = [rng.next64() for _ in range(10)]
    assert [fork.next64() for _ in range(10)] == [other.next64() for _ in range(10)]
    assert [Rng(seed).fork().next64() for _ in range(10)] != after
