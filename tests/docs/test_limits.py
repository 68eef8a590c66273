"""docs/limits.md: every exception says which promise it qualifies, every defect when it shows and what to do."""

from __future__ import annotations

import re

from tests.docs.page import ROOT

TEXT = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")


def points(heading: str) -> list[str]:
    """The items of the lists of a section that begin with what one will see, each in one line."""
    section = re.split(r"^## ", TEXT.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]
    items = re.findall(r"^- \*\*.*(?:\n  .*)*", section, flags=re.MULTILINE)
    return [" ".join(item.split()) for item in items]


def promises() -> set[str]:
    return set(re.findall(r"^\| (A\d+) \|", TEXT, flags=re.MULTILINE))


def named(text: str) -> set[str]:
    return set(re.findall(r"\bA\d+\b", text))


def test_every_exception_names_the_promise_that_it_qualifies() -> None:
    found = points("What is not promised")
    assert len(found) > 20
    ends = {point[:60]: re.search(r"\((A\d+(?:, A\d+)*)\)$", point) for point in found}
    assert [point for point, end in ends.items() if end is None] == []
    assert {name for end in ends.values() if end for name in named(end[1])} <= promises()


def test_every_defect_says_when_it_shows_what_it_breaks_and_what_to_do() -> None:
    found = points("Known defects in this version")
    parts = re.compile(r"\*Breaks\* (A\d+(?:, A\d+)*)\. \*Meanwhile:\* ")
    assert [point[:60] for point in found if not parts.search(point)] == []
    assert {name for point in found for name in named(point)} <= promises()
