"""What tests of the build share: `setup.py` as a module, `pyproject.toml` as a table, the packages behind imports."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import sys
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src"
OWN = ("folkmoot", "pyspark_folkmoot")


@cache
def build_file() -> ModuleType:
    """`setup.py`, which compiles nothing when it is imported."""
    spec = importlib.util.spec_from_file_location("folkmoot_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def project_file() -> dict[str, Any]:
    """`pyproject.toml`."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements(texts: Iterable[str]) -> dict[str, Requirement]:
    """Requirements by the canonical names of their packages."""
    return {canonicalize_name(found.name): found for found in map(Requirement, texts)}


def third_party(path: Path) -> set[str]:
    """The top-level modules of others that a file imports anywhere, also inside of functions and for types only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - set(OWN)


def packages_of(modules: Iterable[str]) -> set[str]:
    """The canonical names of the packages that have these top-level modules; of several, one that we require."""
    project = project_file()["project"]
    ours = requirements([*project["dependencies"], *chain(*project["optional-dependencies"].values())])
    found: set[str] = set()
    for module in modules:
        names = [canonicalize_name(name) for name in known().get(module, [f"no package of {module}"])]
        found.add(next((name for name in names if name in ours), names[0]))
    return found


@cache
def known() -> Mapping[str, list[str]]:
    """The packages that are installed, by the top-level modules that they have."""
    return importlib.metadata.packages_distributions()
