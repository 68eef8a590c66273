"""The answer of `folkmoot --version`; imports as little as possible."""

from __future__ import annotations

import hashlib
import importlib.util
import platform
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import folkmoot

__all__ = ["build_note", "is_compiled", "stale_sources", "version_line"]

# Any module of the pure half will do: all of them are compiled as one unit, or none is.
WITNESS = "folkmoot.kernel.limits"


def is_compiled() -> bool:
    """Whether the pure half runs as native code (mypyc) in this process."""
    spec = importlib.util.find_spec(WITNESS)
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))


def build_note() -> str:
    """Return why the build left the package pure; "" if it is compiled or runs from sources."""
    note = Path(folkmoot.__file__).with_name("build.txt")
    return note.read_text(encoding="utf-8").strip() if note.is_file() else ""


def stale_sources() -> list[str]:
    """Return the paths of sources that have changed since `make build`; empty for any other installation.

    Reads the manifest that the build writes beside the package: lines with a SHA-256 and a path.
    """
    tree = Path(folkmoot.__file__).parent.parent
    manifest = tree / "native-sources.txt"
    if not manifest.is_file():
        return []
    lines = [line.split(" ", 1) for line in manifest.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    return [name for digest, name in lines if digest != digest_of(tree / name)]


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file as hex; "" if the file is gone."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def version_line() -> str:
    """Return one line: version, Python, compiled or pure (with the reason if known)."""
    flavour = "compiled" if is_compiled() else "pure"
    note = "" if flavour == "compiled" else build_note()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"folkmoot {folkmoot.__version__} ({python}, {flavour}{': ' + note if note else ''})"
