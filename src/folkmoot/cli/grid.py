"""Rows as aligned columns on the terminal: owns widths; never cuts a cell, and never sends control characters."""

from __future__ import annotations

from collections.abc import Collection
from unicodedata import combining, east_asian_width

import click

__all__ = ["Grid"]


class Grid:
    """Rows under titles, two spaces apart; without titles the rows stand alone.

    The lines are as long as they must be: a wrapped line can be read, cut columns cannot. `right` names the titles
    whose cells stand at the right of their column, as figures do.
    """

    def __init__(self, *titles: str, right: Collection[str] = ()) -> None:
        self.right = [title in right for title in titles]
        self.rows: list[list[str]] = [[printable(title) for title in titles]] if titles else []
        self.loud = [bool(titles)] * len(self.rows)

    def add(self, *cells: str, loud: bool = False) -> None:
        """Add a row; a loud one is bold on a terminal, as the titles are."""
        self.rows.append([printable(cell) for cell in cells])
        self.loud.append(loud)

    def lines(self) -> list[str]:
        """The rows as text, without spaces at their ends."""
        columns = max(map(len, self.rows), default=0)
        widths = [max(cells_of(row[at]) for row in self.rows if at < len(row)) for at in range(columns)]
        found = []
        for row in self.rows:
            parts = []
            for at, cell in enumerate(row):
                gap = " " * (widths[at] - cells_of(cell))
                parts.append(gap + cell if at < len(self.right) and self.right[at] else cell + gap)
            found.append("  ".join(parts).rstrip())
        return found

    def print(self) -> None:
        """Print the rows on standard output."""
        for line, loud in zip(self.lines(), self.loud, strict=True):
            click.secho(line, bold=loud or None)


def printable(text: str) -> str:
    """`text` with escapes for what would move the cursor or colour the terminal: names may come from clients."""
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text])


def cells_of(text: str) -> int:
    """How many cells of a terminal `text` takes: wide characters of East Asia two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum([0 if combining(one) else 2 if east_asian_width(one) in ("W", "F") else 1 for one in text])
