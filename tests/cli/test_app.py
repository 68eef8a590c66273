"""The command line: its list, its errors, and that it starts fast because it imports little."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import folkmoot
from folkmoot.cli import main
from folkmoot.cli.app import COMMANDS
from folkmoot.cli.version import build_note, digest_of, is_compiled, stale_sources, version_line


def imported_by(*arguments: str) -> set[str]:
    """The modules that a run of the command line imports."""
    code = "import sys; from folkmoot.cli import main; main(sys.argv[1:]); print('\\n', *sys.modules, file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(run.stderr.split())


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: str(entry.name))
def test_every_command_is_there_and_helps(entry: object, capsys: pytest.CaptureFixture[str]) -> None:
    command = next(known for known in COMMANDS if known is entry)
    assert isinstance(importlib.import_module(command.module).app, typer.Typer)
    assert main([command.name, "--help"]) == 0
    assert f"folkmoot {command.name}" in capsys.readouterr().out


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert [entry.name for entry in COMMANDS if f" {entry.name} " not in text] == []


def test_the_version_is_told_without_the_parsing_library(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    text = capsys.readouterr().out
    assert text == version_line() + "\n"
    assert folkmoot.__version__ in text
    assert ("compiled" if is_compiled() else "pure") in text
    assert not {"typer", "pydantic", "rich"} & imported_by("--version")


def test_help_imports_no_command() -> None:
    modules = imported_by("--help")
    assert "typer" in modules
    assert not {entry.module for entry in COMMANDS} & modules
    assert not {"pydantic", "asyncio", "rocksdict"} & modules


def test_without_arguments_it_helps(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    assert "serve" in "".join(capsys.readouterr())


def test_an_unknown_command_is_told_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sevre"]) == 2
    assert "Did you mean 'serve'" in capsys.readouterr().err


def test_a_compiled_tree_knows_which_sources_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "folkmoot"
    package.mkdir()
    for name in ("same", "changed", "gone"):
        (package / f"{name}.py").write_text(name, encoding="utf-8")
    names = [f"folkmoot/{name}.py" for name in ("same", "changed", "gone")]
    lines = ["# tools", *[f"{digest_of(tmp_path / name)} {name}" for name in names]]
    (tmp_path / "native-sources.txt").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(folkmoot, "__file__", str(package / "__init__.py"))
    assert stale_sources() == []
    (package / "changed.py").write_text("new", encoding="utf-8")
    (package / "gone.py").unlink()
    assert stale_sources() == names[1:]


def test_a_pure_install_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "build.txt").write_text("no C compiler\n", encoding="utf-8")
    monkeypatch.setattr(folkmoot, "__file__", str(tmp_path / "__init__.py"))
    assert build_note() == "no C compiler"
    assert is_compiled() or version_line().endswith("pure: no C compiler)")
