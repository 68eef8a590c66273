"""`folkmoot bench`: turns options into a workload and prints its figures; `folkmoot.client.load` makes the load."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from folkmoot.cli.error import Refusal
from folkmoot.cli.grid import Grid

if TYPE_CHECKING:
    from folkmoot.client.loadresult import LoadResult
    from folkmoot.client.workload import Target, Workload

__all__ = ["bench", "workload_of"]

CLEAR_LINE: Final = "\r\033[K"


@click.command()
@click.option("--url", help="URL of the broker: mqtt://[USER:PASSWORD@]HOST[:PORT].")
@click.option("--host", default="127.0.0.1", help="Host of the broker, unless --url is given.")
@click.option("--port", "-p", type=int, default=1883, help="Port of the broker, unless --url is given.")
@click.option(
    "--workload",
    "-w",
    default="pairs",
    metavar="NAME",
    help="Workload: pairs, fan-in, fan-out, connect, idle or retained.",
)
@click.option("--pairs", type=int, help="Number of publisher and subscriber pairs (pairs; 1).")
@click.option("--publishers", type=int, help="Number of publishers (fan-in; 10).")
@click.option("--subscribers", type=int, help="Number of subscribers (fan-out; 50).")
@click.option(
    "--connections", type=int, help="Number of connections: at a time (connect; 20), or in total (idle; 1000)."
)
@click.option("--qos", "-q", type=int, default=0, help="QoS for publishing and subscribing: 0, 1 or 2.")
@click.option("--window", type=int, help="Maximum number of outstanding messages per publisher (100).")
@click.option("--payload", type=int, default=64, help="Payload size in bytes.")
@click.option("--rate", type=float, help="Total messages (or connects) per second; without it, as many as possible.")
@click.option("--seconds", "-s", type=float, default=5.0, help="Duration of the measurement in seconds.")
@click.option(
    "--messages",
    "-n",
    type=int,
    default=0,
    help="Measure this many messages (connects, retained messages) instead of a duration.",
)
@click.option("--version", "-V", type=int, default=4, help="Protocol version: 4 for MQTT 3.1.1, 5 for MQTT 5.0.")
@click.option("--persistent", is_flag=True, help="Use persistent sessions for the subscribers.")
@click.option("--sample", type=int, help="Measure the latency of one message in this many (101; with --rate 1).")
@click.option("--pid", type=int, help="Process id of the broker, to measure its CPU time and memory.")
@click.option("--spin", is_flag=True, help="Never sleep: steadier figures, but needs its own core.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as one JSON object.")
def bench(
    url: str | None,
    host: str,
    port: int,
    workload: str,
    pairs: int | None,
    publishers: int | None,
    subscribers: int | None,
    connections: int | None,
    qos: int,
    window: int | None,
    payload: int,
    rate: float | None,
    seconds: float,
    messages: int,
    version: int,
    persistent: bool,
    sample: int | None,
    pid: int | None,
    spin: bool,
    as_json: bool,
) -> int:
    """Put load on any MQTT broker and measure it.

    The load is a closed loop: a publisher has at most a window of outstanding messages, and continues when they have
    been received (and, with QoS 1 and 2, acknowledged). With --rate, messages are due at fixed times, and latency
    counts from the due time. The exit status is 1 if a message was lost, refused or out of order.
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
        click.echo(json.dumps(result.as_json(), indent=2))
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
    """Return the workload of this shape with the given numbers, and defaults for the others.

    Raises `Refusal` for a number that the shape does not use, `WorkloadError` for an invalid shape or number.
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
            raise Refusal(f"--{other} does not apply to --workload {shape}, which takes {does}")
    count = numbers.get(name) or count
    shapes: dict[str, dict[str, Any]] = {
        "pairs": {"publishers": count, "subscribers": count},
        "fan-in": {"publishers": count},
        "fan-out": {"subscribers": count},
        "connect": {"connections": count},
        "idle": {"connections": count},
        # The pair beside it must not be limited by its own window, and publishes at a fixed rate.
        "retained": {"rate": 2000.0, "window": 1000},
    }
    fields = shapes[shape]
    given_too: dict[str, Any] = {"rate": rate, "window": window}
    fields |= {key: value for key, value in given_too.items() if value is not None}
    sample_every = sample or (1 if fields.get("rate") else 101)
    return Workload(name=f"{shape} {count}" if name else shape, shape=shape, sample_every=sample_every, **fields)


@contextmanager
def progress_of(title: str) -> Iterator[Callable[[str, float, int], None]]:
    """Yield a function (phase, share done, operations) that updates a progress line on stderr, on a terminal only."""
    shown = sys.stderr.isatty()

    def update(phase: str, share: float, operations: int) -> None:
        if shown:
            print(f"{CLEAR_LINE}{title}: {phase} {share:4.0%} {operations:,}", end="", file=sys.stderr, flush=True)

    try:
        yield update
    finally:
        if shown:
            print(CLEAR_LINE, end="", file=sys.stderr, flush=True)


def print_result(result: LoadResult, target: Target) -> None:
    """Print the failures, and the figures as a table if there are any."""
    for text in result.texts:
        click.secho(f"  {text}", fg="red")
    if not result.seconds:
        return
    load = result.workload
    flow = f"QoS {load.qos}, window {load.window}, {load.payload_bytes} bytes"
    protocol = "MQTT 5.0" if load.version == 5 else "MQTT 3.1.1"
    what = load.name if load.shape in {"connect", "idle"} else f"{load.name}, {flow}"
    kept = ", persistent sessions" if load.persistent else ""
    print(f"{what}{kept}, {protocol}, {target.host}:{target.port}")
    grid = Grid()
    for name, value in result.rows():
        grid.add(name, value, loud=name.startswith("FAULT"))
    grid.print()
