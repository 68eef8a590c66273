"""`folkmoot heals`: what was merged, kept and dropped when the sides of a split met again."""

from __future__ import annotations

import click

from folkmoot.cli.admin import admin_option, connect, json_option, print_json, token_option
from folkmoot.cli.status import heal_text

__all__ = ["heals"]


@click.command()
@admin_option
@token_option
@json_option
def heals(admin: tuple[str, ...], token: str | None, as_json: bool) -> int:
    """List the summaries of the newest heals, at most 64, newest last; every member has all of them."""
    found = connect(admin, token).heals()
    if as_json:
        print_json(found)
        return 0
    for heal in found:
        print(heal_text(heal))
    if not found:
        print("no heals: nothing has been merged")
    return 0
