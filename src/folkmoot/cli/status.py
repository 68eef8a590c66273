"""`folkmoot status`: an overview of the cluster, as the answering node sees it."""

from __future__ import annotations

from typing import Any, Final

import click

from folkmoot.cli.admin import admin_option, connect, json_option, print_json, size_text, token_option
from folkmoot.cli.grid import Grid

__all__ = ["status", "heal_text", "summary"]

FORKS_FEW: Final = 103  # a tenth of `ANCESTORS_MAX` (`membership/configuration`)

OUTSIDE: Final = {
    "waiting": "NOT UP: this node serves no clients yet, and has no information about the others",
    "excluded": "LEFT OUT: the cluster goes on without this node, which serves no clients; ask another node",
}


@click.command()
@admin_option
@token_option
@json_option
def status(admin: tuple[str, ...], token: str | None, as_json: bool) -> int:
    """Show the members, their roles, and the state of the data.

    If a node is dead or hangs, the next address is tried. "overload" ranges from 0 to 10. "leads" and "follows" count
    partitions; "fills" counts the partitions that are being copied to the node.
    """
    found = connect(admin, token).status()
    if as_json:
        print_json(found)
        return 0
    lines = summary(found)
    print(lines[0])
    if found["state"] not in OUTSIDE:
        node_grid(found).print()
    print("\n".join(lines[1:]))
    return 0


def summary(found: dict[str, Any]) -> list[str]:
    """Return the lines around the table of nodes; the first line goes above it."""
    total = found["partitions"]
    if found["state"] in OUTSIDE:
        waits = [f"  {text}" for text in found["waits"].split("; ")] if found["waits"] else []
        return [head(found), OUTSIDE[found["state"]], *waits, *disk_lines(found), *memory_lines(found)]
    lines = [head(found), partition_line(total)]
    if total["under_replicated"]:
        few = f"{total['under_replicated']} of {total['total']} partitions have fewer than {found['replicas']} copies"
        lines.append(f"UNDER-REPLICATED: {few}")
    if found["apart"]:
        lines.append("FORKED: this side of a split goes on by itself; its streams get no offsets meanwhile")
    if found["policy"] == "available" and found.get("forks_left", FORKS_FEW) < FORKS_FEW:
        lines.append(f"FEW FORKS LEFT: {found['forks_left']}; bring back the nodes that are away, or forget lost ones")
    lines += away_lines(found)
    lines += missing_lines(found.get("copies_missing", []))
    if found.get("copies_too_few"):
        scarce = len(found["copies_too_few"])
        lines.append(f"TOO FEW COPIES in sync: {scarce} partitions are not served, see cluster.min_in_sync")
    lines += damaged_lines(found.get("copies_damaged", []))
    if total["damaged"] or total["digest_different"]:
        bad = f"{total['damaged']} copies damaged, {total['digest_different']} digests different"
        lines.append(f"DAMAGED: {bad}; they are being copied again")
    if not found["writable"] and found["state"] == "member":
        lines.append(f"NO LEASE, serves nobody: {found['waits'].removeprefix('it has no lease: ')}")
    lines += disk_lines(found)
    lines += memory_lines(found)
    lines += clock_lines(found)
    lines += feature_lines(found.get("features", {}))
    lines += setting_lines(found.get("settings_differ", []))
    if total["moving"]:
        lines.append(copy_line(found["copy"], total["moving"]))
    if found.get("last_loss"):
        lines.append(f"last loss: {loss_text(found['last_loss'])}")
    lines.append(f"last heal: {heal_text(found['last_heal']) if found['last_heal'] else 'none'}")
    return lines


