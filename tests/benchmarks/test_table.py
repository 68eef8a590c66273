"""The tables of BENCHMARKS.md: numbers that can be read, ratios of the right way round, faults that show."""

from __future__ import annotations

import pytest

from benchmarks import pages, table
from benchmarks.rounds import Figures, spread


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0123, "0.012"), (0.0996, "0.10"), (0.5, "0.50"), (9.994, "9.99"), (10, "10.0"), (12345.6, "12,346")],
)
def test_a_number_has_about_three_digits(value: float, text: str) -> None:
    assert table.number(value) == text


def test_the_spread_is_around_the_median() -> None:
    assert spread([3.0, 1.0, 2.00004]) == {"median": 2.0, "low": 1.0, "high": 3.0}


OWN: Figures = {"cpu_us": spread([1.0, 2.0, 4.0])}
PEER: Figures = {"cpu_us": spread([10.0])}
FAILED: Figures = {"cpu_us": spread([0.1]), "faults": {"lost": 3}, "texts": ["3 messages did not arrive"]}


def test_a_ratio_says_how_often_ours_fits_into_theirs() -> None:
    assert table.times(OWN, PEER, "cpu_us") == "5.00 x"
    assert table.times(PEER, OWN, "cpu_us") == "0.20 x"
    assert table.times(OWN, None, "cpu_us") == "-"


def test_a_run_with_faults_has_no_figures() -> None:
    assert table.with_spread(OWN, "cpu_us") == "2.00 (1.00 to 4.00)"
    assert table.with_spread(PEER, "cpu_us") == "10.0"
    assert [table.with_spread(FAILED, "cpu_us"), table.plain(FAILED, "cpu_us")] == ["failed", "failed"]
    assert table.times(FAILED, PEER, "cpu_us") == "-"
    assert table.faults("here", FAILED) == ["- here: lost 3. 3 messages did not arrive"]
    assert table.faults("here", OWN) == []


def test_only_what_stands_between_the_markers_is_replaced() -> None:
    page = "a\n<!-- begin: x -->\nold\n<!-- end: x -->\nb <!-- begin: y --><!-- end: y -->"
    assert table.filled(page, "x", "new \\1") == page.replace("old", "new \\1")
    with pytest.raises(ValueError, match="z"):
        table.filled(page, "z", "")


def test_the_page_has_a_place_for_every_section() -> None:
    text = (pages.ROOT / "BENCHMARKS.md").read_text(encoding="utf-8")
    for name in pages.SECTIONS:
        assert text.count(f"<!-- begin: {name} -->") == text.count(f"<!-- end: {name} -->") == 1
