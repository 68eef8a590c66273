"""What the commands that ask a cluster share: options, the client, tables that are not cut off."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import typer

from folkmoot.cli.error import Refusal

if TYPE_CHECKING:
    from rich.table import Table

    from folkmoot.client.admin import AdminClient

__all__ = ["ADMIN", "JSON", "TOKEN", "URL", "connect", "named", "print_json", "print_table", "size_text"]

URL_DEFAULT: Final = "http://127.0.0.1:8080"
LINE_WIDTH: Final = 200

ADMIN = typer.Option(
    [URL_DEFAULT],
    "--admin",
    "--url",
    envvar="FOLKMOOT_URL",
    metavar="HOST:PORT",
    help="Admin address of a node; several, by repeating or with commas, are tried in turn.",
)
URL = typer.Option(
    URL_DEFAULT, "--admin", "--url", envvar="FOLKMOOT_URL", help="Admin address of a node; several with commas."
)
TOKEN = typer.Option(None, "--token", envvar="FOLKMOOT_TOKEN", help="The nodes' admin token, if they have one.")
JSON = typer.Option(False, "--json", help="Print JSON.")


def connect(admin: list[str], token: str | None) -> AdminClient:
    """A client of the nodes at these addresses; Refusal when one is no address."""
    from folkmoot.client.admin import AdminClient

    try:
        return AdminClient(admin, token, on_pass=note)
    except ValueError as error:
        raise Refusal(f"--admin: {error}") from None


def note(url: str, why: str) -> None:
    """Say that a node was asked and another one answers."""
    print(f"note: {url} {why}; the next one is asked", file=sys.stderr)


def print_json(found: Any) -> None:
    """Print what was answered, as one line."""
    print(json.dumps(found, ensure_ascii=False))


def print_table(table: Table) -> None:
    """Print a table as wide as it must be: a wrapped line can be read, cut columns cannot."""
    from rich.console import Console

    console = Console(highlight=False)
    console.width = max(console.width, LINE_WIDTH)
    console.print(table)


def named(nodes: list[str]) -> str:
    """Nodes with commas, or a dash for none."""
    return ", ".join(nodes) or "-"


def size_text(size: int) -> str:
    """A number of bytes for people."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
