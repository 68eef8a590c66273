"""Columns on the terminal: aligned, never cut, and without what would move its cursor."""

from __future__ import annotations

import pytest

from folkmoot.cli.grid import Grid


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    grid = Grid("node", "clients", right=("clients",))
    grid.add("n1", "7")
    grid.add("node-12", "1234567890")
    assert grid.lines() == [
        "node        clients",
        "n1                7",
        "node-12  1234567890",
    ]


def test_no_line_ends_in_spaces() -> None:
    grid = Grid("a", "b")
    grid.add("x", "")
    grid.add("", "long")
    assert grid.lines() == ["a  b", "x", "   long"]


def test_rows_without_titles() -> None:
    grid = Grid()
    grid.add("p50", "1 ms")
    grid.add("longest", "20 ms")
    assert grid.lines() == ["p50      1 ms", "longest  20 ms"]
    assert Grid().lines() == []


def test_wide_and_combining_characters_are_measured_in_cells() -> None:
    grid = Grid()
    grid.add("\u6e29\u5ea6", "|")  # two characters of two cells each
    grid.add("e\u0301te", "|")  # four characters, one of which stands on another
    grid.add("abcd", "|")
    assert grid.lines() == ["\u6e29\u5ea6  |", "e\u0301te   |", "abcd  |"]


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\x00", "\u202ereversed", "\udcff"])
def test_a_name_cannot_control_the_terminal(text: str) -> None:
    grid = Grid()
    grid.add(text)
    (line,) = grid.lines()
    assert line.isprintable()
    assert line.encode("utf-8")


def test_markup_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    grid = Grid("topic")
    grid.add("[red]/[bold]x[/]", loud=True)
    grid.print()
    assert capsys.readouterr().out == "topic\n[red]/[bold]x[/]\n"
