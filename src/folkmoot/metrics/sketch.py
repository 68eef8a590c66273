"""A mergeable sketch of times: counts in buckets that grow with the value, sent as pairs in an event.

Owns counts. Values below 128 us have a bucket each; above, every power of two is split into 64 buckets of equal width,
so that the middle of a bucket is off by at most 1/128, 0.8 %. Sketches of any nodes and times are merged by adding the
counts of equal buckets. `folkmoot.metrics.histogram` is coarser and has a constant size, for metrics.
"""

from __future__ import annotations

from typing import Final

__all__ = ["EXACT", "SPLIT", "Sketch", "bucket_of", "lower_of", "middle_of"]

SPLIT: Final = 64
EXACT: Final = 128
_SPLIT_BITS: Final = 7
_VALUE_MAX: Final = (1 << 40) - 1
"""Twelve days; longer times count as twelve days."""


def bucket_of(value_us: int) -> int:
    """Return the bucket of a time in microseconds; a negative one, after a clock was set back, counts as 0."""
    if value_us < EXACT:
        return max(value_us, 0)
    value_us = min(value_us, _VALUE_MAX)
    shift = value_us.bit_length() - _SPLIT_BITS
    return shift * SPLIT + (value_us >> shift)


def lower_of(bucket: int) -> int:
    """Return the smallest time that a bucket counts, in microseconds."""
    if bucket < EXACT:
        return bucket
    shift = bucket // SPLIT - 1
    return (bucket - shift * SPLIT) << shift


def middle_of(bucket: int) -> int:
    """Return the time that represents a bucket: at most 0.8 % off."""
    return (lower_of(bucket) + lower_of(bucket + 1)) // 2 if bucket >= EXACT else bucket


class Sketch:
    """Counts of times; `within` is exact: how many did not exceed the objective that applied to them."""

    def __init__(self) -> None:
        self.count = 0
        self.within = 0
        self.buckets: dict[int, int] = {}

    def add(self, value_us: int, times: int, objective_us: int) -> None:
        """Count a time, `times` times."""
        self.count += times
        if value_us <= objective_us:
            self.within += times
        bucket = bucket_of(value_us)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + times

    def pairs(self) -> list[list[int]]:
        """Return [bucket, count] for each bucket that is not empty, in order."""
        return [[bucket, self.buckets[bucket]] for bucket in sorted(self.buckets)]

    def __repr__(self) -> str:
        return f"Sketch(count={self.count} within={self.within} buckets={len(self.buckets)})"
