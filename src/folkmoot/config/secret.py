"""Secrets in files, and who may read them. Never shows one.

The rule about permissions is that of PostgreSQL for its keys. A file of the node's own user may be accessible to nobody
else. A file of another user, such as root, may be readable for its group, because that is how the node gets it: a
system-wide certificate, or a Kubernetes secret with `defaultMode: 0440` and `fsGroup`.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Final

from folkmoot.kernel.errors import FolkmootError

__all__ = ["WORDS_MAX", "check_private", "exposure", "read_word", "read_words"]

LENGTH_MIN: Final = 16
WORDS_MAX: Final = 4


def exposure(path: Path, user: int | None = None) -> str:
    """Return who else can read or change a secret, with the command that mends it; "" if nobody can, or without a file.

    user: the number of the user of the node, this process's if it is None. For a node that runs as root, root's files
    count as those of another user: in a container they come from outside.
    """
    try:
        status = path.stat()
    except OSError:
        return ""
    user = os.geteuid() if user is None else user
    own = status.st_uid == user != 0
    if not status.st_mode & (0o077 if own else 0o037):
        return ""
    who = "every user" if status.st_mode & 0o007 else "its group"
    what = "read" if status.st_mode & (0o004 if who == "every user" else 0o040) else "change"
    mode = "600" if status.st_uid == user else "640"
    command = f"`chmod {mode} {shlex.quote(str(path))}`"
    return (
        f"{path} holds a secret, and {who} of this machine can {what} it (mode {status.st_mode & 0o777:04o}): {command}"
    )


def check_private(path: Path) -> None:
    """Raise FolkmootError if other users can read a secret."""
    why = exposure(path)
    if why:
        raise FolkmootError(why)


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
        check_private(path)
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FolkmootError(f"cannot read {what} in {path}: {error}; put a long random word in this file") from error


def checked(word: str, path: Path, what: str) -> str:
    """Return a word if it is one; raises FolkmootError."""
    if len(word) < LENGTH_MIN or not word.isascii() or not word.isprintable() or " " in word:
        raise FolkmootError(f"{what} in {path} must be one word of at least {LENGTH_MIN} characters of ASCII")
    return word
