"""Buckets cover all values without gap or overlap; quantiles keep the error that the module promises."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.metrics.histogram import BUCKETS, Histogram, bucket_of, upper_of

LARGE = (1 << 40) - 1


def filled(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


def test_buckets_join_without_gap() -> None:
    lower = 0
    for bucket in range(BUCKETS):
        upper = upper_of(bucket)
        assert upper >= lower
        assert bucket_of(lower) == bucket
        assert bucket_of(upper) == bucket
        assert upper - lower <= lower / 16
        lower = upper + 1
    assert lower == LARGE + 1


def test_values_beyond_the_last_bucket_are_counted_in_it() -> None:
    histogram = filled([LARGE, LARGE + 1, 1 << 60])
    assert histogram.counts[BUCKETS - 1] == 3
    assert histogram.max_us == 1 << 60
    assert histogram.quantile(0.1) == 1 << 60


@given(st.lists(st.integers(0, LARGE), min_size=1, max_size=50), st.floats(0, 1))
def test_quantile_is_never_too_low_and_at_most_a_sixteenth_too_high(values: list[int], share: float) -> None:
    exact = sorted(values)[max(ceil(share * len(values)), 1) - 1]
    found = filled(values).quantile(share)
    assert exact <= found <= exact + exact / 16


@given(st.lists(st.integers(0, 1 << 42)), st.lists(st.integers(0, 1 << 42)))
def test_merge_equals_recording_all(left: list[int], right: list[int]) -> None:
    merged = filled(left)
    merged.merge(filled(right))
    whole = filled(left + right)
    assert merged.counts == whole.counts
    assert (merged.count, merged.total_us, merged.max_us) == (whole.count, whole.total_us, whole.max_us)


@given(st.lists(st.integers(0, 1 << 42)), st.integers(4, 39))
def test_below_is_exact(values: list[int], bits: int) -> None:
    assert filled(values).below(bits) == sum(value < 1 << bits for value in values)


def test_below_refuses_what_is_no_border() -> None:
    with pytest.raises(AssertionError):
        Histogram().below(3)
    with pytest.raises(AssertionError):
        Histogram().below(40)


def test_record_many_at_once() -> None:
    histogram = Histogram()
    histogram.record(7, 3)
    histogram.record(-5)
    assert (histogram.count, histogram.total_us, histogram.max_us) == (4, 21, 7)
    assert histogram.quantile(0.25) == 0
    assert repr(histogram) == "Histogram(count=4, p50=7, p99=7, max=7)"


def test_empty() -> None:
    assert Histogram().quantile(0.99) == 0
    with pytest.raises(AssertionError):
        Histogram().quantile(1.5)
