"""`folkmoot evict`: removes a node from the view at once."""

from __future__ import annotations

import click

from folkmoot.cli.admin import admin_option, connect, token_option

__all__ = ["evict"]


@click.command()
@click.argument("node", help="The member to remove.")
@click.option("--force", is_flag=True, help="Evict even if the node has the only copies, or no majority is left.")
@admin_option
@token_option
def evict(node: str, force: bool, admin: tuple[str, ...], token: str | None) -> int:
    """Remove NODE from the view, as if it had died: the others lead its partitions and copy its data.

    Use this for a node that answers but does harm. The node keeps its data, and becomes a member again after a restart.
    The command is refused (status 2) if NODE has the only copy of a partition, or if the split policy requires a
    majority and none is left.
    """
    connect(admin, token).evict(node, force)
    print(f"{node}: the others go on without it as soon as they have agreed; see `folkmoot status`")
    return 0
