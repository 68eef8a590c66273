"""A histogram of integer microseconds whose buckets grow with the value: constant size, known relative error.

Owns counts. Does not keep the values, and reads no clock.

Values below 16 have a bucket each. Above, every power of two is split into 16 buckets of equal width, so a bucket is
never wider than 1/16 of its lower bound: a quantile is at most 6.25 % too high and never too low (the scheme of
HdrHistogram). Values of 2**40 us (12 days) and more share the last bucket.
"""

from __future__ import annotations

from math import ceil
from typing import Final

__all__ = ["Histogram"]

SPLIT_BITS: Final = 4
SPLIT: Final = 16
VALUE_BITS_MAX: Final = 40
BUCKETS: Final = 592
"""(VALUE_BITS_MAX - SPLIT_BITS + 1) * SPLIT."""


def bucket_of(value: int) -> int:
    """Return the index of the bucket that counts a value >= 0."""
    if value < SPLIT:
        return value
    bits = value.bit_length()
    if bits > VALUE_BITS_MAX:
        return BUCKETS - 1
    shift = bits - SPLIT_BITS - 1
    return shift * SPLIT + (value >> shift)


def upper_of(bucket: int) -> int:
    """Return the largest value that a bucket counts; for the last bucket, which has no limit, its nominal bound."""
    if bucket < SPLIT:
        return bucket
    shift = bucket // SPLIT - 1
    return ((bucket - shift * SPLIT + 1) << shift) - 1


class Histogram:
    """Counts of values in microseconds; `count`, `total_us`, `max_us` are exact, quantiles are within 6.25 %."""

    def __init__(self) -> None:
        self.counts: list[int] = [0] * BUCKETS
        self.count = 0
        self.total_us = 0
        self.max_us = 0

    def __repr__(self) -> str:
        return f"Histogram(count={self.count}, p50={self.quantile(0.5)}, p99={self.quantile(0.99)}, max={self.max_us})"

    def record(self, value_us: int, times: int = 1) -> None:
        """Count a value; a negative one, after a clock was set back, counts as 0."""
        if value_us < 0:
            value_us = 0
        self.counts[bucket_of(value_us)] += times
        self.count += times
        self.total_us += value_us * times
        if value_us > self.max_us:
            self.max_us = value_us

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        for i in range(BUCKETS):
            self.counts[i] += other.counts[i]
        self.count += other.count
        self.total_us += other.total_us
        if other.max_us > self.max_us:
            self.max_us = other.max_us

    def quantile(self, share: float) -> int:
        """Return a value in microseconds that at least `share` (0 to 1) of the values do not exceed; 0 if empty."""
        assert 0.0 <= share <= 1.0, "a quantile lies between 0 and 1"
        if self.count == 0:
            return 0
        wanted = max(ceil(share * self.count), 1)
        seen = 0
        for i in range(BUCKETS - 1):
            seen += self.counts[i]
            if seen >= wanted:
                upper = upper_of(i)
                return upper if upper < self.max_us else self.max_us
        return self.max_us

    def below(self, bits: int) -> int:
        """Return how many values were below 2**bits us, exactly; `bits` from 4 to 39."""
        assert SPLIT_BITS <= bits < VALUE_BITS_MAX, "only powers of two from 16 to 2**39 are bounds of buckets"
        return sum(self.counts[: (bits - SPLIT_BITS + 1) * SPLIT])
