"""Persistent sessions with QoS 1: what an acknowledgement costs that means "on disk", and how publishers share it.

Owns this section's runs and table. Mosquitto keeps its sessions in memory and writes a file when it stops; there is no
setting under which it syncs before PUBACK, so its figures are here for scale and not for comparison.
"""

from __future__ import annotations

from benchmarks import server
from benchmarks.rounds import Bench, Figures
from benchmarks.table import faults, markdown, milliseconds, plain, with_spread
from folkmoot.client.workload import PERSISTENT

FSYNC = "Folkmoot, fsync"
OS = "Folkmoot, os"
MEMORY = "Mosquitto, in memory"


def run(bench: Bench) -> Figures:
    """Measure Folkmoot with both durabilities, and Mosquitto; return figures by workload and broker."""
    core = bench.cores.broker
    servers = [server.folkmoot(bench.fresh("persistent"), core, "--durability", "fsync")]
    try:
        servers[0].name = FSYNC
        servers.append(server.folkmoot(bench.fresh("persistent"), core, "--durability", "os"))
        servers[1].name = OS
        if server.mosquitto_path():
            folder = bench.fresh("persistent")
            servers.append(server.mosquitto(folder, core, f"persistence true\npersistence_location {folder}/"))
            servers[2].name = MEMORY
        return {load.name: bench.compare(servers, load) for load in PERSISTENT}
    finally:
        for one in servers:
            one.stop()


def table(figures: Figures) -> str:
    """Return one row per workload and broker."""
    head = [
        "publishers, window, broker",
        "messages/s",
        "CPU us/message",
        "PUBACK p50 ms",
        "PUBACK p99 ms",
        "delivered p99 ms",
    ]
    rows, found = [], []
    for load in PERSISTENT:
        for name in (FSYNC, OS, MEMORY):
            by = figures.get(load.name, {}).get(name)
            if by:
                cells = [plain(by, "per_second"), with_spread(by, "cpu_us")]
                cells += [milliseconds(by, key) for key in ("ack_p50_us", "ack_p99_us", "p99_us")]
                rows.append([f"{load.publishers}, {load.window}, {name}", *cells])
                found += faults(f"{name}, {load.name}", by)
    return "\n\n".join(part for part in (markdown(head, rows), "\n".join(found)) if part)