def head(found: dict[str, Any]) -> str:
    """Return the answering node, its configuration, the controller and the overload in one line."""
    node = f"{found['node']} (folkmoot {found['software']})"
    if found["state"] == "alone":
        return f"{node}: alone, without a cluster; {overload_text(found)}"
    controller = found["controller"]
    configuration = f"configuration {found['counter']} (epoch {found['epoch']})"
    who = {
        "member": f"member, {configuration}, controller {controller or 'unknown'}",
        "witness": f"witness, {configuration}, controller {controller or 'unknown'}",
        "waiting": "waits to become a member",
        "excluded": f"left out; its last was {configuration}",
    }.get(found["state"], found["state"])
    return f"{node}: {who}; {found['replicas']} replicas, split policy {found['policy']}, {overload_text(found)}"


def overload_text(found: dict[str, Any]) -> str:
    """Return the overload level of the cluster, and the reason at this node."""
    why = found.get("overload_why")
    return f"overload {found['overload']}{f' (here: {why})' if why else ''}"


def disk_lines(found: dict[str, Any]) -> list[str]:
    """Return a line for each node with a full disk: what that means."""
    lines = []
    for node in found["nodes"]:
        if not node["disk_full"]:
            continue
        if node["state"] == "away":
            cost = "it is away"
        elif node["leads"]:
            cost = f"its {node['leads']} partitions refuse what must be stored"
        else:
            cost = "others lead, it follows as long as its reserve lasts"
        lines.append(f"DISK FULL on {node['id']}: {cost}")
    cost = "others lead what they can until it is quick again"
    return [*lines, *[f"DISK SLOW on {node_id}: {cost}" for node_id in found.get("disks_slow", [])]]


def memory_lines(found: dict[str, Any]) -> list[str]:
    """Return a line for each node that is short of memory: what that means."""
    costs = {1: "it refuses clients and subscriptions", 2: "it disconnects the clients for which most waits"}
    return [
        f"MEMORY SHORT on {node['id']}: {costs[min(node['memory'], 2)]}"
        for node in found["nodes"]
        if node.get("memory")
    ]


def clock_lines(found: dict[str, Any]) -> list[str]:
    """Return a line for each node that reports a wrong clock, or that knows no majority of clocks that agree."""
    lines = []
    for node in found["nodes"]:
        if node.get("clock") == 1:
            ahead_s = found.get("clock_offset_us", 0) / 1e6
            by = f" by {ahead_s:+.1f} s" if node["id"] == found["node"] else ""
            lines.append(f"CLOCK WRONG on {node['id']}{by}: nothing is dated or expires by it")
        elif node.get("clock"):
            lines.append(f"CLOCKS DISAGREE as {node['id']} sees it: no majority says what time it is")
    return lines


def missing_lines(missing: list[dict[str, Any]]) -> list[str]:
    """Return a line for each group of absent nodes that have the only copies in sync of some partitions."""
    return [
        f"COPIES MISSING: {len(one['partitions'])} partitions are not served, because all that is in sync is on "
        f"{' and '.join(one['nodes'])} (away)"
        for one in missing
    ]


def damaged_lines(damaged: list[dict[str, Any]]) -> list[str]:
    """Return a line for each node whose damaged copy of some partitions is the only one in sync."""
    return [
        f"COPIES DAMAGED: {len(one['partitions'])} partitions are not served, because the only copy in sync is on "
        f"{' and '.join(one['nodes'])}, and cannot be read"
        for one in damaged
    ]


def loss_text(loss: dict[str, Any]) -> str:
    """Return how much data was lost for good, with which nodes, and by which entry of the configuration log."""
    nodes = " and ".join(loss["nodes"])
    return f"{loss['partitions']} partitions lost data that only {nodes} had (entry {loss['entry']} of the log)"


def feature_lines(features: dict[str, list[str]]) -> list[str]:
    """Return a line for each feature that is off because some nodes do not support it."""
    return [f"OFF: {feature}, until {', '.join(nodes)} can do it too" for feature, nodes in features.items() if nodes]


