"""`folkmoot cluster`: a cluster on this machine for everyday use; the nodes are processes, see `folkmoot.cli.local`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

import click

from folkmoot.cli.error import Refusal
from folkmoot.cli.place import Hold, find_places, left_out

__all__ = ["cluster"]

# Options that differ between the nodes, or that all nodes get already: one value for all nodes would be wrong.
OWN: Final = {
    "node_id": "the nodes are called n1, n2 and so on",
    "data": "each node has its own folder below the --data before the --",
    "admin": "each node has its own port; --admin-port before the -- sets the first one",
    "peer": "each node has its own port, which its line `ready` shows",
    "advertise": "each node has its own address",
    "replicas": "put it before the --",
}


@click.command()
@click.option("--nodes", type=click.IntRange(min=1, max=64), default=3, help="Number of nodes.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=Path("folkmoot-cluster"),
    help="Folder with one subfolder per node.",
)
@click.option("--replicas", type=click.IntRange(min=1, max=16), default=3, help="Number of copies of all stored data.")
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65_535),
    default=0,
    help="MQTT port of the first node; the others get the next ports; 0: any free port.",
)
@click.option(
    "--admin-port",
    type=click.IntRange(min=0, max=65_535),
    default=0,
    help="Admin port of the first node; the others get the next ports; 0: any free port.",
)
@click.option("--restart", is_flag=True, help="Restart a node that has died.")
@click.argument("arguments", nargs=-1, metavar="[-- OPTIONS]", help="Additional options for each `folkmoot serve`.")
def cluster(
    nodes: int, data: Path, replicas: int, port: int, admin_port: int, restart: bool, arguments: tuple[str, ...]
) -> int:
    """Run a cluster of N nodes on loopback until Ctrl-C, which stops all of them.

    Node K keeps its data in DATA/nK, and uses the same ports as last time if they are free. Standard output shows the
    addresses of each node, and when all nodes have formed the cluster. Standard error is one log, with the name of the
    node before each line. When a node dies, the others continue.
    """
    for option, first in (("--port", port), ("--admin-port", admin_port)):
        if first + nodes - 1 > 65_535:
            raise Refusal(f"{option} {first}: the last port is 65535, and {nodes} nodes need {nodes} ports")
    if port and admin_port and abs(port - admin_port) < nodes:
        raise Refusal(f"--port {port} and --admin-port {admin_port}: {nodes} nodes need {nodes} ports of each kind")
    from folkmoot.cli.local import LocalCluster
    from folkmoot.cli.serve import serve

    # Wrong options are reported once, not by each node.
    given = serve.make_context("folkmoot serve", list(arguments)).params
    for name, why in OWN.items():
        if given[name] is not None:
            raise Refusal(f"-- --{name.replace('_', '-')}: leave it out, {why}")
    hold = Hold(data)
    try:
        places = find_places(data, nodes, {"mqtt": port, "admin": admin_port})
        if absent := left_out(data, nodes):
            names = ", ".join(absent)
            print(f"note: {names} not started, but {data} has its data: the other nodes wait for it", file=sys.stderr)

        async def run() -> int:
            return await LocalCluster(data, places, replicas, arguments, restart).run()

        return asyncio.run(run())
    finally:
        hold.close()
