"""Write docs/ring.md: how evenly partitions lie, how many move when a node comes or goes, and how long it takes.

python scripts/ring.py            write the page
python scripts/ring.py --print    print it
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import process_time

from folkmoot.membership.ring import Ring
from folkmoot.membership.view import View
from folkmoot.peer.member import ACTIVE, Member

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "ring.md"
REPLICAS = 3
# Nodes, partitions, zones (0 = each node is one).
CASES = (
    (3, 256, 0),
    (4, 256, 0),
    (5, 256, 0),
    (6, 256, 3),
    (7, 256, 0),
    (9, 256, 3),
    (10, 256, 0),
    (20, 1024, 0),
    (50, 1024, 5),
    (50, 4096, 0),
    (200, 4096, 0),
)

TEXT = """\
# Where partitions lie

Made by `scripts/ring.py` from the code itself, with {replicas} replicas. The placement is a pure function of the
members (see `membership/ring.py`); the view follows it as fast as copies are filled.

- **Most** is what the fullest node has, replicas and leaders, against a fair share. The bound is 5 % above it, or the
  next whole partition.
- **A node comes**: copies that nodes receive which did not keep them before, against the least possible, which is the
  newcomer's fair share. Below 1.00 the newcomer got less than its share (the bound allows it).
- **A node goes**: the same, against the copies that it kept: these must move in any case.
- **Leaders change** when a node comes, against the newcomer's fair share, and when a node goes, against what it led. No
  data moves for that: a leader is always a node that has the copy, and it costs a pause of one takeover per partition.

| nodes | partitions | zones | most replicas | most leaders | comes: copies | leaders | goes: copies | leaders |
|---|---|---|---|---|---|---|---|---|
{rows}

What goes is the last node of a cluster with one node more. That copies move at all beyond the least possible is the
price of the bound on the fullest node, and of zones: with fewer zones than nodes a copy may have to make room for
another one.

Time to compute the placement of 4,096 partitions on 200 nodes: {seconds:.1f} s on the machine that made this page,
{mode}. Only the proposer of a view computes it, when members change.
"""


def view_of(nodes: int, zones: int) -> View:
    members = [Member(f"node{n}", 1, "", f"zone{n % zones}" if zones else f"node{n}", ACTIVE) for n in range(nodes)]
    return View(1, members)


def moved(before: Ring, after: Ring) -> int:
    """Return how many copies nodes of `after` must receive."""
    return sum(len(set(after.replicas_of(n)) - set(before.replicas_of(n))) for n in range(before.partitions))


def row(nodes: int, partitions: int, zones: int) -> str:
    ring = Ring(view_of(nodes, zones), partitions, REPLICAS)
    more = Ring(view_of(nodes + 1, zones), partitions, REPLICAS)
    replicas: dict[str, int] = {}
    leaders: dict[str, int] = {}
    changed = 0
    kept = led = 0  # by the last node of the larger cluster, which "goes"
    for number in range(partitions):
        for node_id in ring.replicas_of(number):
            replicas[node_id] = replicas.get(node_id, 0) + 1
        leaders[ring.leader_of(number)] = leaders.get(ring.leader_of(number), 0) + 1
        changed += ring.leader_of(number) != more.leader_of(number)
        kept += f"node{nodes}" in more.replicas_of(number)
        led += more.leader_of(number) == f"node{nodes}"
    most = max(replicas.values()) * nodes / (partitions * ring.replicas)
    lead = max(leaders.values()) * nodes / partitions
    come, least = moved(ring, more), partitions * REPLICAS / (nodes + 1)
    go = moved(more, ring)
    return (
        f"| {nodes} | {partitions:,} | {zones or 'each its own'} | {most:.3f} | {lead:.3f} "
        f"| {come} / {least:.0f} = {come / least:.2f} | {changed} / {partitions / (nodes + 1):.0f} "
        f"| {go} / {kept} = {go / max(kept, 1):.2f} | {changed} / {led} |"
    )


def main() -> None:
    rows = "\n".join([row(*case) for case in CASES])
    began = process_time()
    Ring(view_of(200, 0), 4096, REPLICAS)
    seconds = process_time() - began
    compiled = not str(sys.modules["folkmoot.membership.ring"].__file__).endswith(".py")
    page = TEXT.format(replicas=REPLICAS, rows=rows, seconds=seconds, mode="compiled" if compiled else "interpreted")
    if "--print" in sys.argv:
        print(page)
    else:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
