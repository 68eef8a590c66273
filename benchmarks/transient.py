"""The data path: seven workloads on transient sessions.

Owns this section's runs and table. The goals are 1.5 times what a prototype of the data path took that had no
properties, no access rules and no checks, on a machine of the same kind.
"""

from __future__ import annotations

from benchmarks import server
from benchmarks.rounds import Bench, Figures, median
from benchmarks.table import faults, markdown, number, plain, times, with_spread
from folkmoot.client.workload import TRANSIENT

PROTOTYPE_US = (0.37, 0.17, 0.86, 11.0, 0.62, 1.15, 0.09)
GOAL_FACTOR = 1.5


def run(bench: Bench) -> Figures:
    """Measure Folkmoot, Mosquitto and the floor; return figures by workload and broker."""
    core = bench.cores.broker
    servers = [server.folkmoot(bench.fresh("transient"), core)]
    try:
        if server.mosquitto_path():
            servers.append(server.mosquitto(bench.fresh("transient"), core, "persistence false"))
        servers.append(server.floor(bench.fresh("transient"), core))
        figures: Figures = {}
        for load in TRANSIENT:
            # The floor knows no acknowledgements.
            able = [one for one in servers if load.qos == 0 or one.name != server.FLOOR]
            figures[load.name] = bench.compare(able, load)
        return figures
    finally:
        for one in servers:
            one.stop()


def table(figures: Figures) -> str:
    """Return CPU per message of all brokers, ratio and goal; then throughput and latency."""
    head = ["CPU us per delivered message", "Folkmoot", "Mosquitto", "ratio", "floor", "goal"]
    costs, flows, found = [], [], []
    for load, prototype in zip(TRANSIENT, PROTOTYPE_US, strict=True):
        by = figures.get(load.name, {})
        own, peer, least = by.get(server.FOLKMOOT), by.get(server.MOSQUITTO), by.get(server.FLOOR)
        goal = prototype * GOAL_FACTOR
        met = "" if not own or median(own, "cpu_us") <= goal else " (missed)"
        costs.append(
            [
                load.name,
                with_spread(own, "cpu_us"),
                with_spread(peer, "cpu_us"),
                times(own, peer, "cpu_us"),
                plain(least, "cpu_us"),
                f"{number(goal)}{met}",
            ]
        )
        flows.append(
            [
                load.name,
                *(plain(one, "per_second") for one in (own, peer)),
                *(plain(one, name) for name in ("p50_us", "p99_us") for one in (own, peer)),
                plain(own, "generator_share", 100),
            ]
        )
        for name, one in by.items():
            found += faults(f"{name}, {load.name}", one)
    second = [
        "delivered, latency",
        "Folkmoot /s",
        "Mosquitto /s",
        "Folkmoot p50 us",
        "Mosquitto p50 us",
        "Folkmoot p99 us",
        "Mosquitto p99 us",
        "generator busy %",
    ]
    return "\n\n".join(part for part in (markdown(head, costs), markdown(second, flows), "\n".join(found)) if part)
