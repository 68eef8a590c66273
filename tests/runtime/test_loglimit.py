from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.runtime.loglimit import ADDRESSES_MAX, ALL_BURST, BURST, SUMMARY_US, LineLimits

NOW = 1_700_000_000_000_000


def test_an_address_writes_a_burst_and_then_five_lines_a_second() -> None:
    limits = LineLimits()
    written = sum(limits.take("refused", "a", NOW + at * 1000) >= 0 for at in range(10_000))
    assert written == BURST + 5 * 9 + 4  # the last of the ten seconds has not passed
    assert limits.suppressed == 10_000 - written


def test_the_next_line_of_an_address_has_its_count_and_no_other() -> None:
    limits = LineLimits()
    for _ in range(BURST + 7):
        limits.take("refused", "a", NOW)
    assert limits.take("refused", "b", NOW) == 0
    assert limits.take("refused", "a", NOW + SECOND) == 7
    assert limits.take("refused", "a", NOW + SECOND) == 0


def test_all_addresses_together_do_not_fill_the_disk() -> None:
    limits = LineLimits()
    written = sum(limits.take("refused", f"{number % 5000}", NOW + number * 10) >= 0 for number in range(100_000))
    assert written <= ALL_BURST + BURST + 25 + 5


def test_a_reserve_is_left_for_an_address_that_was_quiet() -> None:
    limits = LineLimits()
    for at in range(100):
        for number in range(20):
            limits.take("refused", f"noisy{number}", NOW + at * 10_000)
    assert limits.take("refused", "quiet", NOW + SECOND) == 0
    assert limits.take("refused", "noisy1", NOW + SECOND) == -1


def test_kinds_do_not_hide_each_other() -> None:
    limits = LineLimits()
    for number in range(1000):
        limits.take("refused", f"{number}", NOW)
    assert limits.take("connected", "a", NOW) == 0
    assert limits.take("storage_full", "", NOW) == 0


def test_memory_is_bounded_and_every_line_is_counted() -> None:
    limits = LineLimits()
    written = sum(
        limits.take("refused", f"{number}", NOW) >= 0 for _ in range(3) for number in range(2 * ADDRESSES_MAX)
    )
    (summary,) = limits.summaries(NOW + SUMMARY_US)
    assert len(limits._buckets) == ADDRESSES_MAX
    assert summary.lines == limits.suppressed == 6 * ADDRESSES_MAX - written
    assert limits.summaries(NOW + 2 * SUMMARY_US) == []


def test_a_clock_that_is_set_back_silences_nobody() -> None:
    limits = LineLimits()
    for _ in range(BURST + 7):
        limits.take("refused", "a", NOW)
    before = NOW - 86_400 * SECOND
    assert limits.summaries(before)[0].lines == 7
    assert limits.take("refused", "a", before) == -1
    assert limits.take("refused", "a", before + SECOND) >= 0
