"""Rows as aligned columns on the terminal: never truncates a cell, and never sends control characters."""

from __future__ import annotations

from collections.abc import Collection
from unicodedata import combining, east_asian_width

import click

__all__ = ["Grid"]


class Grid:
    """Rows below titles, with two spaces between columns; the titles are optional.

    Lines are as long as necessary: a wrapped line can be read, a truncated column cannot. `right` lists the titles of
    the right-aligned columns, such as numbers.
    """

    def __init__(self, *titles: str, right: Collection[str] = ()) -> None:
        self.right = [title in right for title in titles]
        self.rows: list[list[str]] = [[printable(title) for title in titles]] if titles else []
        self.loud = [bool(titles)] * len(self.rows)

    def add(self, *cells: str, loud: bool = False) -> None:
        """Add a row; a loud row is bold on a terminal, as the titles are."""
        self.rows.append([printable(cell) for cell in cells])
        self.loud.append(loud)

    def lines(self) -> list[str]:
        """Return the rows as text, without trailing spaces."""
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
    """Return `text` with control characters escaped, because names may come from clients."""
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text])


def cells_of(text: str) -> int:
    """Return the width of `text` in terminal cells: two for wide East Asian characters, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum([0 if combining(one) else 2 if east_asian_width(one) in ("W", "F") else 1 for one in text])
