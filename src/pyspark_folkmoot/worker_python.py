"""The program that Spark starts as its Python on this machine: Python, but workers come from `worker_daemon`.

`spark.python.daemon.module` holds for tasks only. To plan a read or a write, and to commit a batch, Spark starts
`python -m pyspark.daemon`, whatever is configured.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Final

from pyspark_folkmoot.own_folder import is_trusted, own_folders

__all__ = ["worker_python"]

_SCRIPT: Final = """\
#!/bin/sh
if [ "$1" = -m ] && [ "$2" = pyspark.daemon ]; then
    shift 2
    exec {python} -m pyspark_folkmoot.worker_daemon "$@"
fi
exec {python} "$@"
"""


def worker_python() -> str:
    """Return the program, made if it is not there; `sys.executable` itself where no program can be made."""
    text = _SCRIPT.format(python=shlex.quote(sys.executable))
    if os.name != "posix":
        return sys.executable
    for folder in own_folders():
        program = folder / f"python-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        if _fits(program, text):
            return str(program)
        try:
            _make(program, text)
        except OSError:  # an environment that is read-only for this user
            continue
        if _fits(program, text):
            return str(program)
    return sys.executable


def _fits(program: Path, text: str) -> bool:
    """Whether a program can be started, is what it should be, and nobody else could have written it."""
    try:
        return is_trusted(program) and os.access(program, os.X_OK) and program.read_text(encoding="utf-8") == text
    except OSError:
        return False


def _make(program: Path, text: str) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=program.parent, prefix="python-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o755)
        Path(name).replace(program)
    finally:
        Path(name).unlink(missing_ok=True)
