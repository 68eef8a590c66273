"""`folkmoot safe-to-stop`: whether a node can be stopped now without leaving too few copies of anything."""

from __future__ import annotations

import typer

from folkmoot.cli.admin import ADMIN, JSON, TOKEN, connect, print_json

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command()
def safe_to_stop(
    node: str = typer.Argument(help="The node that is to be stopped."),
    admin: list[str] = ADMIN,
    token: str | None = TOKEN,
    as_json: bool = JSON,
) -> int:
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
