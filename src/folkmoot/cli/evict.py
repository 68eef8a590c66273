"""`folkmoot evict`: has a node be away at once, until it is started again."""

from __future__ import annotations

import click

from folkmoot.cli.admin import admin_option, connect, token_option

__all__ = ["evict"]


@click.command()
@click.argument("node", help="The member to remove.")
@click.option("--force", is_flag=True, help="Evict even if the node has the only copies.")
@admin_option
@token_option
def evict(node: str, force: bool, admin: tuple[str, ...], token: str | None) -> int:
    """Put NODE out, as if it had died: the others lead its partitions and copy its data.

    Use this for a node that answers but does harm. It stays a member, keeps its data, and comes up again after a
    restart. The command is refused (status 2) if NODE has the only copy of a partition.
    """
    connect(admin, token).evict(node, force)
    print(f"{node}: the others go on without it as soon as they have agreed; see `folkmoot status`")
    return 0
