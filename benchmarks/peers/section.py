"""Folkmoot, NATS JetStream and RabbitMQ under the same load: three nodes each, persistent sessions, QoS 1.

Owns this section's runs and tables. The clusters take turns, one runs at a time, and clients and nodes share all cores.
A broker that cannot be had on this machine is named, and the others are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchmarks.cluster import KEPT, PAYLOAD_BYTES, everywhere, seen
from benchmarks.peers.nats import Nats
from benchmarks.peers.outage import CONNECTED, DELIVERED, ELSEWHERE, run_outages
from benchmarks.peers.own import Own
from benchmarks.peers.peer import Missing, Peer
from benchmarks.peers.rabbitmq import Rabbitmq
from benchmarks.rounds import Bench, Figures, summary
from benchmarks.spread import PlacedRun
from benchmarks.table import faults, markdown, number, plain, with_spread
from folkmoot.client.loadresult import LoadResult
from folkmoot.client.workload import Span, Workload

__all__ = ["LOADS", "PEERS", "run", "table"]

PEERS: Final[tuple[Peer, ...]] = (Own(), Nats(), Rabbitmq())
RATES: Final = (100, 2_000, 15_000)
# A p99 of fewer messages than that says little.
SAMPLES: Final = 1_000
FULL: Final = KEPT
PACED: Final = {
    rate: replace(KEPT, name=f"{KEPT.name}, {rate:,} a second", rate=float(rate), sample_every=1) for rate in RATES
}
LOADS: Final[tuple[Workload, ...]] = (FULL, *PACED.values())


def run(bench: Bench) -> Figures:
    """Measure all brokers that can be had; return figures by broker."""
    figures: Figures = {"versions": {}, "missing": {}, "promises": {}}
    peers = available(bench, figures, PEERS)
    results: dict[str, dict[str, list[LoadResult]]] = {one.name: {load.name: [] for load in LOADS} for one in peers}
    for round_number in range(bench.rounds):
        for peer in peers if round_number % 2 == 0 else reversed(peers):
            bench.note(f"{peer.name}, round {round_number + 1} of {bench.rounds}: starting")
            cluster = peer.start(bench.fresh("peer"))
            try:
                for load in LOADS:
                    bench.note(f"{load.name} - {peer.name}, round {round_number + 1} of {bench.rounds}")
                    results[peer.name][load.name].append(PlacedRun(load, everywhere(cluster), span(bench, load)).run())
            finally:
                cluster.stop()
    figures["loads"] = {name: {load: summary(found) for load, found in by.items()} for name, by in results.items()}
    figures["outages"] = {}
    for peer in peers:
        cluster = peer.start(bench.fresh("outage"))
        try:
            figures["outages"][peer.name] = run_outages(bench, cluster, peer.name)
        finally:
            cluster.stop()
    if lost := figures["outages"].get(Own.name, {}).get("lost"):
        figures["faults"] = {"lost": lost}  # what others lose is a finding
    return figures


def available(bench: Bench, figures: Figures, peers: Sequence[Peer]) -> list[Peer]:
    """Return the brokers that can be had; note their versions, and what is missing for the others."""
    found = []
    for peer in peers:
        bench.note(f"obtaining {peer.name}")
        try:
            figures["versions"][peer.name] = peer.obtain()
        except Missing as error:
            figures["missing"][peer.name] = str(error)
            continue
        figures["promises"][peer.name] = peer.promise
        found.append(peer)
    return found


def span(bench: Bench, load: Workload) -> Span:
    """Return how long a load is measured: long enough at a low rate to have messages for a p99."""
    seconds = bench.seconds
    if load.rate and not bench.quick:
        seconds = max(seconds, SAMPLES / load.rate)
    return Span(seconds, 0, min(0.5, bench.seconds))


def table(figures: Figures) -> str:
    """Return who was measured, the speed, the latencies by rate, and the pauses after a kill."""
    parts = [
        brokers_table(figures),
        speed_table(figures["loads"]),
        latency_table(figures["loads"]),
        outage_table(figures["outages"]),
    ]
    found = [f"- {name} was not measured: {reason}" for name, reason in figures["missing"].items()]
    for name, kills in figures["outages"].items():
        if kills["sessions_lost"]:
            found.append(f"- {name}: {kills['sessions_lost']} sessions were gone when their client came back")
    for name, by in figures["loads"].items():
        found += [line for load, one in by.items() for line in faults(f"{name}, {load}", one)]
    return "\n\n".join(part for part in (*parts, "\n".join(found)) if part)


def brokers_table(figures: Figures) -> str:
    rows = [[name, version, figures["promises"][name]] for name, version in figures["versions"].items()]
    return markdown(["broker", "version", "PUBACK means: the message is"], rows)


def speed_table(loads: Figures) -> str:
    """As fast as it goes, and what a message costs then and at a low rate."""
    head = [
        f"persistent, QoS 1 in and out, {PAYLOAD_BYTES} bytes",
        "messages/s",
        "CPU us/message, all nodes",
        "delivered p99 ms",
        *(f"CPU us/message at {rate:,}/s" for rate in RATES),
    ]
    rows = []
    for name, by in loads.items():
        full = by[FULL.name]
        cells = [with_spread(full, "per_second"), with_spread(full, "cpu_us"), seen(full, "p99_us")]
        rows.append([name, *cells, *(plain(by[load.name], "cpu_us") for load in PACED.values())])
    return markdown(head, rows)


def latency_table(loads: Figures) -> str:
    """PUBACK at each rate: what of it the broker took, and the latencies."""
    head = ["asked for, broker", "got/s", "PUBACK p50 ms", "PUBACK p99 ms", "delivered p50 ms", "delivered p99 ms"]
    rows = [
        [
            f"{rate:,}/s, {name}",
            plain(by[load.name], "per_second"),
            *(seen(by[load.name], key) for key in ("ack_p50_us", "ack_p99_us", "p50_us", "p99_us")),
        ]
        for rate, load in PACED.items()
        for name, by in loads.items()
    ]
    return markdown(head, rows)


def outage_table(outages: Figures) -> str:
    """The pauses after kill -9, one row for each broker and kind; what was lost in the first row of a broker."""
    head = ["kill -9, broker", "pauses", "p50 ms", "p99 ms", "max ms", "not served", "acknowledged", "lost"]
    rows = []
    for name, found in outages.items():
        for why in (CONNECTED, ELSEWHERE, DELIVERED):
            pauses = found["pauses"][why]
            cells = [number(pauses[key]) if key in pauses else "-" for key in ("p50_ms", "p99_ms", "max_ms")]
            counts = [""] * 3
            if why == CONNECTED:
                counts = [f"{found[key]:,}" for key in ("stuck", "messages", "lost")]
            rows.append([f"{name}, {found['kills']} times: {why}", f"{pauses['count']:,}", *cells, *counts])
    return markdown(head, rows)
