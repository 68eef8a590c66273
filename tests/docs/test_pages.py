"""What the documentation says is true: examples work, commands parse, tables are complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest

from folkmoot.cli import main
from folkmoot.cli.app import build
from folkmoot.config.field import default_text
from folkmoot.config.limit import LimitSettings
from folkmoot.metrics.catalogue import families
from folkmoot.metrics.exposition import full_name
from scripts import reference
from tests.docs.page import PAGES, ROOT, blocks, commands
from tests.integration.serving import CERTIFICATES

TOKEN = "a-token-of-more-than-sixteen-characters"
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])


def test_generated_parts_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["--check"]) == 0, capsys.readouterr().err


def with_files(text: str, folder: Path) -> str:
    """An example with the files that it names put where they can be read."""
    (folder / "users").write_text("", encoding="utf-8")
    (folder / "token").write_text(TOKEN, encoding="utf-8")
    (folder / "secret").write_text(TOKEN, encoding="utf-8")
    places = {
        "certificate": CERTIFICATES / "server.pem",
        "key": CERTIFICATES / "server.key",
        "ca": CERTIFICATES / "ca.pem",
        "password_file": folder / "users",
        "token_file": folder / "token",
        "secret_file": folder / "secret",
    }
    return re.sub(
        rf'^({"|".join(places)}) = ".*"', lambda found: f'{found[1]} = "{places[found[1]]}"', text, flags=re.MULTILINE
    )


@EACH_PAGE
def test_every_configuration_is_valid(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, text in enumerate(blocks(page, "toml")):
        file = tmp_path / f"example{number}.toml"
        file.write_text(with_files(text, tmp_path), encoding="utf-8")
        assert main(["config", "check", str(file)]) == 0, f"{text}\n{capsys.readouterr().err}"


def parse(command: Any, arguments: list[str], parent: Any = None) -> None:
    """Let a command take its arguments, and the command below it take the rest; nothing is run."""
    context = command.make_context("folkmoot", list(arguments), parent=parent)
    given = [*context._protected_args, *context.args]
    if isinstance(context.command, click.Group) and not (context.command.invoke_without_command and not given):
        _name, below, rest = context.command.resolve_command(context, given)
        parse(below, rest, context)


@EACH_PAGE
def test_every_command_line_parses(page: Path) -> None:
    for arguments in commands(page):
        if arguments != ["--version"]:
            parse(build(), arguments)


def test_a_wrong_command_line_does_not_parse() -> None:
    for arguments in (["serve", "--dat", "x"], ["config", "chek", "x"], ["stream", "read"]):
        with pytest.raises(Exception, match=r"(?i)no such|missing"):
            parse(build(), arguments)


def test_every_limit_is_on_its_page() -> None:
    text = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    rows = {name: f"| `{name}` | `{default_text(field)}` |" for name, field in LimitSettings.model_fields.items()}
    assert [name for name, row in rows.items() if row not in text] == []


@EACH_PAGE
def test_every_metric_exists(page: Path) -> None:
    every = {full_name(family) for family in families()}
    named = set(re.findall(r"\bfolkmoot_[a-z0-9_]+\b", page.read_text(encoding="utf-8"))) - {"folkmoot_delta"}
    assert sorted(name for name in named if not any(name == full or full.startswith(name) for full in every)) == []


def test_every_event_of_the_log_is_explained() -> None:
    pattern = re.compile(
        r'(?:\b[eE]vent\([A-Z]\w+,|\.say\("\w+",|_note\(connection,|_(?:say|complain)\(\w+,|\.refused\(\w+,) "(\w+)"'
    )
    kinds: set[str] = set()
    for path in (ROOT / "src" / "folkmoot").rglob("*.py"):
        if path.parent.name not in ("cli", "client", "demo", "sim", "torture"):
            kinds.update(pattern.findall(path.read_text(encoding="utf-8")))
    assert {"connected", "stopped", "connect_refused", "peer_up", "view_installed", "peer_refused"} <= kinds
    text = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    assert sorted(kind for kind in kinds if f"`{kind}`" not in text) == []


def test_every_event_that_is_explained_exists() -> None:
    text = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \| (?:info|warning|error)", text, flags=re.MULTILINE)
    kinds = {kind for row in rows for kind in re.findall(r"[a-z_]+", row)}
    assert {"connected", "peer_up", "copies_lost"} <= kinds
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "folkmoot").rglob("*.py"))
    assert sorted(kind for kind in kinds if f'"{kind}"' not in source) == []
