"""Which tests a run takes, and in which order: the pure half, what only `make soak` runs, changed modules first."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

__all__ = ["changed_files", "changed_packages", "in_order", "is_pure", "package_of", "pure_packages", "soak_reason"]

ROOT = Path(__file__).resolve().parents[2]

SEVERAL_PURE = ("simulated_cluster", "spec")
"""Folders of tests that test several packages of the pure half together."""


WHOLE_CLUSTERS = "whole clusters: digests of simulated runs are equal, compiled and interpreted"
LONG_RUNS = "many seconds each, interpreted: random runs and every moment of a crash"

INTERPRETED_IN_SOAK = {
    "simulated_cluster": WHOLE_CLUSTERS,
    "test_durability": LONG_RUNS,
    "test_feed": LONG_RUNS,
    "test_logged": LONG_RUNS,
    "test_node": LONG_RUNS,
    "test_outbox": LONG_RUNS,
    "test_reconnect": LONG_RUNS,
    "test_replication": LONG_RUNS,
    "test_shedding": LONG_RUNS,
    "test_timed": LONG_RUNS,
}
"""Folders and files of the pure half whose tests `make test` runs compiled only, and why."""


@cache
def pure_packages() -> tuple[str, ...]:
    """The packages of the pure half, as `setup.py` lists them."""
    spec = importlib.util.spec_from_file_location("folkmoot_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    packages: tuple[str, ...] = module.PURE_PACKAGES
    return packages


def package_of(path: Path) -> str:
    """The folder below `tests` in which a test is: the package that it tests."""
    parts = path.relative_to(ROOT / "tests").parts
    return parts[0] if len(parts) > 1 else ""


def is_pure(package: str) -> bool:
    """Whether the tests of a folder test the pure half alone."""
    return package in pure_packages() or package in SEVERAL_PURE


def soak_reason(item: pytest.Item, compiled: bool) -> str:
    """Why a test runs in `make soak` only; empty when `make test` runs it."""
    names = ("soak",) if compiled else ("soak", "soak_interpreted")
    for name in names:
        for mark in item.iter_markers(name):
            return str(mark.args[0])
    if compiled:
        return ""
    return INTERPRETED_IN_SOAK.get(item.path.stem) or INTERPRETED_IN_SOAK.get(package_of(item.path), "")


@cache
def changed_files() -> list[Path]:
    """What differs from the last commit; what the last commit has changed when nothing does; empty without git."""
    for words in (["diff", "--name-only", "HEAD"], ["diff", "--name-only", "HEAD~1", "HEAD"]):
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        found = [ROOT / line for line in done.stdout.splitlines() if line.endswith((".py", ".toml", ".txt"))]
        if "HEAD~1" not in words:
            new = ["git", "ls-files", "--others", "--exclude-standard"]
            done = subprocess.run(new, cwd=ROOT, capture_output=True, text=True, check=False)
            found += [ROOT / line for line in done.stdout.splitlines() if line.endswith(".py")]
        if found:
            return found
    return []


def changed_packages(files: Iterable[Path]) -> set[str]:
    """The packages to which changed files belong: of `src/folkmoot`, of `tests`, and the readers of Spark."""
    packages = set()
    for file in files:
        top, *folders = file.relative_to(ROOT).parts[:-1] or [""]
        if folders[:1] == ["folkmoot"]:
            folders = folders[1:]
        if top in ("src", "tests") and folders:
            packages.add(folders[0])
    return packages


def in_order(items: Sequence[Any], files: Sequence[Path]) -> list[Any]:
    """Tests in the order in which they are likely to fail: of changed modules, of changed packages, the others."""
    modules = {file.stem.removeprefix("test_") for file in files}
    packages = changed_packages(files)

    def place(item: Any) -> int:
        path = Path(item.path)
        if package_of(path) not in packages:
            return 2
        return 0 if path.stem.removeprefix("test_") in modules else 1

    return sorted(items, key=place)
