"""`folkmoot bench`: flags become a workload, its figures a table or JSON; `folkmoot.client.load` makes the load."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import typer

from folkmoot.cli.error import Refusal

if TYPE_CHECKING:
    from folkmoot.client.loadresult import LoadResult
    from folkmoot.client.workload import Target, Workload

__all__ = ["app", "workload_of"]

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command()
def bench(
    url: str | None = typer.Option(None, "--url", help="Broker, mqtt://[user:password@]HOST[:PORT]."),
    host: str = typer.Option("127.0.0.1", "--host", help="Broker's host, without --url."),
    port: int = typer.Option(1883, "--port", "-p", help="Broker's port, without --url."),
    workload: str = typer.Option(
        "pairs", "--workload", "-w", metavar="NAME", help="pairs, fan-in, fan-out, connect, idle or retained."
    ),
    pairs: int | None = typer.Option(None, "--pairs", help="Pairs of a publisher and a subscriber (pairs; 1)."),
    publishers: int | None = typer.Option(None, "--publishers", help="Publishers (fan-in; 10)."),
    subscribers: int | None = typer.Option(None, "--subscribers", help="Subscribers (fan-out; 50)."),
    connections: int | None = typer.Option(
        None, "--connections", help="Connections: at a time (connect; 20), or in all (idle; 1000)."
    ),
    qos: int = typer.Option(0, "--qos", "-q", help="0, 1 or 2, for publishing and subscribing."),
    window: int | None = typer.Option(None, "--window", help="Messages that a publisher has outstanding (100)."),
    payload: int = typer.Option(64, "--payload", help="Bytes of payload."),
    rate: float | None = typer.Option(
        None, "--rate", help="Messages (or connects) a second in all; not given: as fast as they go."
    ),
    seconds: float = typer.Option(5.0, "--seconds", "-s", help="How long to measure."),
    messages: int = typer.Option(
        0, "--messages", "-n", help="Measure this many messages (connects, retained messages) and not a time."
    ),
    version: int = typer.Option(4, "--version", "-V", help="Protocol: 4 is MQTT 3.1.1, 5 is MQTT 5.0."),
    persistent: bool = typer.Option(False, "--persistent", help="Subscribers with sessions that survive."),
    sample: int | None = typer.Option(None, "--sample", help="Time one message in so many (101; with --rate 1)."),
    pid: int | None = typer.Option(None, "--pid", help="The broker's process, for its CPU time and memory."),
    spin: bool = typer.Option(False, "--spin", help="Never sleep: steadier figures, on a core of its own."),
    as_json: bool = typer.Option(False, "--json", help="Print the figures as one JSON object."),
) -> int:
    """Put load on a broker, any MQTT broker, and measure it.

    The load is a closed loop: a publisher has at most its window of messages outstanding, and goes on when they were
    received (and, with QoS 1 and 2, acknowledged). With `--rate` messages are due at fixed times, and their latency
    counts from then. Exit status 1 if anything was lost, refused or out of order.
    """
    from folkmoot.client.load import run_load
    from folkmoot.client.workload import Span, Target

    target = Target.parse(url) if url is not None else Target(host, port)
    numbers = {"pairs": pairs, "publishers": publishers, "subscribers": subscribers, "connections": connections}
    load = workload_of(workload, numbers, rate=rate, window=window, sample=sample)
    load = load.changed(qos=qos, payload_bytes=payload, version=version, persistent=persistent)
    span = Span(seconds, messages)
    with progress_of(load.name) as progress:
        result = run_load(load, target, span, pid=pid, progress=progress, spin=spin)
    if as_json:
        typer.echo(json.dumps(result.as_json(), indent=2))
    else:
        print_result(result, target)
    return 0 if result.ok else 1


def workload_of(
    shape: str,
    numbers: dict[str, int | None],
    *,
    rate: float | None = None,
    window: int | None = None,
    sample: int | None = None,
) -> Workload:
    """Return the workload of this shape with the numbers given, the usual ones for the others.

    Raises `Refusal` for a number that the shape does not have, `WorkloadError` for a shape or number that is wrong.
    """
    from folkmoot.client.workload import SHAPES, Workload, WorkloadError

    usual = {"pairs": ("pairs", 1), "fan-in": ("publishers", 10), "fan-out": ("subscribers", 50)}
    usual |= {"connect": ("connections", 20), "idle": ("connections", 1000)}
    if shape not in SHAPES:
        raise WorkloadError(f"--workload {shape!r} is unknown; use {', '.join(SHAPES)}")
    name, count = usual.get(shape, ("", 1))
    for other, given in numbers.items():
        if given is not None and other != name:
            does = f"--{name}" if name else "none of these numbers"
            raise Refusal(f"--{other} says nothing to --workload {shape}, which takes {does}")
    count = numbers.get(name) or count
    shapes: dict[str, dict[str, Any]] = {
        "pairs": {"publishers": count, "subscribers": count},
        "fan-in": {"publishers": count},
        "fan-out": {"subscribers": count},
        "connect": {"connections": count},
        "idle": {"connections": count},
        # The pair beside it must not be held up by its own window, and is timed at a rate.
        "retained": {"rate": 2000.0, "window": 1000},
    }
    fields = shapes[shape]
    given_too: dict[str, Any] = {"rate": rate, "window": window}
    fields |= {key: value for key, value in given_too.items() if value is not None}
    sample_every = sample or (1 if fields.get("rate") else 101)
    return Workload(name=f"{shape} {count}" if name else shape, shape=shape, sample_every=sample_every, **fields)


def progress_of(title: str) -> AbstractContextManager[Callable[[str, float, int], None]]:
    """Return a bar on stderr, shown on a terminal only; entered, it is a function of phase, share and operations."""
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    @contextmanager
    def bar() -> Any:
        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
        )
        quiet = not console.is_terminal
        with Progress(*columns, console=console, transient=True, refresh_per_second=5, disable=quiet) as shown:
            task = shown.add_task(title, total=1.0, count="")

            def update(phase: str, share: float, operations: int) -> None:
                shown.update(task, description=f"{title}: {phase}", completed=share, count=f"{operations:,}")

            yield update

    return bar()


def print_result(result: LoadResult, target: Target) -> None:
    """Print what went wrong, and the figures as a table if there are any."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for text in result.texts:
        console.print(f"  {text}", style="red", highlight=False)
    if not result.seconds:
        return
    load = result.workload
    flow = f"QoS {load.qos}, window {load.window}, {load.payload_bytes} bytes"
    protocol = "MQTT 5.0" if load.version == 5 else "MQTT 3.1.1"
    what = load.name if load.shape in {"connect", "idle"} else f"{load.name}, {flow}"
    kept = ", persistent sessions" if load.persistent else ""
    table = Table(
        title=f"{what}{kept}, {protocol}, {target.host}:{target.port}", show_header=False, title_justify="left"
    )
    table.add_column(style="bold")
    table.add_column()
    for name, value in result.rows():
        table.add_row(name, value, style="red" if name.startswith("FAULT") else None)
    console.print(table)
