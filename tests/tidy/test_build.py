"""The build says why it does not compile, and compiles every module that it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from folkmoot.cli.version import WITNESS
from tests.tidy.build import ROOT, SOURCE, build_file, packages_of, project_file, requirements, third_party

ASK = "import runpy; build = runpy.run_path('setup.py'); print(build['pure_reason']())"


def reason(**environment: str) -> str:
    """What `setup.py` answers in a process of its own, with these variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FOLKMOOT_")}
    run = subprocess.run(
        [sys.executable, "-c", ASK], cwd=ROOT, env={**kept, **environment}, capture_output=True, text=True, check=True
    )
    return run.stdout.strip().splitlines()[-1] if run.stdout.strip() else ""


def test_compiling_can_be_switched_off() -> None:
    assert reason(FOLKMOOT_PURE="1") == "FOLKMOOT_PURE is set"
    assert reason(FOLKMOOT_PURE="0") != "FOLKMOOT_PURE is set"


def test_a_missing_compiler_is_named() -> None:
    assert "no C compiler" in reason(CC="no-such-compiler")
    assert "no-such-compiler" in reason(CC="no-such-compiler")


def test_a_compiler_that_fails_is_a_missing_one(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'Python.h: No such file' >&2\nexit 1\n", encoding="ascii")
    compiler.chmod(0o755)
    assert "no C compiler that finds Python.h" in reason(CC=str(compiler))


def test_two_builds_of_one_tree_do_not_disturb_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = build_file()
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    first, second = setup.Objects(["cc"]), setup.Objects(["cc"])
    made = tmp_path / "made.o"
    made.write_bytes(b"code")
    for key in ("shared", "old"):
        first.keep(key, str(made))
    part = first.folder / "late.1"
    part.write_bytes(b"half of it")
    assert second.take("shared", str(tmp_path / "temp" / "shared.o"))
    second.prune()
    assert part.exists(), "the other build is writing it"
    assert not first.take("old", str(tmp_path / "temp" / "old.o")), "it is compiled again"
    assert first.take("shared", str(tmp_path / "temp" / "again.o"))
    assert (tmp_path / "temp" / "again.o").read_bytes() == b"code"


@pytest.mark.parametrize("command", ["--version", "--name"])
def test_asking_for_metadata_compiles_nothing(command: str) -> None:
    run = subprocess.run(
        [sys.executable, "setup.py", command], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert "mypyc" not in run.stdout + run.stderr


def test_every_pure_package_is_there() -> None:
    setup = build_file()
    missing = [name for name in setup.PURE_PACKAGES if not (SOURCE / "folkmoot" / name / "__init__.py").is_file()]
    assert missing == [], "setup.py lists packages that do not exist: nothing of them would be compiled"
    witness = SOURCE / (WITNESS.replace(".", "/") + ".py")
    assert witness in setup.compiled_files(), "what tells compiled from pure must be compiled"


def test_the_build_has_what_mypyc_must_see() -> None:
    setup = build_file()
    pure = [path for name in setup.PURE_PACKAGES for path in (SOURCE / "folkmoot" / name).glob("*.py")]
    imported = packages_of(set().union(*map(third_party, pure)))
    given = requirements(project_file()["build-system"]["requires"])
    assert set(given) == imported | {"mypy", "setuptools"}, "[build-system] of pyproject.toml and the imports differ"
    at_run_time = requirements(project_file()["project"]["dependencies"])
    for name in imported:
        assert given[name].specifier == at_run_time[name].specifier, f"{name}: other versions build than run"
    development = requirements(project_file()["project"]["optional-dependencies"]["dev"])
    assert given["mypy"] == development["mypy"], "one mypy checks here and another compiles there"


# What `pub` and `sub` consist of.
TOOLS = ("client", "connection", "line", "link", "property", "pub", "sub")


def needed_by(path: Path) -> str:
    """Which part of the project a module is: the extra that it needs, or the node, which needs none."""
    part = path.relative_to(SOURCE).parts
    if part[0] == "pyspark_folkmoot":
        return "spark"
    if part[1] in ("demo", "torture"):
        return "demo"
    if part[1] == "cli" and part[2].removesuffix(".py") in (
        "client",
        "connection",
        "line",
        "link",
        "property",
        "pub",
        "sub",
    ):
        return "tools"
    return "node"


def test_a_node_needs_what_it_imports_and_no_more() -> None:
    extras = {name: requirements(texts) for name, texts in project_file()["project"]["optional-dependencies"].items()}
    node = set(requirements(project_file()["project"]["dependencies"]))
    spark = node | set(extras["spark"]) | {"py4j", "pydantic-core"}  # which pyspark and pydantic consist of
    allowed = {
        "node": node,
        "tools": node | set(extras["tools"]),
        "spark": spark | {"matplotlib"},  # the plot of a report is drawn where it is installed
        "demo": spark | set(extras["demo"]) | set(extras["tools"]),
    }
    used: set[str] = set()
    faults = []
    for path in sorted(SOURCE.rglob("*.py")):
        part = needed_by(path)
        found = packages_of(third_party(path))
        if part == "node" and path.stem == "pipeline":
            found -= spark - node  # the command says itself what is to be installed
        used |= found
        faults += [f"{path.relative_to(ROOT)} imports {name}: it is not in {part}" for name in found - allowed[part]]
    assert faults == []
    assert node - used == set(), "no module of a node imports these"


def test_what_is_used_of_the_inside_of_a_package_has_an_upper_bound() -> None:
    # Each imports an internal module or overrides a private method; pyproject.toml says which.
    project = project_file()["project"]
    every = [*project["dependencies"], *[text for texts in project["optional-dependencies"].values() for text in texts]]
    for name in ("paho-mqtt", "pyspark", "rocksdict", "websockets"):
        bounds = [Requirement(text).specifier for text in every if Requirement(text).name == name and ">" in text]
        assert len(bounds) == 1, f"{name} is required in several places"
        assert [one for one in bounds[0] if one.operator == "<"], f"{name} has no upper bound"


def test_wheels_are_built_for_the_versions_that_are_promised() -> None:
    project, wheels = project_file()["project"], project_file()["tool"]["cibuildwheel"]
    versions = [
        text.rpartition(" ")[2]
        for text in project["classifiers"]
        if text.startswith("Programming Language :: Python :: 3.")
    ]
    assert wheels["build"] == [f"cp{version.replace('.', '')}-manylinux*" for version in versions]
    supported = SpecifierSet(project["requires-python"])
    assert all(supported.contains(version) for version in versions)
    first = min(int(version.partition(".")[2]) for version in versions)
    assert not supported.contains(f"3.{first - 1}")
    assert set(wheels["linux"]["archs"]) == {"x86_64", "aarch64"}
    for arch in wheels["linux"]["archs"]:
        assert wheels["linux"][f"manylinux-{arch}-image"] == "manylinux_2_28"
    script = wheels["test-command"].split()[1].replace("{project}", str(ROOT))
    assert Path(script).is_file()
