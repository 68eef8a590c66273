"""Error texts for configurations: each names the field, what is wrong, and what would be valid."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from pydantic import ValidationError

from folkmoot.config import field as fields
from folkmoot.config.settings import Settings
from folkmoot.kernel.errors import FolkmootError

__all__ = ["ConfigError", "NoSuchField", "closest", "faults", "path_text"]


class ConfigError(FolkmootError):
    """A configuration cannot be used; `faults` has one sentence per error."""

    def __init__(self, source: str, found: Sequence[str]) -> None:
        self.faults = list(found)
        super().__init__("\n  ".join([f"{source} cannot be used:", *self.faults]))


class NoSuchField(ConfigError):
    """The requested field does not exist."""

    def __init__(self, name: str, advice: str) -> None:
        self.faults = [f"there is no field {name!r}; {advice}"]
        FolkmootError.__init__(self, self.faults[0])


def path_text(location: Sequence[str | int]) -> str:
    """Return a location as text: listeners[0].tls.key, streams.NAME.filter."""
    text = ""
    for step in location:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step != "[key]":
            text += f".{step}" if text else step
    return text


def closest(name: str, valid: Sequence[str]) -> str:
    """Return advice for an unknown name: the most similar valid one if there is one, otherwise all."""
    near = difflib.get_close_matches(name, valid, n=1)
    return f'did you mean "{near[0]}"?' if near else f"valid here: {', '.join(valid)}"


def faults(error: ValidationError) -> list[str]:
    """Return one sentence per error, in the order of the sections."""
    return [sentence(item["type"], item["loc"], item["msg"], item["input"]) for item in error.errors()]


def sentence(sort: str, location: tuple[str | int, ...], message: str, value: object) -> str:
    """Return where the error is, what is wrong, and what would be valid."""
    where = path_text(location)
    if sort == "extra_forbidden":
        return f"{where}: there is no such field; {closest(str(location[-1]), names_beside(location))}"
    field = fields.find(Settings, location)
    if sort == "missing":
        return f"{where}: it must be set{'; valid: ' + fields.valid_text(field) if field else ''}"
    if sort == "value_error" or field is None:
        # The messages of the project's own validators say what is valid.
        return f"{where}: {message.removeprefix('Value error, ')}{shown(value)}"
    if sort == "string_pattern_mismatch":
        return f"{where}: not valid{shown(value)}; {field.description}"
    given = f" (it is {fields.format_value(value, fields.kind(field))})" if isinstance(value, int) else shown(value)
    return f"{where}: {wrong(sort)}{given}; valid: {fields.valid_text(field)}"


def wrong(sort: str) -> str:
    """Return what is wrong with a value, in two or three words, by the kind of error."""
    words = {
        "greater_than_equal": "too small",
        "less_than_equal": "too large",
        "multiple_of": "not a whole step",
        "literal_error": "not one of the choices",
        "too_short": "too few",
        "too_long": "too many",
    }
    return words.get(sort, "not a valid value")


def shown(value: object) -> str:
    """Return the rejected value, if it is short enough to show."""
    text = repr(value) if isinstance(value, str | int | float | bool) else ""
    return f" (it is {text})" if 0 < len(text) <= 80 else ""


def names_beside(location: tuple[str | int, ...]) -> list[str]:
    """Return the fields of the section in which an unknown one was found."""
    if len(location) == 1:
        return list(Settings.model_fields)
    parent = location[:-1]
    while parent:
        field = fields.find(Settings, parent)
        inner = fields.element(field.annotation) if field is not None else None
        if inner is not None:
            return list(inner.model_fields)
        parent = parent[:-1]
    return list(Settings.model_fields)
