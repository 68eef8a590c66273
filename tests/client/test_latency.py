"""The latency histogram: quantiles near the truth, buckets in order and without holes."""

from __future__ import annotations

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.client.histogram import SPLIT_BITS, LatencyHistogram, bucket_of, upper_of

VALUES = st.integers(min_value=0, max_value=2**45)


@given(st.lists(VALUES, min_size=1, max_size=200), st.floats(min_value=0.0, max_value=1.0))
def test_a_quantile_is_never_too_low_and_at_most_one_bucket_too_high(values: list[int], share: float) -> None:
    histogram = LatencyHistogram()
    for value in values:
        histogram.record(value)
    exact = sorted(values)[max(ceil(share * len(values)), 1) - 1]
    assert exact <= histogram.quantile(share) <= exact + (exact >> SPLIT_BITS)


@given(VALUES)
def test_a_value_lies_in_its_bucket_and_the_next_value_after_it_in_the_next(value: int) -> None:
    bucket = bucket_of(value)
    upper = upper_of(bucket)
    assert value <= upper
    assert bucket_of(upper) == bucket
    assert bucket_of(upper + 1) == bucket + 1


@given(st.lists(VALUES), st.lists(VALUES))
def test_a_merge_is_the_same_as_counting_all_in_one(first: list[int], second: list[int]) -> None:
    one, other, whole = LatencyHistogram(), LatencyHistogram(), LatencyHistogram()
    for value in first:
        one.record(value)
        whole.record(value)
    for value in second:
        other.record(value)
        whole.record(value)
    one.merge(other)
    assert (one.counts, one.count, one.max_ns) == (whole.counts, whole.count, whole.max_ns)


def test_an_empty_histogram_says_zero_and_a_clock_set_back_counts_as_zero() -> None:
    histogram = LatencyHistogram()
    assert histogram.quantile(0.99) == 0
    histogram.record(-5)
    assert (histogram.count, histogram.quantile(1.0), histogram.max_ns) == (1, 0, 0)
