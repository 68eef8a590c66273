"""`folkmoot forget`: have the cluster expect a node no more."""

from __future__ import annotations

import click

from folkmoot.cli.admin import admin_option, connect, token_option

__all__ = ["forget"]


@click.command()
@click.argument("node", help="The node that will not come back.")
@click.option("--force", is_flag=True, help="Also when it runs, or has the only copies of something.")
@admin_option
@token_option
def forget(node: str, force: bool, admin: tuple[str, ...], token: str | None) -> int:
    """Expect NODE no more: it was a member, is away, and will not come back with its data.

    Until then it counts for a majority, for `safe-to-stop`, and deletions are remembered for it. If it comes back all
    the same, it joins as a new node. Refused (status 2) when NODE runs and is heard, or when it has the only copies of
    something: with --force these are lost.
    """
    connect(admin, token).forget(node, force)
    print(f"{node}: forgotten as soon as the others have agreed; `folkmoot status` shows it no more then")
    return 0
