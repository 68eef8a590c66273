"""Connections: what one costs that does nothing, and what it costs to come and go.

Owns this section's runs and table. A broker is fresh for the memory of idle connections: a heap that was large before
hides what it holds now.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks import server
from benchmarks.rounds import Bench, Figures, median, summary
from benchmarks.server import Server
from benchmarks.table import faults, markdown, number, plain, times, with_spread
from folkmoot.client.loadloop import raise_file_limit
from folkmoot.client.loadresult import LoadResult
from folkmoot.client.workload import Span, Workload

IDLE = 15_000
IDLE_QUICK = 2_000
FILES_RESERVED = 1_000
CALLERS = 20
HOLD_S = 3.0


def run(bench: Bench) -> Figures:
    """Measure the memory of idle connections and the cost of connecting; return figures by broker."""
    wanted = IDLE_QUICK if bench.quick else IDLE
    # Brokers inherit the limit and need some files of their own.
    count = min(wanted, raise_file_limit(wanted + FILES_RESERVED) - FILES_RESERVED)
    starts: dict[str, Callable[[Path, int | None], Server]] = {server.FOLKMOOT: server.folkmoot}
    if server.mosquitto_path():
        starts[server.MOSQUITTO] = server.mosquitto
    found: dict[str, list[LoadResult]] = {name: [] for name in starts}
    idle = Workload(f"{count:,} idle connections", shape="idle", connections=count)
    for number_of_round in range(bench.rounds):
        for name, start in starts.items():
            one = start(bench.fresh("idle"), bench.cores.broker)
            try:
                found[name].append(bench.run(one, idle, Span(HOLD_S), number_of_round + 1))
            finally:
                one.stop()
    return {
        "count": count,
        "idle": {name: summary(results) for name, results in found.items()},
        "connect": connects(bench),
    }


def connects(bench: Bench) -> Figures:
    """Measure connecting and disconnecting; return figures by broker."""
    servers = [server.folkmoot(bench.fresh("connect"), bench.cores.broker)]
    try:
        if server.mosquitto_path():
            servers.append(server.mosquitto(bench.fresh("connect"), bench.cores.broker))
        load = Workload(f"connect and disconnect, {CALLERS} at a time", shape="connect", connections=CALLERS)
        return bench.compare(servers, load)
    finally:
        for one in servers:
            one.stop()


def table(figures: Figures) -> str:
    """Return one row per figure, one column per broker."""
    idle, connect = figures["idle"], figures["connect"]
    resting = (idle.get(server.FOLKMOOT), idle.get(server.MOSQUITTO))
    calling = (connect.get(server.FOLKMOOT), connect.get(server.MOSQUITTO))
    names = (server.FOLKMOOT, server.MOSQUITTO)
    rows = [
        [
            f"bytes of memory per idle connection ({figures['count']:,})",
            *(with_spread(one, "bytes_per_connection") for one in resting),
            times(*resting, "bytes_per_connection"),
        ],
        [
            "share of a core with all of them idle, %",
            *(plain(one, "idle_share_of_core", 100) for one in resting),
            "",
        ],
        [
            "CPU us per connect, CONNACK and disconnect",
            *(with_spread(one, "cpu_us") for one in calling),
            times(*calling, "cpu_us"),
        ],
        ["so many a second on one core", *(number(1e6 / median(one, "cpu_us")) if one else "-" for one in calling), ""],
        ["connects a second seen", *(plain(one, "per_second") for one in calling), ""],
        ["CONNACK after, p50 us", *(plain(one, "p50_us") for one in calling), ""],
        ["CONNACK after, p99 us", *(plain(one, "p99_us") for one in calling), ""],
    ]
    found = [line for name in names for part in (idle, connect) for line in faults(name, part.get(name))]
    return "\n\n".join(part for part in (markdown(["", *names, "ratio"], rows), "\n".join(found)) if part)
