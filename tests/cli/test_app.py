"""The command line: its list, its errors, and that it starts fast because it imports little."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement

import folkmoot
from folkmoot.cli import main
from folkmoot.cli.app import COMMANDS, EXTRAS, Command
from folkmoot.cli.version import build_note, digest_of, is_compiled, stale_sources, version_line

ROOT = Path(__file__).parents[2]


def imported_by(*arguments: str) -> set[str]:
    """The modules that a run of the command line imports."""
    code = "import sys; from folkmoot.cli import main; main(sys.argv[1:]); print('\\n', *sys.modules, file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(run.stderr.split())


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: str(entry.name))
def test_every_command_is_there_and_helps(entry: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(entry.load(), click.Command)
    assert main([entry.name, "--help"]) == 0
    assert f"folkmoot {entry.name}" in capsys.readouterr().out


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
    assert not {"click", "pydantic"} & imported_by("--version")


def test_help_imports_no_command() -> None:
    modules = imported_by("--help")
    assert "click" in modules
    assert not {entry.module for entry in COMMANDS} & modules
    assert not {"pydantic", "asyncio", "rocksdict"} & modules


def without(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as if `package` were not installed."""
    code = f"import sys; sys.modules['{package}'] = None; from folkmoot.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["pub", "sub"])
def test_a_command_names_the_extra_that_it_needs(name: str) -> None:
    run = without("paho", name, "-t", "a")
    assert run.returncode == 2
    assert run.stderr == f"error: folkmoot {name} needs paho-mqtt: pip install 'folkmoot[tools]'\n"


def test_a_package_that_is_in_no_extra_is_a_broken_install() -> None:
    run = without("pydantic", "serve", "--help")
    assert run.returncode == 1
    assert "ModuleNotFoundError" in run.stderr


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: str(entry.name))
def test_only_the_tools_need_what_is_in_an_extra(entry: Command) -> None:
    foreign = {name.partition(".")[0] for name in imported_by(entry.name, "--help")}
    assert (entry.name in ("pub", "sub")) == ("paho" in foreign)
    assert not {"rich", "pyspark", "pyarrow", "numpy", "pandas", "yaml"} & foreign


def test_the_extras_that_commands_name_have_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for package, extra in EXTRAS.values():
        assert [need for need in project["optional-dependencies"][extra] if Requirement(need).name == package]
        assert package not in [Requirement(need).name for need in project["dependencies"]]


def test_without_arguments_it_helps(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    assert "serve" in "".join(capsys.readouterr())


def test_an_unknown_command_is_told_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sevre"]) == 2
    assert re.search(r"No such command 'sevre'.*Did you mean.*'serve'", capsys.readouterr().err)


def test_ctrl_c_ends_a_command_without_a_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("folkmoot.cli.status.connect", interrupted)
    monkeypatch.setattr("folkmoot.cli.stream.connect", interrupted)
    for arguments in (["status"], ["stream", "list"]):
        assert main(arguments) == 130
    assert "".join(capsys.readouterr()).strip() == ""


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
