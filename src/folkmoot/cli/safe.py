"""`folkmoot safe-to-stop`: whether a node can be stopped now without leaving too few copies of anything."""

from __future__ import annotations

import click

from folkmoot.cli.admin import admin_option, connect, json_option, print_json, token_option

__all__ = ["safe_to_stop"]


@click.command()
@click.argument("node", help="The node that is to be stopped.")
@admin_option
@token_option
@json_option
def safe_to_stop(node: str, admin: tuple[str, ...], token: str | None, as_json: bool) -> int:
    """Say whether NODE can be stopped: exit status 0 if so, 1 if not, 2 if nobody could tell.

    It can when every partition that it has stays open and keeps all its other copies. While one node is away, no other
    can be stopped; one that will never come back is first to be forgotten (`folkmoot forget`).
    """
    found = connect(admin, token).safe_to_stop(node)
    if as_json:
        print_json(found)
    else:
        print(f"{'yes' if found['safe'] else 'no'}: {found['why']}")
    return 0 if found["safe"] else 1
