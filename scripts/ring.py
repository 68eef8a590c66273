"""Write docs/ring.md: how evenly partitions are placed, and how many move when a node joins or leaves.

python -m scripts.ring            write the page
python -m scripts.ring --print    print it
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from benchmarks.pages import fill_figures, load_results
from folkmoot.membership.cluster_member import DATA, ClusterMember, Process
from folkmoot.membership.placement import ideal_placement

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
# Where partitions are placed

`scripts/ring.py` writes this page from the placement code, with {replicas} replicas. The placement is a pure function
of the members; the cluster follows it as fast as copies are filled.

- **Most** is the load of the fullest node, in replicas and in leaderships, divided by a fair share. The bound is 5 %
  above the fair share, or the next whole partition.
- **Comes: copies** compares the number of copies that nodes receive when a node joins with the least possible number,
  which is the fair share of the new node. Below 1.00, the new node gets less than its share, as the bound allows.
- **Goes: copies** compares the same number when a node leaves with the copies that it had, which must move anyway.
- **Leaders** is the number of partitions that change their leader: when a node joins, against its fair share; when a
  node leaves, against what it led. No data moves for that, because a leader always has the copy. It costs a pause of
  one takeover for each partition.

| nodes | partitions | zones | most replicas | most leaders | comes: copies | leaders | goes: copies | leaders |
|---|---|---|---|---|---|---|---|---|
{rows}

The node that leaves is the last one of a cluster with one more node. More copies move than the least possible number
for two reasons: the bound on the fullest node, and zones. With fewer zones than nodes, a copy may have to make room for
another one.

The placement of 4,096 partitions on 200 nodes takes <!-- figure: views.ring.200x4096_ms -->-<!-- end --> ms of
computing ([measured](../BENCHMARKS.md#view-changes)). Only the controller computes it, when members change.
"""


Placement = list[list[int]]


def placement_of(nodes: int, zones: int, partitions: int) -> Placement:
    """Return for each partition the numbers of its nodes, from 1, its leader first."""
    members: list[ClusterMember] = []
    for number in range(1, nodes + 1):
        zone = f"zone{number % zones}" if zones else f"node{number}"
        members.append(ClusterMember(number, f"node{number}", DATA, Process(1, "", zone, f"node{number}")))
    return ideal_placement(members, partitions, REPLICAS, {})


def moved(before: Placement, after: Placement) -> int:
    """Return how many copies nodes of `after` must receive."""
    return sum(len(set(new) - set(old)) for old, new in zip(before, after, strict=True))


def row(nodes: int, partitions: int, zones: int) -> str:
    placed = placement_of(nodes, zones, partitions)
    more = placement_of(nodes + 1, zones, partitions)
    last = nodes + 1  # of the larger cluster, which "goes"
    copies = Counter(node for owners in placed for node in owners)
    leaders = Counter(owners[0] for owners in placed)
    changed = sum(one[0] != other[0] for one, other in zip(placed, more, strict=True))
    kept = sum(last in owners for owners in more)
    led = sum(owners[0] == last for owners in more)
    most = max(copies.values()) * nodes / (partitions * min(REPLICAS, nodes))
    lead = max(leaders.values()) * nodes / partitions
    come, least = moved(placed, more), partitions * REPLICAS / (nodes + 1)
    go = moved(more, placed)
    return (
        f"| {nodes} | {partitions:,} | {zones or 'each its own'} | {most:.3f} | {lead:.3f} "
        f"| {come} / {least:.0f} = {come / least:.2f} | {changed} / {partitions / (nodes + 1):.0f} "
        f"| {go} / {kept} = {go / max(kept, 1):.2f} | {changed} / {led} |"
    )


def page() -> str:
    """Return the page, but for the measured figure, which `benchmarks.pages` puts in."""
    return TEXT.format(replicas=REPLICAS, rows="\n".join([row(*case) for case in CASES]))


def main() -> None:
    if "--print" in sys.argv:
        print(page())
    else:
        PAGE.write_text(fill_figures(page(), load_results()), encoding="utf-8")


if __name__ == "__main__":
    main()
