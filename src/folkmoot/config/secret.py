"""Secrets in files. Never shows one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from folkmoot.kernel.errors import FolkmootError

__all__ = ["WORDS_MAX", "read_word", "read_words"]

LENGTH_MIN: Final = 16
WORDS_MAX: Final = 4


def read_word(path: Path, what: str) -> str:
    """Return the word in a file, without surrounding white space; raises FolkmootError, with `what`, if it is invalid.

    The word is ASCII, so that it fits in an HTTP header and is the same bytes everywhere.
    """
    return checked(read_text(path, what), path, what)


def read_words(path: Path, what: str) -> list[str]:
    """Return the words in a file, one in a line; raises FolkmootError as `read_word` does.

    The first is the one to use, the others are accepted too: while one is being replaced, nodes have both.
    """
    lines = [line.strip() for line in read_text(path, what).splitlines() if line.strip()]
    if len(lines) > WORDS_MAX:
        raise FolkmootError(f"{what} in {path} has {len(lines)} lines: at most {WORDS_MAX} are accepted at a time")
    return [checked(line, path, what) for line in lines or [""]]


def read_text(path: Path, what: str) -> str:
    """Return the text of a file, without surrounding white space."""
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FolkmootError(f"cannot read {what} in {path}: {error}; put a long random word in this file") from error


def checked(word: str, path: Path, what: str) -> str:
    """Return a word if it is one; raises FolkmootError."""
    if len(word) < LENGTH_MIN or not word.isascii() or not word.isprintable() or " " in word:
        raise FolkmootError(f"{what} in {path} must be one word of at least {LENGTH_MIN} characters of ASCII")
    return word
