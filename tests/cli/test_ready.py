"""`folkmoot report`: what is refused before Spark is started."""

from __future__ import annotations

import pytest

from folkmoot.cli import main
from folkmoot.cli.ready import cell, group_pattern


@pytest.mark.parametrize(
    ("pattern", "text"), [("[", "--client-group"), ("pump", "one pair of parentheses"), ("(a)(b)", "one pair")]
)
def test_a_group_has_one_pair_of_parentheses(pattern: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "availability", "--client-group", pattern]) == 2
    assert text in capsys.readouterr().err
    assert group_pattern("^([a-z]+)-") == "^([a-z]+)-"


def test_figures_are_shown_as_precise_as_they_are_needed() -> None:
    assert cell("availability", 0.999987) == "0.99999"
    assert cell("nines", 4.8860566) == "4.89"
    assert cell("down_s", 12.34) == "12.3"
    assert cell("down_s", None) == "-"
    assert cell("gaps", 3) == "3"


@pytest.mark.parametrize(("mark", "text"), [("2026-03-01", "has no label"), ("noon deployed", "is not a time")])
def test_a_mark_is_a_time_and_a_label(mark: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "availability", "--mark", mark]) == 2
    said = capsys.readouterr().err
    assert "--mark: " in said
    assert text in said
