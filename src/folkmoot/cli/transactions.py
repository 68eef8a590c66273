"""`folkmoot transactions`: the apps that publish with transactions, as Spark does, and their progress."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from folkmoot.cli.admin import admin_option, json_option, print_json, size_text, token_option
from folkmoot.cli.error import Refusal
from folkmoot.cli.grid import Grid

if TYPE_CHECKING:
    from folkmoot.client.transactions import TransactionClient

__all__ = ["transactions"]

PATIENCE_S = 5.0


@click.group(invoke_without_command=True)
@click.pass_context
@admin_option
@token_option
@json_option
def transactions(context: click.Context, admin: tuple[str, ...], token: str | None, as_json: bool) -> int | None:
    """List the apps that publish with transactions: last committed number, waiting messages, staged data."""
    if context.invoked_subcommand is not None:
        return None
    apps, complete = connect(admin, token).apps()
    if as_json:
        print_json({"transactions": apps, "complete": complete})
        return 0
    figures = ("last", "committed", "published", "waiting", "since", "staged", "newest")
    grid = Grid("app", *figures, right=figures)
    now_us = time.time_ns() // 1000
    for entry in apps:
        grid.add(*row(entry, now_us))
    if apps:
        grid.print()
    else:
        print("no transactions: no app has committed or staged any")
    if not complete:
        print("some partitions have no leader now: apps may be missing")
    return 0


def row(entry: dict[str, Any], now_us: int) -> list[str]:
    """Return the cells of one app."""
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
    """Return how long ago a time is, as text; a dash for never."""
    if time_us is None:
        return "-"
    seconds = max(now_us - time_us, 0) // 1_000_000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


@transactions.command()
@click.argument("name", metavar="APP", help="The app, as shown in the list.")
@admin_option
@token_option
def forget(name: str, admin: tuple[str, ...], token: str | None) -> int:
    """Forget APP and what it has staged; if it comes back, its numbers begin anew.

    The command is refused (status 2) while committed messages of APP wait to be published. A Spark query that continues
    afterwards publishes a repeated batch again: forget an app only when it has ended.
    """
    connect(admin, token).forget(name)
    print(f"{name}: forgotten")
    return 0


def connect(admin: Sequence[str], token: str | None) -> TransactionClient:
    """Return a client of the nodes at these addresses; raises Refusal for an invalid address."""
    from folkmoot.client.transactions import TransactionClient

    try:
        return TransactionClient(admin, token, PATIENCE_S)
    except ValueError as error:
        raise Refusal(f"--admin: {error}") from None
