"""Options of the formats: their values, and errors that name the option and list the valid ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from folkmoot.client.nodes import split_urls
from folkmoot.client.position import parse_time

__all__ = ["OptionError", "Options", "Places"]

_BOOLEANS: Final = {"true": True, "false": False}


class OptionError(ValueError):
    """An option is invalid; the text names it and the valid values."""


Places = str | dict[int, int]
"""Where to begin or end: `earliest`, `latest`, or an offset by stream partition."""


class Options:
    """The options that a user gave to a format; `valid` are all its options in the order of the documentation.

    Spark ignores the case of option names, and passes them in lower case.
    """

    def __init__(
        self, form: str, given: Mapping[str, str], valid: tuple[str, ...], ignored: tuple[str, ...] = ()
    ) -> None:
        self.form = form
        self._valid = valid
        self._given: dict[str, str] = {}
        known = {name.lower(): name for name in valid}
        silent = {name.lower() for name in ignored}
        for name, value in given.items():
            if name.lower() in known:
                self._given[known[name.lower()]] = value
            elif name.lower() not in silent:
                from difflib import get_close_matches  # slow to import, and each Python worker would do it

                near = get_close_matches(name.lower(), list(known), n=1)
                guess = f" did you mean '{known[near[0]]}'?" if near else ""
                raise OptionError(f"format '{form}' has no option '{name}';{guess} valid options: {', '.join(valid)}")

    def wrong(self, name: str, why: str) -> OptionError:
        """Return the error that says why option `name` is wrong."""
        return OptionError(f"option '{name}' of format '{self.form}' {why}; valid options: {', '.join(self._valid)}")

    def given(self, name: str) -> bool:
        """Return whether the user gave option `name`."""
        return name in self._given

    def text(self, name: str) -> str | None:
        """Return the option, or None."""
        return self._given.get(name)

    def required(self, name: str) -> str:
        """Return an option that is required and must not be empty."""
        value = self._given.get(name, "").strip()
        if not value:
            raise self.wrong(name, "is required")
        return value

    def urls(self, name: str) -> list[str]:
        """Return a list of addresses of nodes; required."""
        try:
            return split_urls(self.required(name))
        except OptionError:
            raise
        except ValueError as error:
            raise self.wrong(name, f"is wrong: {error}") from None

    def boolean(self, name: str, default: bool) -> bool:
        """Return `true` or `false`."""
        value = self._given.get(name)
        if value is None:
            return default
        if value.strip().lower() not in _BOOLEANS:
            raise self.wrong(name, f"is {value!r}: it must be true or false")
        return _BOOLEANS[value.strip().lower()]

    def integer(self, name: str, least: int) -> int | None:
        """Return an integer of at least `least`, or None."""
        value = self._given.get(name)
        if value is None:
            return None
        text = value.strip()
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise self.wrong(name, f"is {value!r}: it must be an integer of at least {least}")
        return int(text)

    def time(self, name: str) -> int | None:
        """Return an RFC 3339 time in microseconds since 1970, or None."""
        value = self._given.get(name)
        if value is None:
            return None
        try:
            return parse_time(value.strip())
        except ValueError as error:
            raise self.wrong(name, f"is wrong: {error}") from None

    def places(self, name: str, words: tuple[str, ...]) -> Places | None:
        """Return `earliest`, `latest` (those of `words`), or a JSON object of offsets by stream partition; or None."""
        value = self._given.get(name)
        if value is None:
            return None
        if value.strip().lower() in words:
            return value.strip().lower()
        may = " or ".join([*words, 'a JSON object of offsets by stream partition, such as {"0": 12, "1": 0}'])
        try:
            found = json.loads(value)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not found:
            raise self.wrong(name, f"is {value!r}: it must be {may}")
        for partition, offset in found.items():
            if not partition.isdigit() or type(offset) is not int or offset < 0:
                raise self.wrong(name, f"has {json.dumps({partition: offset})}: it must be {may}")
        return {int(partition): offset for partition, offset in found.items()}

    def columns(self, name: str, all_columns: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns of a comma-separated list, in the order of `all_columns`; all of them by default."""
        value = self._given.get(name)
        if value is None:
            return all_columns
        asked = [part.strip() for part in value.split(",") if part.strip()]
        for column in asked:
            if column not in all_columns:
                raise self.wrong(name, f"names {column!r}: the columns are {', '.join(all_columns)}")
        if not asked:
            raise self.wrong(name, f"is empty: name some of {', '.join(all_columns)}")
        return tuple(column for column in all_columns if column in asked)

    def numbers(self, name: str) -> list[int] | None:
        """Return a list of stream partitions such as `0,2,5-7`, sorted, or None."""
        value = self._given.get(name)
        if value is None:
            return None
        found: set[int] = set()
        for part in value.split(","):
            low, dash, high = part.strip().partition("-")
            if not (low.isdigit() and (high.isdigit() if dash else True)):
                raise self.wrong(name, f"is {value!r}: it must be a list of stream partitions such as 0,2,5-7")
            found.update(range(int(low), int(high if dash else low) + 1))
        return sorted(found)

    def exclude(self, first: str, second: str) -> None:
        """Refuse two options that exclude each other."""
        if self.given(first) and self.given(second):
            raise self.wrong(first, f"and '{second}' exclude each other")
