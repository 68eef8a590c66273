"""`folkmoot safe-to-stop`: checks whether a node can be stopped now and enough copies of all data remain."""

from __future__ import annotations

import click

from folkmoot.cli.admin import admin_option, connect, json_option, print_json, token_option

__all__ = ["safe_to_stop"]


@click.command()
@click.argument("node", help="The node to stop.")
@admin_option
@token_option
@json_option
def safe_to_stop(node: str, admin: tuple[str, ...], token: str | None, as_json: bool) -> int:
    """Check whether NODE can be stopped: exit status 0 for yes, 1 for no, 2 if no node could answer.

    NODE can be stopped if each of its partitions stays open and keeps all other copies. While one node is absent, no
    other node can be stopped; if it will never come back, forget it first (`folkmoot forget`).
    """
    found = connect(admin, token).safe_to_stop(node)
    if as_json:
        print_json(found)
    else:
        print(f"{'yes' if found['safe'] else 'no'}: {found['why']}")
    return 0 if found["safe"] else 1
