"""`folkmoot transactions`: the apps that publish by transactions, as Spark does, and how far each is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from folkmoot.cli.admin import ADMIN, JSON, TOKEN, print_json, print_table, size_text
from folkmoot.cli.error import Refusal

if TYPE_CHECKING:
    from folkmoot.client.transactions import TransactionClient

__all__ = ["app"]

PATIENCE_S = 5.0

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", invoke_without_command=True)


@app.callback()
def transactions(
    context: typer.Context, admin: list[str] = ADMIN, token: str | None = TOKEN, as_json: bool = JSON
) -> int | None:
    """List the apps that publish by transactions: the last number committed, what waits, what is staged."""
    if context.invoked_subcommand is not None:
        return None
    apps, complete = connect(admin, token).apps()
    if as_json:
        print_json({"transactions": apps, "complete": complete})
        return 0
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("app", no_wrap=True)
    for title in ("last", "committed", "published", "waiting", "since", "staged", "newest"):
        table.add_column(title, justify="right", no_wrap=True)
    now_us = time.time_ns() // 1000
    for entry in apps:
        table.add_row(*row(entry, now_us))
    if apps:
        print_table(table)
    else:
        print("no transactions: no app has committed or staged any")
    if not complete:
        print("some partitions have no leader now: apps may be missing")
    return 0


def row(entry: dict[str, Any], now_us: int) -> list[str]:
    """The cells of one app."""
    last = entry["last"]
    return [
        entry["app"],
        "-" if last is None else str(last),
        age_text(entry["committed_us"], now_us),
        str(entry["published"]),
        str(entry["waiting_messages"]),
        age_text(entry["waiting_since_us"], now_us),
        size_text(entry["staged_bytes"]) if entry["staged_transactions"] else "-",
        age_text(entry["staged_us"], now_us),
    ]


def age_text(time_us: int | None, now_us: int) -> str:
    """How long ago something was, a dash for never."""
    if time_us is None:
        return "-"
    seconds = max(now_us - time_us, 0) // 1_000_000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


@app.command()
def forget(
    name: str = typer.Argument(metavar="APP", help="The app, as the list shows it."),
    admin: list[str] = ADMIN,
    token: str | None = TOKEN,
) -> int:
    """Forget APP and what it has staged: should it come back, its numbers begin anew.

    Refused (status 2) while committed messages of it wait to be published. A Spark query that goes on after that
    publishes a batch again that it repeats: forget only what is over.
    """
    connect(admin, token).forget(name)
    print(f"{name}: forgotten")
    return 0


def connect(admin: list[str], token: str | None) -> TransactionClient:
    """A client of the nodes at these addresses; Refusal when one is no address."""
    from folkmoot.client.transactions import TransactionClient

    try:
        return TransactionClient(admin, token, PATIENCE_S)
    except ValueError as error:
        raise Refusal(f"--admin: {error}") from None
