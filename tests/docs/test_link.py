"""Links between pages lead to pages and headings that are there; pictures are there when they have been drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.page import PAGES, ROOT, anchors, images, links


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = []
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


def test_the_chart_is_there_with_its_figures() -> None:
    charts = [ROOT / name for name in images(ROOT / "README.md")]
    assert charts == [ROOT / "docs" / "img" / "cpu-per-message.svg"]
    # `make bench` writes both; before it has run there is neither.
    assert [chart.exists() for chart in charts] == [(ROOT / "benchmarks" / "results.json").exists()]
