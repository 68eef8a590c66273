"""Buckets of the timeline: their width follows the span; marks as users write them."""

from __future__ import annotations

import pytest

from pyspark_folkmoot.ready.timeline import BUCKETS_MAX, DAY, HOUR, MINUTE, WIDTHS_S, bucket_s, parse_mark


@pytest.mark.parametrize(
    ("span_s", "interval_s", "width_s"),
    [
        (0, 0, 1),
        (4 * MINUTE, 1.0, 2),  # 240 s in at most 150 buckets: 1.6 s
        (4 * MINUTE, 2.001, 2),
        (4 * MINUTE, 10.003, 10),  # the nodes tell no more than that
        (HOUR, 10.0, 30),  # 24 s
        (DAY, 10.0, 10 * MINUTE),  # 576 s
        (9 * DAY, 10.0, 2 * HOUR),  # 5,184 s
        (30 * DAY, 10.0, 6 * HOUR),  # 17,280 s
        (365 * DAY, 10.0, 3 * DAY),  # 2.43 days
    ],
)
def test_the_width_of_a_bucket_follows_the_span(span_s: float, interval_s: float, width_s: int) -> None:
    assert bucket_s(span_s, interval_s) == width_s


@pytest.mark.parametrize("span_s", [1, 59, 151, 4321, 86_399, 86_401, 1_000_000, 12_345_678, 123_456_789])
def test_there_are_never_too_many_buckets(span_s: int) -> None:
    assert span_s / bucket_s(span_s, 1.0) <= BUCKETS_MAX


def test_widths_divide_a_unit_that_people_count_in() -> None:
    for width_s in WIDTHS_S:
        assert any(unit_s % width_s == 0 for unit_s in (MINUTE, HOUR, DAY))


def test_a_mark_is_a_time_and_a_label() -> None:
    mark = parse_mark("1970-01-01T00:01:00.5Z  new firmware ")
    assert (mark.at_s, mark.label) == (60.5, "new firmware")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2026-03-01T12:00:00Z", "has no label"),
        ("noon deployed", "not a time"),
        ("2026-03-01T12:00:00 x", "no time zone"),
    ],
)
def test_a_mark_that_is_none_says_what_is_missing(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_mark(text)
