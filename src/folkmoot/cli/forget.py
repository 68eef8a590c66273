"""`folkmoot forget`: removes a member that is away."""

from __future__ import annotations

import click

from folkmoot.cli.admin import admin_option, connect, token_option

__all__ = ["forget"]


@click.command()
@click.argument("node", help="The absent node that will not come back.")
@click.option("--force", is_flag=True, help="Forget even if the node runs, or something is lost with it.")
@admin_option
@token_option
def forget(node: str, force: bool, admin: tuple[str, ...], token: str | None) -> int:
    """Remove NODE from the members: it is away, and will not come back with its data.

    Until it is forgotten, it counts for `safe-to-stop`, may have a vote, and the cluster keeps deletions for it. If it
    does come back, it joins as a new node. The command is refused (status 2) if NODE runs and is connected, if it has
    the only copies of a partition, or if it has acknowledged changes on another side of a split that are not merged;
    with --force these are lost.

    Without a quorum of the voters nothing can be agreed. With --force the node that answers then remembers the order,
    until it ends, and its side goes on without the forgotten nodes as soon as the voters that are left are a majority
    of themselves. Only do this if the nodes are dead for sure: the others cannot know.
    """
    connect(admin, token).forget(node, force)
    print(f"{node}: forgotten as soon as the others have agreed; `folkmoot status` then no longer shows it")
    return 0
