"""A side goes on from an old copy of a stream, and retention has removed at the other one what both had (A9)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.log import StreamLog
from tests.harness.simulated_cluster import SimulatedCluster, Site

BRIEF = StreamConfig("brief", b"b", 1, retention_us=60 * SECOND)


def log_of(site: Site) -> StreamLog:
    stream = site.node.streams.get("brief")
    assert stream is not None
    return stream.logs[0]


def leader_of(cluster: SimulatedCluster, site: Site) -> Site:
    leader = site.cluster_node.fabric.leaders[0]
    return cluster[leader]


def publish(site: Site, *payloads: str) -> None:
    client = site.client("p")
    client.connect()
    for payload in payloads:
        client.publish("b", payload.encode(), qos=1)
    client.disconnect()


def texts(site: Site) -> dict[int, str]:
    """Return the records of the log by their offsets."""
    log = log_of(site)
    found = [log.entry(offset) for offset in range(log.oldest, log.readable_end)]
    return {entry.offset: entry.record.payload.decode() for entry in found if entry is not None}


@pytest.mark.parametrize("emptied", [False, True])
def test_offsets_that_were_read_are_never_given_again(emptied: bool) -> None:
    cluster = SimulatedCluster(3, partitions=1, streams=[BRIEF])
    last = cluster["n3"]
    publish(cluster["n1"], "old 1", "old 2")
    cluster.advance(SECOND)
    cluster.cut("n3", "n1", "n2")  # nobody tells it that the others go on
    last.up = False
    cluster.advance(5 * SECOND)
    publish(cluster["n1"], *[f"gone {number}" for number in range(5)])
    cluster.advance(2 * BRIEF.retention_us)
    if not emptied:
        publish(cluster["n1"], "given")
    given = {} if emptied else {7: "given"}
    assert texts(leader_of(cluster, cluster["n1"])) == given
    for name in ("n1", "n2"):
        cluster[name].up = False
    last.up = True
    cluster.advance(8 * SECOND)
    publish(last, "held")
    cluster["n1"].up = True  # alone it has no quorum: it comes over to the fork
    cluster.heal()
    cluster.advance(8 * SECOND)
    cluster["n2"].up = True
    cluster.settle()
    assert leader_of(cluster, last) is last
    assert "branch_merged" in last.kinds()
    assert texts(last) == {**given, 7 + len(given): "held"}
    publish(cluster["n1"], "next")
    assert texts(last) == {**given, 7 + len(given): "held", 8 + len(given): "next"}
