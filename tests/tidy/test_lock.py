"""The lock file of the development environment is that of `pyproject.toml`: `make lock` writes it anew."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.tidy.build import ROOT, project_file

VERSIONS = ("3.11", "3.12", "3.13")
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*==\S+(?: ; .*?)?)(?: \\)?$")
ADVICE = "requirements-dev.lock is out of step with pyproject.toml: run `make lock`"


def blocks() -> list[tuple[Requirement, list[str]]]:
    """Each pin of the lock file with the lines below it: hashes, then who needs it."""
    found: list[tuple[Requirement, list[str]]] = []
    for line in (ROOT / "requirements-dev.lock").read_text(encoding="utf-8").splitlines():
        pin = PIN.match(line)
        if pin is not None:
            found.append((Requirement(pin[1]), []))
        elif found:
            found[-1][1].append(line)
    return found


def wanted() -> list[Requirement]:
    """What a developer needs: the requirements of a node, and those of `dev` with the extras that it names."""
    project = project_file()["project"]
    extras: list[str] = ["dev"]
    for extra in extras:
        for text in project["optional-dependencies"][extra]:
            asked = Requirement(text)
            if asked.name == project["name"]:
                extras += sorted(asked.extras - set(extras))
    texts = [*project["dependencies"], *[text for extra in extras for text in project["optional-dependencies"][extra]]]
    return [asked for asked in map(Requirement, texts) if asked.name != project["name"]]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_requirement_is_locked_to_one_version_that_fulfils_it(version: str) -> None:
    environment = {"python_version": version, "python_full_version": f"{version}.0", "sys_platform": "linux"}
    here = [pin for pin, _lines in blocks() if pin.marker is None or pin.marker.evaluate(environment)]
    versions = {canonicalize_name(pin.name): Version(next(iter(pin.specifier)).version) for pin in here}
    assert len(versions) == len(here), "a package is locked twice"
    faults = [
        str(asked)
        for asked in wanted()
        if not asked.specifier.contains(versions.get(canonicalize_name(asked.name), Version("0.dev0")))
    ]
    assert faults == [], ADVICE


def test_nothing_is_locked_for_us_that_we_no_longer_want() -> None:
    name = f"{project_file()['project']['name']} (pyproject.toml)"
    ours = {canonicalize_name(pin.name) for pin, lines in blocks() if any(name in line for line in lines)}
    assert ours == {canonicalize_name(asked.name) for asked in wanted()}, ADVICE


def test_every_pin_has_hashes() -> None:
    assert len(blocks()) > 50
    assert [str(pin) for pin, lines in blocks() if "--hash=sha256:" not in "".join(lines)] == []


def test_the_versions_are_those_of_the_classifiers() -> None:
    text = "\n".join(project_file()["project"]["classifiers"])
    assert tuple(re.findall(r"^Programming Language :: Python :: (3\.\d+)$", text, re.MULTILINE)) == VERSIONS
