"""`folkmoot stream`: lists streams, and reads one as lines of text or JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from heapq import merge
from typing import TYPE_CHECKING, Final

import click

from folkmoot.cli.admin import size_text, url_option
from folkmoot.cli.error import Refusal
from folkmoot.cli.grid import Grid

if TYPE_CHECKING:
    from folkmoot.client.position import Position
    from folkmoot.client.streams import StreamClient, StreamInfo
    from folkmoot.store.record import Entry

__all__ = ["stream"]

POLL_S: Final = 0.2
# A Ctrl-C just before Python waits for an answer takes effect only after the answer, so the wait is short.
WAIT_MS: Final = 1_000
PATIENCE_S: Final = 10.0


@click.group(no_args_is_help=True)
def stream() -> None:
    """List the streams of a node, or read one."""


token_option = click.option(
    "--token", envvar="FOLKMOOT_TOKEN", show_envvar=True, help="Admin token of the nodes, if they have one."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@stream.command("list")
@url_option
@token_option
@json_option
def list_streams(url: str, token: str | None, as_json: bool) -> int:
    """List the streams: filter, partitions, records, size, times, retention."""
    client = connect(url, token)
    streams = client.streams()
    if as_json:
        for info in streams:
            print(json.dumps(summary(info), ensure_ascii=False))
        return 0
    if not streams:
        print(f"no streams: start the node with --stream NAME=FILTER ({url})")
        return 0
    titles = ("partitions", "records", "size", "oldest", "latest", "kept for", "kept up to")
    grid = Grid("stream", "filter", *titles, right=titles)
    for info in streams:
        grid.add(*row(info))
    grid.print()
    return 0


@stream.command("read")
@click.argument("name", help="The stream.")
@click.option("--from", "start", default="earliest", help="Start: earliest, latest, an OFFSET, or a TIME (RFC 3339).")
@click.option(
    "--to",
    "end",
    default="",
    show_default=False,
    help="End (exclusive): latest, an OFFSET, or a TIME. [default: latest]",
)
@click.option("--partition", type=click.IntRange(min=0), help="Read only this stream partition.")
@click.option("--follow", "-f", is_flag=True, help="Continue with new records until Ctrl-C.")
@url_option
@token_option
@json_option
def read_stream(
    name: str, start: str, end: str, partition: int | None, follow: bool, url: str, token: str | None, as_json: bool
) -> int:
    """Print the records of stream NAME, ordered by time.

    Without --json, a line has partition:offset, time, topic and payload, separated by tabs.
    """
    if follow and end:
        raise Refusal("--follow never ends and --to ends: give only one of them")
    begin, stop = position("--from", start), position("--to", end or "latest")
    client = connect(url, token)
    info = client.describe(name)
    check_offsets(begin, stop, info)
    at, until = begin.resolve(client, info), stop.resolve(client, info)
    for part in info.ranges:
        until[part.partition] = min(until[part.partition], part.next)
    if partition is not None:
        if partition not in at:
            raise Refusal(f"stream {name} has partitions 0 to {info.partitions - 1}, not {partition}")
        at, until = {partition: at[partition]}, {partition: until[partition]}
    show = show_json if as_json else show_text
    try:
        print_range(client, name, at, until, show)
        if follow:
            go_on(client, name, {index: max(at[index], until[index]) for index in at}, show)
    except BrokenPipeError:
        # The reader of the output is gone; without this, Python would report it again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    return 0


def connect(url: str, token: str | None) -> StreamClient:
    """Return a client of the nodes at `url`; raises Refusal for an invalid address."""
    from folkmoot.client.streams import StreamClient

    try:
        return StreamClient(url, token, PATIENCE_S)
    except ValueError as error:
        raise Refusal(f"--url: {error}") from None


def position(option: str, text: str) -> Position:
    """Return the position in `text`; raises Refusal, naming `option`, if it is invalid."""
    from folkmoot.client.position import Position

    try:
        return Position.parse(text)
    except ValueError as error:
        raise Refusal(f"{option}: {error}") from None


def check_offsets(begin: Position, stop: Position, info: StreamInfo) -> None:
    """Refuse an empty range of offsets, because no output would look like a stream without records."""
    from folkmoot.client.position import OFFSET

    if begin.kind != OFFSET:
        return
    if stop.kind == OFFSET and begin.number >= stop.number:
        raise Refusal(f"--from {begin.number} is not before --to {stop.number}: the record at --to is not printed")
    end = max([part.next for part in info.ranges], default=0)
    if begin.number > end:
        raise Refusal(f"--from {begin.number}: no partition of the stream {info.name} has more than {end} offsets yet")


Show = Callable[[int, "Entry"], None]


def print_range(client: StreamClient, name: str, at: dict[int, int], until: dict[int, int], show: Show) -> None:
    """Print the records of all stream partitions between `at` and `until`, merged by time."""

    def keyed(index: int) -> Iterator[tuple[int, int, int, Entry]]:
        for entry in client.entries(name, index, at[index], until[index]):
            yield entry.time_us, index, entry.offset, entry

    for _time, index, _offset, entry in merge(*[keyed(index) for index in at if at[index] < until[index]]):
        show(index, entry)


def go_on(client: StreamClient, name: str, at: dict[int, int], show: Show) -> None:
    """Print new records forever: wait at a single stream partition, poll the ends of several."""
    while True:
        sys.stdout.flush()
        if len(at) == 1:
            for index, offset in list(at.items()):
                for entry in client.entries(name, index, offset, wait_ms=WAIT_MS):
                    show(index, entry)
                    at[index] = entry.offset + 1
            continue
        ends = {part.partition: part.next for part in client.describe(name).ranges if part.partition in at}
        if any(ends[index] > at[index] for index in ends):
            print_range(client, name, at, ends, show)
            at.update({index: max(end, at[index]) for index, end in ends.items()})
        else:
            time.sleep(POLL_S)


def show_json(partition: int, entry: Entry) -> None:
    """Print a record as a line of JSON."""
    from folkmoot.client.entry import entry_object

    print(json.dumps(entry_object(partition, entry), ensure_ascii=False))


def show_text(partition: int, entry: Entry) -> None:
    """Print a record as a line of text; a payload that is not UTF-8 in hexadecimal."""
    from folkmoot.client.entry import rfc3339

    record = entry.record
    try:
        payload = record.payload.decode()
    except UnicodeDecodeError:
        payload = "0x" + record.payload.hex()
    if not payload.isprintable():
        payload = repr(payload)[1:-1]
    topic = record.topic.decode("utf-8", "replace")
    print(f"{partition}:{entry.offset}\t{rfc3339(entry.time_us)}\t{topic}\t{payload}")


def summary(info: StreamInfo) -> dict[str, object]:
    """Return a stream as one JSON object."""
    return {
        "name": info.name,
        "filter": info.filter,
        "partitions": info.partitions,
        "records": sum(part.next - part.oldest for part in info.ranges),
        "bytes": sum(part.bytes for part in info.ranges),
        "retention_us": info.retention_us,
        "retention_bytes": info.retention_bytes,
        "ranges": [vars(part) for part in info.ranges],
    }


def row(info: StreamInfo) -> list[str]:
    """Return a stream as a row of the table."""
    from folkmoot.client.entry import rfc3339
    from folkmoot.config.unit import format_duration

    oldest = [part.oldest_time_us for part in info.ranges if part.oldest_time_us is not None]
    latest = [part.latest_time_us for part in info.ranges if part.latest_time_us is not None]
    return [
        info.name,
        info.filter,
        str(info.partitions),
        f"{sum(part.next - part.oldest for part in info.ranges):,}",
        size_text(sum(part.bytes for part in info.ranges)),
        rfc3339(min(oldest))[:19] + "Z" if oldest else "-",
        rfc3339(max(latest))[:19] + "Z" if latest else "-",
        format_duration(info.retention_us) if info.retention_us else "ever",
        size_text(info.retention_bytes) + " a partition" if info.retention_bytes else "-",
    ]
