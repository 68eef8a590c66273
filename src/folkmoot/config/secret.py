"""Secrets in files. Never shows one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from folkmoot.kernel.errors import FolkmootError

__all__ = ["read_word"]

LENGTH_MIN: Final = 16


def read_word(path: Path, what: str) -> str:
    """Return the word in a file, without surrounding white space; raises FolkmootError, with `what`, if it is invalid.

    The word is ASCII, so that it fits in an HTTP header and is the same bytes everywhere.
    """
    try:
        word = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FolkmootError(f"cannot read {what} in {path}: {error}; put a long random word in this file") from error
    if len(word) < LENGTH_MIN or not word.isascii() or not word.isprintable() or " " in word:
        raise FolkmootError(f"{what} in {path} must be one word of at least {LENGTH_MIN} characters of ASCII")
    return word
