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

# What differs between the nodes, or is told to all of them already: the same for each would be taken, and be wrong.
OWN: Final = {
    "node_id": "the nodes are called n1, n2 and so on",
    "data": "each node has a folder of its own in the --data before the --",
    "admin": "each node has a port of its own; --admin-port before the -- chooses the first",
    "peer": "each node has a port of its own, which its line `ready` tells",
    "advertise": "each node has an address of its own",
    "replicas": "it stands before the --",
}


@click.command()
@click.option("--nodes", type=click.IntRange(min=1, max=64), default=3, help="How many nodes.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=Path("folkmoot-cluster"),
    help="Folder with a folder for each node.",
)
@click.option("--replicas", type=click.IntRange(min=1, max=16), default=3, help="Copies of everything that is stored.")
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65_535),
    default=0,
    help="MQTT port of the first node, the others have the next ones; 0: any.",
)
@click.option(
    "--admin-port",
    type=click.IntRange(min=0, max=65_535),
    default=0,
    help="Admin port of the first node, the others have the next ones; 0: any.",
)
@click.option("--restart", is_flag=True, help="Start a node again when it has died.")
@click.argument("arguments", nargs=-1, metavar="[-- OPTIONS]", help="What each `folkmoot serve` is told besides.")
def cluster(
    nodes: int, data: Path, replicas: int, port: int, admin_port: int, restart: bool, arguments: tuple[str, ...]
) -> int:
    """Run a cluster of N nodes on loopback until Ctrl-C, which stops them all.

    Node K has its data in DATA/nK, and the same ports as last time if they are free. Standard output says where each
    node serves, and when all have found together; standard error is one log, with the name of the node before each
    line. When a node dies the others go on.
    """
    for option, first in (("--port", port), ("--admin-port", admin_port)):
        if first + nodes - 1 > 65_535:
            raise Refusal(f"{option} {first}: the last port is 65535, and {nodes} nodes need as many from there on")
    if port and admin_port and abs(port - admin_port) < nodes:
        raise Refusal(f"--port {port} and --admin-port {admin_port}: {nodes} nodes need {nodes} ports of each kind")
    from folkmoot.cli.local import LocalCluster
    from folkmoot.cli.serve import serve

    # Wrong options are told once, and not by each node.
    given = serve.make_context("folkmoot serve", list(arguments)).params
    for name, why in OWN.items():
        if given[name] is not None:
            raise Refusal(f"-- --{name.replace('_', '-')}: leave it out, {why}")
    hold = Hold(data)
    try:
        places = find_places(data, nodes, {"mqtt": port, "admin": admin_port})
        if absent := left_out(data, nodes):
            names = ", ".join(absent)
            print(f"note: {names} not started, though {data} has data of it: the others wait for it", file=sys.stderr)

        async def run() -> int:
            return await LocalCluster(data, places, replicas, arguments, restart).run()

        return asyncio.run(run())
    finally:
        hold.close()
