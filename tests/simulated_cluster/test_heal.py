"""A partition with many rows is merged over many turns when a split heals; nothing is missing afterwards."""

from __future__ import annotations

import itertools

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.merge.merge_session import STEP_ROWS
from folkmoot.store.batch import Batch
from folkmoot.store.key import QUEUE, name_prefix, numbered_key, sequence_of
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 4
ROWS = 16_000
PAGE_ROWS = 4096  # and no more than 256 KiB
CLIENT = next(f"c{number}" for number in range(99) if hash64(b"c%d" % number) % PARTITIONS == 0)


def multiply(site: Site) -> None:
    """Let a store have the client's message many times, as if it had been published so often before the split."""
    prefix = name_prefix(0, QUEUE, CLIENT.encode())
    key, value = site.store.scan(prefix, prefix + b"\xff" * 9, 1)[0]
    batch = Batch(0)
    for count in range(1, ROWS):
        batch.put(numbered_key(prefix, sequence_of(key) + count), value)
    site.alter(batch)


def held_by(site: Site) -> int:
    """How many rows a merge of partition 0 has read of its own copy."""
    cluster_node = site.node.cluster_node
    assert cluster_node is not None
    merging = cluster_node.replication.merges._active.get(cluster_node.replication.replicas[0])
    return 0 if merging is None else len(merging.own)


def test_a_long_queue_is_merged_over_many_turns() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    lone = cluster[cluster_node.fabric.leaders[0]]
    others = [site for site in cluster.live() if site is not lone]
    client = lone.client(CLIENT)
    client.connect(session_expiry=EVER)
    client.subscribe("t", qos=1)
    client.disconnect()
    publisher = others[0].client("p")
    publisher.connect()
    publisher.publish("t", b"before", qos=1)
    publisher.disconnect()
    for site in cluster.live():
        multiply(site)
    lone.restart()  # so that all leaders have read what is there
    cluster.settle()
    cluster.cut(lone.name, *[site.name for site in others])
    cluster.advance(10 * SECOND)
    for site in (lone, others[0]):
        one = site.client(f"at {site.name}")
        one.connect()
        one.publish("t", site.name.encode(), qos=1)
        one.disconnect()
    read: list[int] = [0]

    def look(site: Site) -> None:
        if held_by(site):
            read.append(held_by(site))

    cluster.look_after_turns(look)
    cluster.heal()
    cluster.settle(60 * SECOND)
    assert sorted(site.node.counters.queue_messages for site in cluster.live()) == [0, 0, ROWS + 2]
    steps = [after - before for before, after in itertools.pairwise(read)]
    # It goes on when the last page of the branch has come, when it wakes, and when something was written.
    assert max(steps) <= 3 * PAGE_ROWS
    assert len([step for step in steps if not step]) >= 2 * ROWS // STEP_ROWS // 2  # and then the plan was made


PAGE_BYTES = 2_000
HELD = 30_000
TOPICS = 200


@pytest.mark.parametrize("bytes_held", [HELD, 1 << 30])
def test_merges_hold_together_no_more_than_a_bound_or_one_partition(bytes_held: int) -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    for site in cluster.live():
        site.settings.page_bytes = PAGE_BYTES
        site.cluster_node.replication.merges.bytes_held = bytes_held
    lone = cluster["n3"]
    cluster.cut("n3", "n1", "n2")
    cluster.advance(10 * SECOND)
    for site in (lone, cluster["n1"]):
        one = site.client(f"at {site.name}")
        one.connect()
        for number in range(TOPICS):
            one.publish(f"{site.name}/{number}", bytes(500), qos=1, retain=True)
        one.disconnect()
    sums: list[int] = [0]
    largest: list[int] = [0]

    def look(site: Site) -> None:
        held = [one.held for one in site.cluster_node.replication.merges._active.values()]
        sums.append(sum(held))
        largest.append(max(held, default=0))

    cluster.look_after_turns(look)
    cluster.heal()
    cluster.settle(60 * SECOND)
    assert sum(site.node.counters.retained_messages for site in cluster.live()) == 2 * TOPICS
    assert "branch_merged" in cluster["n1"].kinds() + cluster["n2"].kinds()
    bound = HELD + max(largest) + 4 * 2 * PAGE_BYTES
    assert (max(sums) <= bound) == (bytes_held == HELD), f"{max(sums)} of {bound}"
