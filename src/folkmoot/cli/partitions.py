"""`folkmoot partitions`: who leads, follows and fills each partition."""

from __future__ import annotations

import typer

from folkmoot.cli.admin import ADMIN, JSON, TOKEN, connect, named, print_json, print_table
from folkmoot.cli.error import Refusal

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command()
def partitions(
    node: str = typer.Option("", "--node", help="Only those that this node has or gets."),
    admin: list[str] = ADMIN,
    token: str | None = TOKEN,
    as_json: bool = JSON,
) -> int:
    """List the partitions.

    "sequence" is that of the copy of the node that answers, and so is "state": open (it leads and serves), opening
    (it takes over), elsewhere (another node leads); "refuses" is added where the disk of the leader is full.
    """
    client = connect(admin, token)
    found = client.partitions()
    if node:
        names = [one["id"] for one in client.status()["nodes"]]
        if node not in names:
            raise Refusal(f"there is no node {node!r}; there are: {', '.join(names) or 'none'}")
        found = [entry for entry in found if node in (*entry["replicas"], *entry["learners"])]
    if as_json:
        print_json(found)
        return 0
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("partition", justify="right")
    for title in ("leader", "followers", "filling", "state"):
        table.add_column(title, no_wrap=True)
    for title in ("epoch", "sequence"):
        table.add_column(title, justify="right", no_wrap=True)
    for entry in found:
        roles = [entry["leader"] or "-", named(entry["replicas"][1:]), named(entry["learners"])]
        state = entry["state"] + (" refuses" if entry["refuses"] else "")
        table.add_row(str(entry["partition"]), *roles, state, str(entry["epoch"]), str(entry["sequence"]))
    print_table(table)
    return 0
