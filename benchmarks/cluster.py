"""Three nodes: what a replica costs, which role costs what, and what a hop from node to node costs.

Owns this section's runs and tables. The peer in each table is one node alone on the same machine in the same run.
Nodes and load generator share all cores, as the clients of a small cluster do; nothing is held to a core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks import server
from benchmarks.nodes import Cluster, Nodes
from benchmarks.rounds import Bench, Figures, median, summary
from benchmarks.spread import PlacedRun, Placement
from benchmarks.table import faults, markdown, milliseconds, number, plain, times, with_spread
from folkmoot.client.loadresult import LoadResult
from folkmoot.client.workload import Workload

PUBLISHERS = 30
WINDOW = 50
PAYLOAD_BYTES = 256
# What a busy but not a full cluster has: the latency there is the one that a user sees.
STEADY_RATE = 15_000.0
KEPT = Workload(
    name="persistent QoS 1",
    qos=1,
    publishers=PUBLISHERS,
    subscribers=PUBLISHERS,
    window=WINDOW,
    payload_bytes=PAYLOAD_BYTES,
    persistent=True,
    sample_every=7,
)
STEADY = replace(KEPT, name="persistent QoS 1, 15,000 a second", rate=STEADY_RATE)
HOPS = tuple(
    Workload(name=f"QoS {qos}, 10 pairs, window 50", qos=qos, publishers=10, subscribers=10, window=50)
    for qos in (0, 1)
)
ROLES = ("publisher's node", "leader of the session", "subscriber's node")
REPLICAS = (1, 2, 3)
ALONE = "one node alone"
HERE, THERE = "same node", "another node"


def run(bench: Bench) -> Figures:
    """Measure one node alone, then three with one to three replicas; return figures by table."""
    kept: Figures = {}
    roles: Figures = {}
    hops: Figures = {}
    alone = server.folkmoot(bench.fresh("alone"), None, "--durability", "fsync")
    try:
        place = Placement([alone.target.port], [alone.target.port], {ALONE: alone.pid})
        kept[ALONE] = {load.name: measure(bench, load, place, ALONE) for load in (KEPT, STEADY)}
        hops[ALONE] = {load.name: measure(bench, load, place, ALONE) for load in HOPS}
    finally:
        alone.stop()
    for replicas in REPLICAS:
        nodes = Nodes(bench.fresh(f"replicas-{replicas}"), 3, replicas, "--durability", "fsync")
        try:
            name = named(replicas)
            kept[name] = {load.name: measure(bench, load, everywhere(nodes), name) for load in (KEPT, STEADY)}
            roles[name] = measure(bench, KEPT, apart(nodes), f"{name}, roles apart")
            if replicas == 3:
                for where, place in ((HERE, pair(nodes, 0, 0)), (THERE, pair(nodes, 0, 1))):
                    hops[where] = {load.name: measure(bench, load, place, where) for load in HOPS}
        finally:
            nodes.stop()
    return {"kept": kept, "roles": roles, "hops": hops}


def named(replicas: int) -> str:
    return f"three nodes, {replicas} {'copy' if replicas == 1 else 'copies'}"


def everywhere(nodes: Cluster) -> Placement:
    """All clients on all nodes: publisher and subscriber of a pair are at different ones."""
    ports = list(nodes.mqtt_ports().values())
    return Placement(ports, ports[1:] + ports[:1], nodes.pids())


def apart(nodes: Nodes) -> Placement:
    """Publishers at n1, sessions led by n2, subscribers at n3."""
    leaders = nodes.leaders()
    wanted = frozenset(number for number, leader in enumerate(leaders) if leader == nodes.names[1])
    publishers, subscribers = nodes.ports["n1"]["mqtt"], nodes.ports["n3"]["mqtt"]
    return Placement([publishers], [subscribers], nodes.pids(), len(leaders), wanted)


def pair(nodes: Nodes, publishers: int, subscribers: int) -> Placement:
    """Publishers at one node, subscribers at one."""
    ports = list(nodes.mqtt_ports().values())
    return Placement([ports[publishers]], [ports[subscribers]], nodes.pids())


def measure(bench: Bench, load: Workload, place: Placement, name: str) -> Figures:
    """Run a workload once a round; return the figures."""
    results: list[LoadResult] = []
    for round_number in range(bench.rounds):
        bench.note(f"{load.name} - {name}, round {round_number + 1} of {bench.rounds}")
        results.append(PlacedRun(load, place, bench.span).run())
    return summary(results)


def table(figures: Figures) -> str:
    """Return three tables: the cost of a replica, of each role, of a hop."""
    parts = [kept_table(figures["kept"]), roles_table(figures["roles"]), hops_table(figures["hops"])]
    found = []
    for name, by in [*figures["kept"].items(), *figures["hops"].items()]:
        found += [line for load, one in by.items() for line in faults(f"{name}, {load}", one)]
    for name, one in figures["roles"].items():
        found += faults(f"{name}, roles apart", one)
    return "\n\n".join(part for part in (*parts, "\n".join(found)) if part)


def kept_table(figures: Figures) -> str:
    head = [
        f"persistent, QoS 1 in and out, {PAYLOAD_BYTES} bytes",
        "messages/s",
        "CPU us/message, all nodes",
        "against one node",
        f"asked for {STEADY_RATE:,.0f}/s: got",
        "CPU us/message then",
        "PUBACK p50 ms",
        "PUBACK p99 ms",
        "delivered p99 ms",
        "generator busy %",
    ]
    rows: list[Sequence[str]] = []
    alone = figures[ALONE][KEPT.name]
    for name, by in figures.items():
        full, steady = by[KEPT.name], by[STEADY.name]
        rows.append(
            [
                name,
                with_spread(full, "per_second"),
                with_spread(full, "cpu_us"),
                cost(full, alone),
                plain(steady, "per_second"),
                plain(steady, "cpu_us"),
                *(seen(steady, key) for key in ("ack_p50_us", "ack_p99_us", "p99_us")),
                plain(full, "generator_share", 100),
            ]
        )
    return markdown(head, rows)


def roles_table(figures: Figures) -> str:
    head = ["CPU us/message of each node, roles apart", *ROLES]
    rows = [[name, *(plain(by, f"cpu_us n{at}") for at in (1, 2, 3))] for name, by in figures.items()]
    return markdown(head, rows)


def hops_table(figures: Figures) -> str:
    head = ["transient, subscriber at", "load", "messages/s", "CPU us/message, all nodes", "against one node", "p50 us"]
    rows = [
        [
            where,
            load.name,
            plain(by[load.name], "per_second"),
            with_spread(by[load.name], "cpu_us"),
            cost(by[load.name], figures[ALONE][load.name]),
            plain(by[load.name], "p50_us"),
        ]
        for load in HOPS
        for where, by in figures.items()
    ]
    return markdown(head, rows)


def seen(figures: Figures, name: str) -> str:
    """Return a latency in milliseconds, a dash where no message was timed."""
    return milliseconds(figures, name) if median(figures, name) else "-"


def cost(figures: Figures, alone: Figures) -> str:
    """Return how many times the CPU of one node alone a message takes."""
    if times(figures, alone, "cpu_us") == "-":
        return "-"
    return f"{number(median(figures, 'cpu_us') / median(alone, 'cpu_us'))} x"
