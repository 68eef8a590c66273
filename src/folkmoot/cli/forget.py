"""`folkmoot forget`: have the cluster expect a node no more."""

from __future__ import annotations

import typer

from folkmoot.cli.admin import ADMIN, TOKEN, connect

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command()
def forget(
    node: str = typer.Argument(help="The node that will not come back."),
    force: bool = typer.Option(False, "--force", help="Also when it runs, or has the only copies of something."),
    admin: list[str] = ADMIN,
    token: str | None = TOKEN,
) -> int:
    """Expect NODE no more: it was a member, is away, and will not come back with its data.

    Until then it counts for a majority, for `safe-to-stop`, and deletions are remembered for it. If it comes back all
    the same, it joins as a new node. Refused (status 2) when NODE runs and is heard, or when it has the only copies of
    something: with --force these are lost.
    """
    connect(admin, token).forget(node, force)
    print(f"{node}: forgotten as soon as the others have agreed; `folkmoot status` shows it no more then")
    return 0
