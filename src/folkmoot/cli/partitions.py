"""`folkmoot partitions`: the leader, followers and learners of each partition."""

from __future__ import annotations

import click

from folkmoot.cli.admin import admin_option, connect, json_option, named, print_json, token_option
from folkmoot.cli.error import Refusal
from folkmoot.cli.grid import Grid

__all__ = ["partitions"]


@click.command()
@click.option(
    "--node", default="", show_default=False, help="List only the partitions of which this node has or gets a copy."
)
@admin_option
@token_option
@json_option
def partitions(node: str, admin: tuple[str, ...], token: str | None, as_json: bool) -> int:
    """List the partitions.

    "sequence" and "state" describe the answering node: open (it leads and serves), opening (it takes over), elsewhere
    (another node leads). "refuses" is added if the disk of the leader is full.
    """
    client = connect(admin, token)
    found = client.partitions()
    if node:
        names = [one["id"] for one in client.status()["nodes"]]
        if node not in names:
            raise Refusal(f"there is no node {node!r}; there are: {', '.join(names) or 'none'}")
        found = [entry for entry in found if node in (*entry["replicas"], *entry["learners"])]
    if as_json:
        print_json(found)
        return 0
    titles = ("partition", "leader", "followers", "filling", "state", "epoch", "sequence")
    grid = Grid(*titles, right=("partition", "epoch", "sequence"))
    for entry in found:
        roles = [entry["leader"] or "-", named(entry["replicas"][1:]), named(entry["learners"])]
        state = entry["state"] + (" refuses" if entry["refuses"] else "")
        grid.add(str(entry["partition"]), *roles, state, str(entry["epoch"]), str(entry["sequence"]))
    grid.print()
    return 0
