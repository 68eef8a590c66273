"""The sketch of latencies: buckets without gaps, the stated error, merging by addition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.metrics.sketch import EXACT, Sketch, bucket_of, lower_of, middle_of


def test_small_times_are_exact() -> None:
    assert [bucket_of(value) for value in (-5, 0, 1, 127)] == [0, 0, 1, 127]
    assert [middle_of(bucket) for bucket in (0, 1, 127)] == [0, 1, 127]


def test_buckets_follow_each_other_without_a_gap() -> None:
    assert bucket_of(128) == bucket_of(129) == EXACT
    assert bucket_of(130) == EXACT + 1
    assert bucket_of(255) + 1 == bucket_of(256)
    for bucket in range(2000):
        assert bucket_of(lower_of(bucket)) == bucket
        assert bucket_of(lower_of(bucket + 1) - 1) == bucket


@given(st.integers(0, (1 << 40) - 1))
def test_the_middle_is_within_the_stated_error(value: int) -> None:
    assert abs(middle_of(bucket_of(value)) - value) * 128 <= value


def test_the_longest_times_share_a_bucket() -> None:
    assert bucket_of(1 << 60) == bucket_of((1 << 40) - 1)


def test_what_is_within_the_objective_is_counted_exactly() -> None:
    sketch = Sketch()
    sketch.add(4_995, 2, 5_000)
    sketch.add(5_000, 3, 5_000)
    sketch.add(5_001, 4, 5_000)
    assert bucket_of(4_995) == bucket_of(5_000) == bucket_of(5_001), "buckets alone could not tell"
    assert (sketch.count, sketch.within) == (9, 5)
    assert sketch.pairs() == [[bucket_of(5_000), 9]]
