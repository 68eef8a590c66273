"""ARCHITECTURE.md names every package once, in the order of their imports, and only modules that exist."""

from __future__ import annotations

import configparser
import re

from tests.docs.page import ROOT

PACKAGES = ROOT / "src" / "folkmoot"
SPARK = ROOT / "src" / "pyspark_folkmoot"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
OUTSIDE = ("pyspark_folkmoot",)


def listed() -> list[list[str]]:
    """The packages of each row of the table of packages."""
    section = TEXT.split("## Packages, from the bottom up")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", section, flags=re.MULTILINE)
    return [re.findall(r"`([a-z_]+)`", row) for row in rows]


def layers() -> dict[str, int]:
    """The layer of each package in the contract of import-linter, 0 at the bottom."""
    contract = configparser.ConfigParser()
    contract.read(ROOT / ".importlinter")
    lines = contract["importlinter:contract:layers"]["layers"].split("\n")
    rows = [line.split("|") for line in lines if line]
    return {name.strip(): len(rows) - at for at, row in enumerate(rows, 1) for name in row}


def test_every_package_has_a_row() -> None:
    found = {path.name for path in PACKAGES.iterdir() if (path / "__init__.py").exists()}
    named = [name for row in listed() for name in row if name not in OUTSIDE]
    assert sorted(named) == sorted(found)


def test_the_rows_follow_the_imports() -> None:
    layer = layers()
    heights = [max(layer[name] for name in row) for row in listed() if row[0] in layer]
    assert len(heights) > 20
    assert heights == sorted(heights)


def test_every_module_that_is_named_exists() -> None:
    named = re.findall(r"`([a-z]+/[a-z_]+)`", TEXT)
    assert len(named) > 50
    assert [name for name in named if not is_there(name) and name.split("/")[0] != "tests"] == []


def test_every_module_of_the_table_of_spark_exists() -> None:
    section = TEXT.split("## Spark and pipelines")[1].split("\n## ")[0]
    cells = [row.split("|")[2] for row in section.split("\n") if row.startswith("| ")][1:]
    named = [name for cell in cells for name in re.findall(r"`([a-z_/]+)`", re.sub(r"\([^)]*\)", "", cell))]
    assert len(named) > 20
    assert [name for name in named if not is_there(name)] == []


def is_there(name: str) -> bool:
    return any((folder / f"{name}.py").exists() for folder in (PACKAGES, SPARK))
