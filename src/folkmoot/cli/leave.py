"""`folkmoot leave`: makes a node hand over its partitions and leave for good, and shows the progress."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from folkmoot.cli.admin import admin_option, connect, size_text, token_option

__all__ = ["leave", "progress"]

POLL_S: Final = 0.5
AGAIN_S: Final = 5.0
AWAY: Final = "away"


@click.command()
@click.argument("node", help="The member to leave.")
@click.option("--wait/--no-wait", default=True, help="Wait until the node has left, and show its progress.")
@click.option("--undo", is_flag=True, help="Take the order back: the node stays, and gets its share again.")
@admin_option
@token_option
def leave(node: str, wait: bool, undo: bool, admin: tuple[str, ...], token: str | None) -> int:
    """Make NODE hand over its partitions and leave the cluster; its process then ends with status 0.

    Clients notice nothing until the end, when the clients of NODE are told to connect elsewhere. What only NODE and
    nodes that are away have, it keeps until they are back or replaced. Until it is gone, the order can be taken back
    (--undo). The exit status is 0 if NODE has left (with --no-wait: was told to leave; with --undo: was told to stay),
    1 if it has not left, and 2 if the order was refused.
    """
    from folkmoot.client.problem import Unreachable

    client = connect(admin, token)
    if undo:
        client.stay(node)
        print(f"{node} stays, and gets its share of the partitions again")
        return 0
    client.leave(node)
    found = client.status()
    stay = [one["id"] for one in found["nodes"] if one["state"] == "active" and one["id"] != node]
    if len(stay) < found["replicas"]:
        names = ", ".join(stay)
        print(f"only {names} will be left: there will be fewer copies than the {found['replicas']} that are wanted")
    if not wait:
        print(f"{node}: told to leave; `folkmoot status` shows how far it is")
        return 0
    shown = ""
    began = False
    asked_s = time.monotonic()
    while True:
        entry = next((one for one in found["nodes"] if one["id"] == node), None)
        if entry is None:
            print(f"{node} has left: nothing depends on it any more")
            return 0
        began = began or entry["state"] == "leaving"
        if not began and time.monotonic() - asked_s > AGAIN_S:  # the node that took the order may have died
            client.leave(node)
            asked_s = time.monotonic()
        line, over = progress(found, entry, began)
        if line != shown:
            print(line, flush=True)
            shown = line
        if over:
            return 1
        time.sleep(POLL_S)
        try:
            found = client.status()
        except Unreachable:
            if entry["leads"] or entry["follows"]:
                raise
            print(f"{node} had handed over everything, and none of the addresses answers any more")
            return 0


def progress(found: dict[str, Any], entry: dict[str, Any], began: bool) -> tuple[str, bool]:
    """Return the progress of a leaving node as text, and whether it cannot make more progress by itself."""
    node = entry["id"]
    if entry["state"] == AWAY:
        return f"{node} is away: start it again, or give it up: folkmoot forget {node}", True
    if entry["state"] != "leaving":
        return (
            (f"{node} stays: nobody would be left, or the order was taken back", True)
            if began
            else (f"{node} is told", False)
        )
    only = sum(len(one["partitions"]) for one in found["copies_missing"] if node in one["nodes"])
    if entry["why"] and only:
        cost = f"{node} is away ({entry['why']}), and nobody else has what {only} partitions had: it goes on when it"
        return f"{cost} comes back. If it does not: folkmoot forget {node} --force", True
    absent = [one["id"] for one in found["nodes"] if one["state"] == AWAY]
    line = f"{node} leads {entry['leads']} partitions and follows {entry['follows']}"
    if not entry["leads"] and not entry["follows"]:
        return f"{node} has handed over everything and says goodbye to its clients", False
    if absent:
        return f"{line}; it keeps what only it and {' and '.join(absent)} (away) have", False
    copy = found["copy"]
    if copy["all_left"]:
        line += f"; {size_text(copy['all_left'])} to copy"
        if copy["all_rate"]:
            line += f", {size_text(copy['all_rate'])} a second"
    return line, False
