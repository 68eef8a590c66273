"""What the commands that query a cluster share: options, the client, JSON output, and text for names and sizes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from folkmoot.cli.error import Refusal

if TYPE_CHECKING:
    from folkmoot.client.admin import AdminClient

__all__ = [
    "admin_option",
    "json_option",
    "token_option",
    "url_option",
    "connect",
    "named",
    "print_json",
    "size_text",
]

URL_DEFAULT: Final = "http://127.0.0.1:8080"

admin_option = click.option(
    "--admin",
    "--url",
    multiple=True,
    default=(URL_DEFAULT,),
    envvar="FOLKMOOT_URL",
    show_envvar=True,
    metavar="HOST:PORT",
    help="Admin address of a node; several addresses (repeat, or use commas) are tried in turn.",
)
url_option = click.option(
    "--admin",
    "--url",
    "url",
    default=URL_DEFAULT,
    envvar="FOLKMOOT_URL",
    show_envvar=True,
    help="Admin address of a node; several, separated by commas, are tried in turn.",
)
token_option = click.option(
    "--token", envvar="FOLKMOOT_TOKEN", show_envvar=True, help="Admin token of the nodes, if they have one."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def connect(admin: Sequence[str], token: str | None) -> AdminClient:
    """Return a client of the nodes at these addresses; raises Refusal for an invalid address."""
    from folkmoot.client.admin import AdminClient

    try:
        return AdminClient(admin, token, on_pass=note)
    except ValueError as error:
        raise Refusal(f"--admin: {error}") from None


def note(url: str, why: str) -> None:
    """Print a note that a node was skipped, and why."""
    print(f"note: {url} {why}; the next one is asked", file=sys.stderr)


def print_json(found: Any) -> None:
    """Print an answer as one line of JSON."""
    print(json.dumps(found, ensure_ascii=False))


def named(nodes: list[str]) -> str:
    """Return node names separated by commas, or a dash for none."""
    return ", ".join(nodes) or "-"


def size_text(size: int) -> str:
    """Return a number of bytes as text with a binary unit."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
