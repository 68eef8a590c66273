"""Retained messages: one wildcard subscription to very many, and what another pair feels of it.

Owns this section's runs and table. The pair publishes at a fixed rate, and its latency counts from when a message was
due, so that a broker that stands still for a while cannot hide it.
"""

from __future__ import annotations

from benchmarks import server
from benchmarks.rounds import Bench, Figures
from benchmarks.table import faults, markdown, milliseconds, plain
from folkmoot.client.workload import Span, Workload

MESSAGES = 100_000
MESSAGES_QUICK = 10_000
RATE = 2_000.0


def run(bench: Bench) -> Figures:
    """Measure with QoS 0 and QoS 1; return figures by QoS and broker."""
    count = MESSAGES_QUICK if bench.quick else MESSAGES
    figures: Figures = {"count": count}
    servers = [server.folkmoot(bench.fresh("retained"), bench.cores.broker)]
    try:
        if server.mosquitto_path():
            servers.append(server.mosquitto(bench.fresh("retained"), bench.cores.broker))
        for qos in (0, 1):
            load = Workload(
                f"{count:,} retained messages, QoS {qos}",
                shape="retained",
                qos=qos,
                window=2_000,
                rate=RATE,
                sample_every=1,
            )
            figures[f"qos{qos}"] = bench.compare(servers, load, Span(1.0, count))
        return figures
    finally:
        for one in servers:
            one.stop()


def table(figures: Figures) -> str:
    """Return one row per QoS and broker."""
    head = [
        "subscription, broker",
        "missing",
        "received/s",
        "CPU us each",
        "pair p99 before ms",
        "pair p99 meanwhile ms",
    ]
    rows, found = [], []
    for qos in (0, 1):
        for name, by in figures[f"qos{qos}"].items():
            cells = [plain(by, key) for key in ("topics_missing", "per_second", "cpu_us")]
            cells += [milliseconds(by, key) for key in ("before_p99_us", "p99_us")]
            rows.append([f"QoS {qos}, {name}", *cells])
            found += faults(f"{name}, QoS {qos}", by)
    return "\n\n".join(part for part in (markdown(head, rows), "\n".join(found)) if part)
