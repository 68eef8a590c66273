"""`folkmoot partitions`: who leads, follows and fills each partition."""

from __future__ import annotations

import click

from folkmoot.cli.admin import admin_option, connect, json_option, named, print_json, token_option
from folkmoot.cli.error import Refusal
from folkmoot.cli.grid import Grid

__all__ = ["partitions"]


@click.command()
@click.option("--node", default="", show_default=False, help="Only those that this node has or gets.")
@admin_option
@token_option
@json_option
def partitions(node: str, admin: tuple[str, ...], token: str | None, as_json: bool) -> int:
    """List the partitions.

    "sequence" is that of the copy of the node that answers, and so is "state": open (it leads and serves), opening
    (it takes over), elsewhere (another node leads); "refuses" is added where the disk of the leader is full.
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
