"""`folkmoot heals`: what was merged, kept and dropped when parts of the cluster found together again."""

from __future__ import annotations

import typer

from folkmoot.cli.admin import ADMIN, JSON, TOKEN, connect, print_json
from folkmoot.cli.status import heal_text

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command()
def heals(admin: list[str] = ADMIN, token: str | None = TOKEN, as_json: bool = JSON) -> int:
    """List the summaries of the newest heals, at most 64, the newest last; every member has them all."""
    found = connect(admin, token).heals()
    if as_json:
        print_json(found)
        return 0
    for heal in found:
        print(heal_text(heal))
    if not found:
        print("no heals: nothing has been merged")
    return 0
