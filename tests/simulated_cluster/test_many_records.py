"""A side has written much into a stream: it is merged page by page, and appended turn by turn, also by two leaders."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.store.key import LEFTOVER, end_of, kind_prefix
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.log import StreamLog
from tests.harness.simulated_cluster import SimulatedCluster, Site

PAGE_BYTES = 2_000
TURN_BYTES = 1 << 20  # of what is appended in one turn, as `streams/leftover` has it
OPENING_BYTES = 4 << 20  # in that in which the partition opens
RECORD_BYTES = 200_000  # each in a chunk of its own
COUNT = 150


def log_of(site: Site) -> StreamLog:
    stream = site.node.streams.get("s")
    assert stream is not None
    return stream.logs[0]


def texts(site: Site) -> list[str]:
    log = log_of(site)
    found = [log.entry(offset) for offset in range(log.oldest, log.readable_end)]
    return [entry.record.payload.rstrip(b".").decode() for entry in found if entry is not None]


def publish(site: Site, *texts: str) -> None:
    client = site.client(f"at {site.name}")
    client.connect()
    for text in texts:
        client.publish("t", text.encode().ljust(RECORD_BYTES, b"."), qos=1)
    client.disconnect()


def left_over(site: Site) -> int:
    prefix = kind_prefix(0, LEFTOVER)
    return len(site.store.scan(prefix, end_of(prefix), 10_000))


@pytest.mark.parametrize("dies", [False, True])
def test_records_of_the_other_side_come_turn_by_turn_once_and_in_order(dies: bool) -> None:
    cluster = SimulatedCluster(3, partitions=1, streams=[StreamConfig("s", b"t", 1)])
    for site in cluster.live():
        site.settings.page_bytes = PAGE_BYTES
    cluster.cut("n3", "n1", "n2")
    cluster.advance(10 * SECOND)
    publish(cluster["n1"], "mine")
    theirs = [f"theirs {number}" for number in range(COUNT)]
    publish(cluster["n3"], *theirs)
    held: list[int] = [0]
    steps: list[int] = [0]
    before = {site.name: 0 for site in cluster.live()}
    died: list[str] = []

    def look(site: Site) -> None:
        held.extend([one.held for one in site.cluster_node.replication.merges._active.values()])
        left = left_over(site)
        if site.cluster_node.fabric.leaders[0] == site.name:
            steps.append(max(0, before[site.name] - left))
            if dies and not died and steps[-1] and left:
                died.append(site.name)
                site.up = False
        before[site.name] = left

    cluster.look_after_turns(look)
    cluster.heal()
    cluster.settle(60 * SECOND)
    assert bool(died) == dies
    leader = cluster[cluster.live()[0].cluster_node.fabric.leaders[0]]
    cluster.advance(SECOND)
    assert texts(leader) == ["mine", *theirs]
    assert left_over(leader) == 0
    assert max(held) < COUNT * RECORD_BYTES // 4
    assert max(steps) <= (OPENING_BYTES + TURN_BYTES) // RECORD_BYTES, "what opens the partition may append more"
