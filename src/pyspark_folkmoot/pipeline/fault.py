"""Errors of a pipeline: where, what, and what is valid. All errors of a file are reported together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from folkmoot.kernel.errors import FolkmootError

__all__ = ["Fault", "Faults", "PipelineProblem", "nearest", "valid"]


class PipelineProblem(FolkmootError):
    """A pipeline cannot do what was requested; the text says why and what to do."""


class Fault:
    """One error, at a line of the file (1 is the first, 0 the whole file)."""

    def __init__(self, line: int, text: str) -> None:
        self.line = line
        self.text = text

    def __repr__(self) -> str:
        return f"Fault({self.line}, {self.text!r})"


class Faults(PipelineProblem):
    """A pipeline file is wrong. `str` has a line `FILE:LINE: TEXT` per fault, in the order of the file.

    An error of the whole file has no LINE.
    """

    def __init__(self, file: str, faults: Sequence[Fault]) -> None:
        self.file = file
        self.faults = sorted(faults, key=lambda fault: fault.line)
        places = [f"{file}:{fault.line}" if fault.line else file for fault in self.faults]
        lines = dict.fromkeys(f"{place}: {fault.text}" for place, fault in zip(places, self.faults, strict=True))
        super().__init__("\n".join(lines))


def nearest(word: str, words: Iterable[str]) -> str:
    """Return ` did you mean 'X'?` with the most similar of `words`, or nothing if none is similar."""
    by_lower = {known.lower(): known for known in words}
    near = get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    return f" did you mean '{by_lower[near[0]]}'?" if near else ""


def valid(word: str, words: Iterable[str], what: str) -> str:
    """Return the most similar of `words` and all of them, to end a message: `; did you mean ...? WHAT: a, b, c`."""
    known = list(words)
    listed = ", ".join(known) if known else "none"
    return f";{nearest(word, known)} {what}: {listed}"
