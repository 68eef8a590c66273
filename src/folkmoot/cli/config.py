"""`folkmoot config`: check a configuration file, explain its fields; the logic is in `folkmoot.config`."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from folkmoot.config import explain, load

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")


@app.command("check")
def check_file(
    file: Path = typer.Argument(help="A configuration file (TOML)."),
) -> int:
    """Say whether a node could start with FILE and the variables FOLKMOOT_..., and if not, all that is wrong."""
    settings = load(file, os.environ)
    places = ", ".join(f"{entry.protocol} {entry.address}" for entry in settings.listeners)
    print(f"{file}: valid. Node {settings.node.id}, {places}, {len(settings.streams)} streams")
    return 0


@app.command("explain")
def explain_field(
    field: str = typer.Argument("", help='A field or a section, such as "limits.receive_max" or "streams".'),
) -> int:
    """Say what FIELD means, what is valid and what its default is; without FIELD, all of them."""
    print(explain(field), end="")
    return 0
