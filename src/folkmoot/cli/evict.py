"""`folkmoot evict`: have the others go on without a node, now."""

from __future__ import annotations

import click

from folkmoot.cli.admin import admin_option, connect, token_option

__all__ = ["evict"]


@click.command()
@click.argument("node", help="The member that is to go.")
@click.option("--force", is_flag=True, help="Also when it has the only copies, or no majority is left.")
@admin_option
@token_option
def evict(node: str, force: bool, admin: tuple[str, ...], token: str | None) -> int:
    """Put NODE out of the view, as if it had died: the others lead what it led and copy what it had.

    For a node that answers and does harm. It keeps its data, and is taken in again when it is started anew. Refused
    (status 2) when NODE has the only copy of something, or no majority is left where the split policy asks for one.
    """
    connect(admin, token).evict(node, force)
    print(f"{node}: the others go on without it as soon as they have agreed; `folkmoot status` shows it")
    return 0