def setting_lines(differing: list[dict[str, str]]) -> list[str]:
    """Return a line for each other member with settings that differ from those of the answering node."""
    by_node: dict[str, list[str]] = {}
    for one in differing:
        by_node.setdefault(one["node"], []).append(f"{one['setting']} is {one['there']} there, {one['here']} here")
    return [f"SETTINGS DIFFER on {node}: {'; '.join(texts)}" for node, texts in by_node.items()]


def partition_line(total: dict[str, Any]) -> str:
    """Return the partitions and their digests in one line."""
    opened = f"only {total['open']} open" if total["open"] else "none open"
    if total["open"] == total["total"]:
        opened = "all open"
    digests = f"{total['digest_checked']} digests compared, {total['digest_different']} different"
    if total["digest_round_us"]:
        digests += f", the last round in {total['digest_round_us'] / 1e6:.0f} s"
    return f"partitions: {total['total']}, {opened}, {total['moving']} moving; {digests}"


def copy_line(copy: dict[str, Any], moving: int) -> str:
    """Return the progress of all copies between nodes in one line."""
    left = f"{size_text(copy['all_left'])} to go at {size_text(copy['all_rate'])} a second"
    here = f"to this node {size_text(copy['bytes_done'])} done, {size_text(copy['bytes_left'])} to go"
    return f"copying: {moving} partitions get copies, {left}; {here}"


def node_grid(found: dict[str, Any]) -> Grid:
    """Return a row for each node, including absent ones."""
    titles = ("clients", "sessions", "overload", "leads", "follows", "fills", "heard")
    grid = Grid("node", "zone", "state", "role", "version", "address", *titles, right=titles)
    now_us = found["started_us"] + found["uptime_us"]
    for node in found["nodes"]:
        cells = [node["id"], node["zone"] or "-", node["state"], role_of(found, node)]
        cells += [node["software"] or "-", node["address"] or "-"]
        figures = [str(node[name]) for name in ("clients", "sessions", "overload", "leads", "follows", "fills")]
        if node["state"] in ("away", "witness"):
            figures = ["-"] * len(figures)
        heard = "-" if node["id"] == found["node"] else ago(node["last_heard_us"], now_us)
        grid.add(*cells, *figures, heard, loud=node["state"] not in ("active", "witness"))
    return grid


def role_of(found: dict[str, Any], node: dict[str, Any]) -> str:
    """Return what a node does for the configuration log."""
    if node["id"] == found["controller"]:
        return "controller"
    return "voter" if node["voter"] else "-"


def away_lines(found: dict[str, Any]) -> list[str]:
    """Return a line for each node that is away: why."""
    return [f"AWAY: {node['id']}, {node['why']}" for node in found["nodes"] if node["why"]]


def ago(time_us: int, now_us: int) -> str:
    """Return how long ago a time is, as text."""
    if not time_us:
        return "not since its start"
    seconds = max(now_us - time_us, 0) / 1e6
    return f"{seconds:.1f} s ago" if seconds < 100 else f"{seconds / 60:.0f} min ago"


def heal_text(heal: dict[str, Any]) -> str:
    """Return a heal summary in one line: the time, then every figure that is not zero, with its name."""
    from folkmoot.client.entry import rfc3339

    words = [figure_text(name, value) for name, value in heal.items() if name != "time_us" and value not in (0, [], {})]
    when = [rfc3339(heal["time_us"])[:19] + "Z"] if "time_us" in heal else []
    return " ".join([*when, ", ".join(words)])


def figure_text(name: str, value: Any) -> str:
    """Return one figure of a heal summary as text: lists joined, counts with reasons, times in seconds."""
    if isinstance(value, dict):
        value = " and ".join(f"{count} because {why}" for why, count in value.items())
    elif isinstance(value, list):
        value = " and ".join(value)
    elif name.endswith("_us"):
        name, value = name.removesuffix("_us"), f"{value / 1e6:.1f} s"
    return f"{name.replace('_', ' ')} {value}"
