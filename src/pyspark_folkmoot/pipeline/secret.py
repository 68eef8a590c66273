"""Masks values from the environment in everything kept or shown: by their names, with digests for comparison.

Readers of the state folder must not learn the driver's environment.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from pyspark_folkmoot.pipeline.loading import Loaded

__all__ = ["equal", "mask", "seal", "sealed", "shown", "unmask"]

ROUNDS: Final = 100_000
"""The digest of a short secret can be found by trial: each trial costs tens of milliseconds."""

_SEALED: Final = re.compile(r" \[sealed ([0-9a-f]{32})\]\Z")


def mask(loaded: Loaded, value: Any) -> Any:
    """Return a text, or all texts in lists and in values and keys of mappings, without secrets."""
    return _each(value, loaded.masked)


def unmask(loaded: Loaded, text: str) -> str:
    """Return the text from which `mask` produced `text`, with the current environment."""
    for value, name in loaded.document.secrets.items():
        text = text.replace(name, value)
    return text


def sealed(loaded: Loaded, value: Any) -> Any:
    """Return a value of which every text that has a secret in it is masked and ends with a digest of the clear text."""
    return _each(value, lambda text: seal(text, loaded.masked(text)))


def seal(text: str, masked: str) -> str:
    """Return `masked` with the digest of the clear `text`; only the text when nothing of it is masked."""
    return text if masked == text else f"{masked} [sealed {_digest(text)}]"


def shown(value: Any) -> Any:
    """Return a value without the digests that `sealed` has put into it."""
    return _each(value, lambda text: _SEALED.sub("", text))


def equal(one: Any, other: Any) -> bool:
    """Return whether two values were the same before they were sealed, or one of them, or none.

    The file determines what is a secret: a text may be sealed now that was not sealed before.
    """
    if isinstance(one, str) and isinstance(other, str):
        marks = [_SEALED.search(one), _SEALED.search(other)]
        if marks == [None, None]:
            return one == other
        first, second = (mark[1] if mark else _digest(text) for mark, text in zip(marks, (one, other), strict=True))
        return first == second
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return bool(one == other)


@lru_cache(maxsize=256)
def _digest(text: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", text.encode(), b"folkmoot.pipeline", ROUNDS, 16).hex()


def _each(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [_each(item, change) for item in value]
    if isinstance(value, dict):
        return {_each(key, change): _each(item, change) for key, item in value.items()}
    return value
