"""A histogram of latencies in nanoseconds, fine enough to compare two brokers.

Owns counts. Does not keep the values, and reads no clock. The histogram of `metrics` is cheaper and coarser
(microseconds, 6 %): good enough for the metrics of a node, too coarse for ratios of tens of microseconds.
"""

from __future__ import annotations

from math import ceil
from typing import Final

__all__ = ["LatencyHistogram"]

SPLIT_BITS: Final = 7
"""Every power of two is split into 128 buckets: a quantile is at most 1/128 (0.8 %) too high and never too low."""


def bucket_of(value: int) -> int:
    """Return the bucket that counts a value >= 0; buckets are numbered in the order of their values."""
    shift = value.bit_length() - SPLIT_BITS - 1
    if shift <= 0:
        return value
    return (shift << SPLIT_BITS) + (value >> shift)


def upper_of(bucket: int) -> int:
    """Return the largest value that a bucket counts."""
    shift = (bucket >> SPLIT_BITS) - 1
    if shift <= 0:
        return bucket
    return ((bucket - (shift << SPLIT_BITS) + 1) << shift) - 1


class LatencyHistogram:
    """Counts of values in nanoseconds; `count` and `max_ns` are exact, quantiles within 0.8 %."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.count = 0
        self.max_ns = 0

    def __repr__(self) -> str:
        return f"LatencyHistogram(count={self.count}, p50={self.quantile(0.5)}, max={self.max_ns})"

    def record(self, value_ns: int) -> None:
        """Count one value; a negative one counts as 0."""
        value_ns = max(value_ns, 0)
        bucket = bucket_of(value_ns)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.count += 1
        self.max_ns = max(self.max_ns, value_ns)

    def merge(self, other: LatencyHistogram) -> None:
        """Add the counts of another histogram."""
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.count += other.count
        self.max_ns = max(self.max_ns, other.max_ns)

    def quantile(self, share: float) -> int:
        """Return a value in nanoseconds that at least `share` (0 to 1) of the values do not exceed; 0 if empty."""
        assert 0.0 <= share <= 1.0, "a quantile lies between 0 and 1"
        wanted = max(ceil(share * self.count), 1)
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                return min(upper_of(bucket), self.max_ns)
        return 0
