"""What runs: owns the answer of `folkmoot --version`; never imports more than it must."""

from __future__ import annotations

import hashlib
import importlib.util
import platform
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import folkmoot

__all__ = ["build_note", "is_compiled", "stale_sources", "version_line"]

# Any module of the pure half answers for all of it: they are compiled as one unit or not at all.
WITNESS = "folkmoot.kernel.limits"


def is_compiled() -> bool:
    """Whether the pure half runs as native code (mypyc) in this process."""
    spec = importlib.util.find_spec(WITNESS)
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))


def build_note() -> str:
    """Why the installed package is pure, as its build wrote it down; empty when it is compiled or run from sources."""
    note = Path(folkmoot.__file__).with_name("build.txt")
    return note.read_text(encoding="utf-8").strip() if note.is_file() else ""


def stale_sources() -> list[str]:
    """The sources that have changed since `make build` compiled them, as paths; empty for any other install.

    Reads the manifest that the build leaves beside the package: lines of a SHA-256 and a path.
    """
    tree = Path(folkmoot.__file__).parent.parent
    manifest = tree / "native-sources.txt"
    if not manifest.is_file():
        return []
    lines = [line.split(" ", 1) for line in manifest.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    return [name for digest, name in lines if digest != digest_of(tree / name)]


def digest_of(path: Path) -> str:
    """The SHA-256 of a file as hex; empty when it is gone."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def version_line() -> str:
    """One line: version, Python, compiled or pure (with the reason where one is known)."""
    flavour = "compiled" if is_compiled() else "pure"
    note = "" if flavour == "compiled" else build_note()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"folkmoot {folkmoot.__version__} ({python}, {flavour}{': ' + note if note else ''})"
