"""`folkmoot evict`: have the others go on without a node, now."""

from __future__ import annotations

import typer

from folkmoot.cli.admin import ADMIN, TOKEN, connect

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command()
def evict(
    node: str = typer.Argument(help="The member that is to go."),
    force: bool = typer.Option(False, "--force", help="Also when it has the only copies, or no majority is left."),
    admin: list[str] = ADMIN,
    token: str | None = TOKEN,
) -> int:
    """Put NODE out of the view, as if it had died: the others lead what it led and copy what it had.

    For a node that answers and does harm. It keeps its data, and is taken in again when it is started anew. Refused
    (status 2) when NODE has the only copy of something, or no majority is left where the split policy asks for one.
    """
    connect(admin, token).evict(node, force)
    print(f"{node}: the others go on without it as soon as they have agreed; `folkmoot status` shows it")
    return 0
