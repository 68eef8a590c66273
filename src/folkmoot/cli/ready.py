"""`folkmoot report availability|fleet`: the ready-made pipelines, run once over the stream of events."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import typer

from folkmoot.cli.admin import URL, print_table
from folkmoot.cli.error import Refusal

__all__ = ["app", "availability", "fleet"]

ROWS_SHOWN: Final = 40

TOKEN = typer.Option(None, "--token", envvar="FOLKMOOT_TOKEN", help="The nodes' admin token, if they have one.")
STREAM = typer.Option("events", "--stream", help="The stream that keeps $events/#.")
OUT = typer.Option(None, "--out", help="Folder for the Delta tables and the plot; nothing is written without it.")
MASTER = typer.Option("local[*]", "--master", help="Spark's master.")
JSON = typer.Option(False, "--json", help="Print each row as JSON.")

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", no_args_is_help=True)


@app.command()
def availability(
    url: str = URL,
    token: str | None = TOKEN,
    stream: str = STREAM,
    out: Path | None = OUT,
    master: str = MASTER,
    objective_ms: float = typer.Option(0.0, "--objective-ms", min=0.0, help="Instead of the objective of the nodes."),
    target: float = typer.Option(0.99, "--target", min=0.0, max=1.0, help="Share of messages to be within it."),
    client_group: str = typer.Option(
        "", "--client-group", help="Pattern of client ids; its parentheses are the group."
    ),
    longest_s: int = typer.Option(3600, "--longest-s", min=1, help="Clients away for longer count as switched off."),
    mark: list[str] = typer.Option(
        [], "--mark", metavar="'TIME LABEL'", help="A line in the plot, such as a deployment."
    ),
    as_json: bool = JSON,
) -> int:
    """Say how available the cluster was to its users, by day and month, groups of clients and topics, and what cost it.

    Needs the extra `spark`, and a stream of events: `folkmoot serve --stream 'events=$events/#'`.
    """
    from_spark = spark_part()
    wishes = from_spark.Wishes(target=target, longest_s=longest_s)
    if objective_ms:
        wishes.objective_us = round(objective_ms * 1000)
    if client_group:
        wishes.client_group = group_pattern(client_group)
    source = from_spark.Source(url, stream, token, master)
    marks = parsed_marks(mark)
    found = asked(lambda: from_spark.run_availability(source, out, wishes, marks))
    show(found, as_json)
    return 0


@app.command()
def fleet(
    url: str = URL,
    token: str | None = TOKEN,
    stream: str = STREAM,
    out: Path | None = OUT,
    master: str = MASTER,
    silent_s: int = typer.Option(86_400, "--silent-s", min=1, help="No sign for so long: the device is silent."),
    storm: int = typer.Option(100, "--storm", min=1, help="So many clients in a minute can be a storm."),
    as_json: bool = JSON,
) -> int:
    """Say which devices were seen, which are silent, how long connections last, who sends most, when all came at once.

    Needs the extra `spark`, and a stream of events: `folkmoot serve --stream 'events=$events/#'`.
    """
    from_spark = spark_part()
    source = from_spark.Source(url, stream, token, master)
    found = asked(lambda: from_spark.run_fleet(source, out, silent_s, storm))
    show(found, as_json)
    return 0


def spark_part() -> Any:
    """The module that runs reports; Refusal where Spark is not installed."""
    try:
        from pyspark_folkmoot.ready import run
    except ImportError as error:
        raise Refusal(f"reports need Spark: pip install 'folkmoot[spark]' ({error})") from None
    return run


def parsed_marks(texts: list[str]) -> list[Any]:
    """The marks that were given; Refusal where one is not `TIME LABEL`."""
    from pyspark_folkmoot.ready.timeline import parse_mark

    try:
        return [parse_mark(text) for text in texts]
    except ValueError as error:
        raise Refusal(f"--mark: {error}") from None


def group_pattern(pattern: str) -> str:
    """A pattern with one pair of parentheses; Refusal otherwise."""
    import re

    try:
        if re.compile(pattern).groups == 1:
            return pattern
    except re.error as error:
        raise Refusal(f"--client-group: {error}") from None
    raise Refusal("--client-group: give a pattern with one pair of parentheses, such as '^([a-z]+)-'")


def asked(run: Callable[[], dict[str, list[dict[str, Any]]]]) -> dict[str, list[dict[str, Any]]]:
    """The result of a run; Refusal with Spark's reason in one line, not with the trace of two languages."""
    try:
        return run()
    except Exception as error:
        name = type(error).__module__.partition(".")[0]
        if name not in ("pyspark", "folkmoot", "pyspark_folkmoot", "py4j"):
            raise
        lines = [line.strip() for line in str(error).splitlines() if "Error:" in line or "folkmoot" in line]
        raise Refusal(f"the report failed: {lines[-1] if lines else str(error).splitlines()[0]}") from None


def show(tables: dict[str, list[dict[str, Any]]], as_json: bool) -> None:
    """Print all tables, or their rows as JSON with the name of the table."""
    for name, rows in tables.items():
        if as_json:
            for row in rows:
                print(json.dumps({"table": name, **row}, ensure_ascii=False, default=str))
            continue
        print(f"\n{name}: {len(rows)} rows" if len(rows) > ROWS_SHOWN else f"\n{name}")
        if rows:
            print_rows(rows[:ROWS_SHOWN])
        else:
            print("-")


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print rows with a column for each field that any of them has."""
    from rich.table import Table

    columns = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    table = Table(box=None, pad_edge=False)
    for name in columns:
        number = any(isinstance(row[name], int | float) and not isinstance(row[name], bool) for row in rows)
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*[cell(name, row[name]) for name in columns])
    print_table(table)


def cell(name: str, value: Any) -> str:
    """A value for people: shares with five digits, seconds with one, a dash for null."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return (
            f"{value:.5f}"
            if name in ("availability", "share")
            else f"{value:.2f}"
            if name == "nines"
            else f"{value:.1f}"
        )
    return str(value)
