"""`folkmoot table`: prints the state of the cluster as rows: sessions, subscriptions, queues and so on."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from folkmoot.cli.admin import url_option
from folkmoot.cli.error import Refusal
from folkmoot.cli.grid import Grid

if TYPE_CHECKING:
    from folkmoot.client.column import Column
    from folkmoot.client.table import TableClient

__all__ = ["table"]

PATIENCE_S: Final = 10.0


@click.command()
@click.argument("name", default="", help="The table: sessions, subscriptions, queues, retained, streams or partitions.")
@url_option
@click.option("--token", envvar="FOLKMOOT_TOKEN", show_envvar=True, help="Admin token of the nodes, if they have one.")
@click.option("--json", "as_json", is_flag=True, help="Print each row as JSON, in the format of the HTTP API.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header line.")
@click.option("--payload", is_flag=True, help="Include the payloads (table retained; base64).")
def table(name: str, url: str, token: str | None, as_json: bool, as_csv: bool, payload: bool) -> int:
    """Print a table of the state of the cluster; without NAME, list the tables and their columns.

    The rows of one partition are a consistent snapshot; partitions are read one after the other.
    """
    from folkmoot.client.column import TABLES, columns_of

    if not name:
        return describe(as_json)
    if name not in TABLES:
        raise Refusal(f"there is no table {name!r}; there are: {', '.join(TABLES)}")
    if as_json and as_csv:
        raise Refusal("give only one of --json and --csv")
    if payload and name != "retained":
        raise Refusal("--payload is only for the table retained")
    client = connect(url, token)
    columns = columns_of(name, payload)
    try:
        if as_json:
            for row in rows_of(client, name, payload):
                print(json.dumps({column.name: row[column.name] for column in columns}, ensure_ascii=False))
        elif as_csv:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow([column.name for column in columns])
            for row in rows_of(client, name, payload):
                writer.writerow([text(column, row[column.name]) for column in columns])
        else:
            show(columns, rows_of(client, name, payload))
    except BrokenPipeError:
        # The reader of the output is gone; without this, Python would report it again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def connect(url: str, token: str | None) -> TableClient:
    """Return a client of the nodes at `url`; raises Refusal for an invalid address."""
    from folkmoot.client.table import TableClient

    try:
        return TableClient(url, token, PATIENCE_S)
    except ValueError as error:
        raise Refusal(f"--url: {error}") from None


def rows_of(client: TableClient, name: str, payload: bool) -> Iterator[dict[str, Any]]:
    """Yield all rows, part by part."""
    for part in client.parts(name):
        yield from client.rows(name, part, payload)


def describe(as_json: bool) -> int:
    """Print the tables with their columns and meanings."""
    from folkmoot.client.column import TABLES, columns_of

    found = [(name, column) for name in TABLES for column in columns_of(name, payload=True)]
    if as_json:
        for name, column in found:
            print(json.dumps({"table": name, "column": column.name, "type": column.kind, "meaning": column.meaning}))
        return 0
    grid = Grid("table", "column", "type", "meaning")
    for name, column in found:
        grid.add(name, column.name, column.kind, column.meaning)
    grid.print()
    return 0


def show(columns: list[Column], rows: Iterator[dict[str, Any]]) -> None:
    """Print rows as an aligned table, without truncation."""
    figures = [column.name for column in columns if column.kind in ("integer", "long")]
    grid = Grid(*[column.name for column in columns], right=figures)
    for row in rows:
        grid.add(*[text(column, row[column.name]) or "-" for column in columns])
    grid.print()


def text(column: Column, value: Any) -> str:
    """Return a value as text: times as RFC 3339, lists with spaces, "" for null."""
    from folkmoot.client.entry import rfc3339

    if value is None:
        return ""
    if column.kind == "timestamp":
        return rfc3339(value)
    if column.kind == "strings":
        return " ".join(value)
    if column.kind == "boolean":
        return "true" if value else "false"
    return str(value)
