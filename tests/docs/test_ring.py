"""The table of docs/ring.md is what the code does."""

from __future__ import annotations

import runpy

import pytest

from tests.docs.page import ROOT

RING = runpy.run_path(str(ROOT / "scripts" / "ring.py"))
PAGE = (ROOT / "docs" / "ring.md").read_text(encoding="utf-8")


def test_every_case_is_on_the_page() -> None:
    rows = [line for line in PAGE.splitlines() if line[:3].strip("| ").isdigit()]
    assert [tuple(line.split("|")[at].strip() for at in (1, 2)) for line in rows] == [
        (str(nodes), f"{partitions:,}") for nodes, partitions, _zones in RING["CASES"]
    ]


# The largest take seconds, and are measured by hand.
@pytest.mark.parametrize("case", [case for case in RING["CASES"] if case[0] * case[1] <= 20_480], ids=str)
def test_the_page_says_what_the_placement_does(case: tuple[int, int, int]) -> None:
    assert RING["row"](*case) in PAGE.splitlines(), "python -m scripts.ring writes the page anew"
