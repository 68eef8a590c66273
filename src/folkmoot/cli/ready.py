"""`folkmoot report availability|fleet`: the ready-made pipelines, run once over the stream of events."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from folkmoot.cli.admin import url_option
from folkmoot.cli.error import Refusal
from folkmoot.cli.grid import Grid

__all__ = ["report", "availability", "fleet"]

ROWS_SHOWN: Final = 40

token_option = click.option(
    "--token", envvar="FOLKMOOT_TOKEN", show_envvar=True, help="The nodes' admin token, if they have one."
)
stream_option = click.option("--stream", default="events", help="The stream that keeps $events/#.")
out_option = click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the Delta tables and the plot; nothing is written without it.",
)
master_option = click.option("--master", default="local[*]", help="Spark's master.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print each row as JSON.")


@click.group(no_args_is_help=True)
def report() -> None:
    """Report on availability or the fleet, from the events, with Spark."""


@report.command()
@url_option
@token_option
@stream_option
@out_option
@master_option
@click.option(
    "--objective-ms", type=click.FloatRange(min=0.0), default=0.0, help="Instead of the objective of the nodes."
)
@click.option(
    "--target", type=click.FloatRange(min=0.0, max=1.0), default=0.99, help="Share of messages to be within it."
)
@click.option(
    "--client-group", default="", show_default=False, help="Pattern of client ids; its parentheses are the group."
)
@click.option(
    "--longest-s", type=click.IntRange(min=1), default=3600, help="Clients away for longer count as switched off."
)
@click.option("--mark", multiple=True, metavar="'TIME LABEL'", help="A line in the plot, such as a deployment.")
@json_option
def availability(
    url: str,
    token: str | None,
    stream: str,
    out: Path | None,
    master: str,
    objective_ms: float,
    target: float,
    client_group: str,
    longest_s: int,
    mark: tuple[str, ...],
    as_json: bool,
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


@report.command()
@url_option
@token_option
@stream_option
@out_option
@master_option
@click.option(
    "--silent-s", type=click.IntRange(min=1), default=86_400, help="No sign for so long: the device is silent."
)
@click.option("--storm", type=click.IntRange(min=1), default=100, help="So many clients in a minute can be a storm.")
@json_option
def fleet(
    url: str, token: str | None, stream: str, out: Path | None, master: str, silent_s: int, storm: int, as_json: bool
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


def parsed_marks(texts: tuple[str, ...]) -> list[Any]:
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
    columns = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    grid = Grid(*columns, right=[name for name in columns if any(is_number(row[name]) for row in rows)])
    for row in rows:
        grid.add(*[cell(name, row[name]) for name in columns])
    grid.print()


def is_number(value: Any) -> bool:
    """Whether a value is a figure: bool is an int to Python, and none here."""
    return isinstance(value, int | float) and not isinstance(value, bool)


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
