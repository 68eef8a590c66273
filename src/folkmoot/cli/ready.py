"""`folkmoot report availability|fleet`: runs a ready-made pipeline once over the stream of events."""

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
    "--token", envvar="FOLKMOOT_TOKEN", show_envvar=True, help="Admin token of the nodes, if they have one."
)
stream_option = click.option("--stream", default="events", help="Stream that stores $events/#.")
out_option = click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the Delta tables and the plot; without it, nothing is written.",
)
master_option = click.option("--master", default="local[*]", help="Master URL of Spark.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print each row as JSON.")


@click.group(no_args_is_help=True)
def report() -> None:
    """Report on availability or the fleet, with Spark, from the stream of events."""


@report.command()
@url_option
@token_option
@stream_option
@out_option
@master_option
@click.option(
    "--objective-ms",
    type=click.FloatRange(min=0.0),
    default=0.0,
    help="Latency objective in milliseconds; 0 means the objective of the nodes.",
)
@click.option(
    "--target",
    type=click.FloatRange(min=0.0, max=1.0),
    default=0.99,
    help="Required share of messages within the objective.",
)
@click.option(
    "--client-group",
    default="",
    show_default=False,
    help="Regular expression for client ids; its parentheses select the group.",
)
@click.option(
    "--longest-s",
    type=click.IntRange(min=1),
    default=3600,
    help="Seconds of absence after which a client counts as switched off.",
)
@click.option(
    "--mark", multiple=True, metavar="'TIME LABEL'", help="Line in the plot, such as a deployment; repeatable."
)
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
    """Report the availability as users saw it, by day, month, client group and topic, and what reduced it.

    The command needs the extra `spark` and a stream of events: `folkmoot serve --stream 'events=$events/#'`.
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
    "--silent-s",
    type=click.IntRange(min=1),
    default=86_400,
    help="Seconds without a sign after which a device counts as silent.",
)
@click.option(
    "--storm", type=click.IntRange(min=1), default=100, help="Clients per minute that count as a connection storm."
)
@json_option
def fleet(
    url: str, token: str | None, stream: str, out: Path | None, master: str, silent_s: int, storm: int, as_json: bool
) -> int:
    """Report seen and silent devices, the duration of connections, the top senders, and connection storms.

    The command needs the extra `spark` and a stream of events: `folkmoot serve --stream 'events=$events/#'`.
    """
    from_spark = spark_part()
    source = from_spark.Source(url, stream, token, master)
    found = asked(lambda: from_spark.run_fleet(source, out, silent_s, storm))
    show(found, as_json)
    return 0


def spark_part() -> Any:
    """Return the module that runs reports; raises Refusal if Spark is not installed."""
    try:
        from pyspark_folkmoot.ready import run
    except ImportError as error:
        raise Refusal(f"reports need Spark: pip install 'folkmoot[spark]' ({error})") from None
    return run


def parsed_marks(texts: tuple[str, ...]) -> list[Any]:
    """Return the marks; raises Refusal for one that is not `TIME LABEL`."""
    from pyspark_folkmoot.ready.timeline import parse_mark

    try:
        return [parse_mark(text) for text in texts]
    except ValueError as error:
        raise Refusal(f"--mark: {error}") from None


def group_pattern(pattern: str) -> str:
    """Return the pattern; raises Refusal unless it has exactly one pair of parentheses."""
    import re

    try:
        if re.compile(pattern).groups == 1:
            return pattern
    except re.error as error:
        raise Refusal(f"--client-group: {error}") from None
    raise Refusal("--client-group: give a pattern with one pair of parentheses, such as '^([a-z]+)-'")


def asked(run: Callable[[], dict[str, list[dict[str, Any]]]]) -> dict[str, list[dict[str, Any]]]:
    """Return the result of a run; raises Refusal with Spark's reason in one line instead of a traceback."""
    try:
        return run()
    except Exception as error:
        name = type(error).__module__.partition(".")[0]
        if name not in ("pyspark", "folkmoot", "pyspark_folkmoot", "py4j"):
            raise
        lines = [line.strip() for line in str(error).splitlines() if "Error:" in line or "folkmoot" in line]
        raise Refusal(f"the report failed: {lines[-1] if lines else str(error).splitlines()[0]}") from None


def show(tables: dict[str, list[dict[str, Any]]], as_json: bool) -> None:
    """Print all tables, or their rows as JSON with the table name."""
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
    """Print rows, with a column for each field that is set in at least one row."""
    columns = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    grid = Grid(*columns, right=[name for name in columns if any(is_number(row[name]) for row in rows)])
    for row in rows:
        grid.add(*[cell(name, row[name]) for name in columns])
    grid.print()


def is_number(value: Any) -> bool:
    """Whether a value is a number; a bool does not count."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def cell(name: str, value: Any) -> str:
    """Return a value as text: shares with five digits, other numbers with one or two, a dash for null."""
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
