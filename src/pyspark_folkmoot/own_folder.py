"""Where this package keeps what it makes for Java and Spark: in the environment, or in the home of the user."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["is_trusted", "own_folders"]


def own_folders() -> list[Path]:
    """Return where such files may be: in the environment, or in the user's home where that is read-only."""
    return [Path(sys.prefix) / "share" / "folkmoot-java", Path.home() / ".cache" / "folkmoot-java"]


def is_trusted(path: Path) -> bool:
    """Whether a file or folder exists that only this user or root could have written: Java runs what is in it."""
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022
