"""Durations in a pipeline file: `2 seconds`, `10 minutes`, `7d`."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["interval_text", "parse_interval"]

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_WORDS: Final = {
    "ms": ("ms", "millisecond", "milliseconds"),
    "s": ("s", "sec", "second", "seconds"),
    "m": ("m", "min", "minute", "minutes"),
    "h": ("h", "hour", "hours"),
    "d": ("d", "day", "days"),
    "w": ("week", "weeks"),
}
LONGEST_MS: Final = 36_500 * 86_400_000
"""A hundred years, which fits into 64 bits of milliseconds or nanoseconds."""

_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def parse_interval(value: object) -> int:
    """Return the milliseconds of `value`; raises ValueError that says what is valid."""
    known = {word: unit for unit, words in _WORDS.items() for word in words}
    if isinstance(value, str):
        total, at = 0.0, 0
        while match := _PART.match(value, at):
            if match[2] not in known:
                break
            total += float(match[1]) * _UNITS_MS[known[match[2]]]
            at = match.end()
        if at == len(value) and at > 0:
            if total > LONGEST_MS:
                raise ValueError(f"{value!r} is too long: {LONGEST_MS // _UNITS_MS['d']} days at most")
            return round(total)
    raise ValueError(f"{value!r} is no time: write a number and a unit, such as 500 ms, 2 seconds, 10 minutes, 7 days")


def interval_text(milliseconds: int) -> str:
    """Return the shortest text that `parse_interval` reads back as `milliseconds`."""
    for unit in ("d", "h", "m", "s"):
        if milliseconds and milliseconds % _UNITS_MS[unit] == 0:
            count = milliseconds // _UNITS_MS[unit]
            word = _WORDS[unit][-1]
            return f"{count} {word if count != 1 else word.removesuffix('s')}"
    return f"{milliseconds} ms"
