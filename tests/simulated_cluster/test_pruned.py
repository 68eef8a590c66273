"""Nodes whose lineage has forgotten old ancestors restart, and have what was there before the first fork (A1, A11)."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.control import Control
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster, Site

NAMES = ["n1", "n2", "n3"]


def control(site: Site) -> Control:
    assert site.node.cluster_node is not None
    return site.node.cluster_node.membership.control


def configuration(site: Site) -> ClusterConfiguration:
    found = control(site).configuration
    assert found is not None
    return found


def bound(site: Site) -> None:
    """Let a lineage forget ancestors as soon as it has four."""
    control(site).options.ancestors_max = 32


def fork(cluster: SimulatedCluster) -> None:
    """All nodes are cut off from each other until each goes on alone, and meet again."""
    for name in NAMES:
        cluster.cut(name, *[other for other in NAMES if other != name])
    cluster.advance(12 * SECOND)
    cluster.heal()
    cluster.settle(60 * SECOND)
    cluster.advance(5 * SECOND)


def test_what_waits_since_before_the_first_fork_is_there_after_restarts() -> None:
    cluster = SimulatedCluster(3, partitions=4)
    for site in cluster.live():
        bound(site)
    away = cluster["n1"].client("away")
    away.connect(session_expiry=EVER)
    away.subscribe("#", qos=1)
    away.lose()
    sender = cluster["n2"].client("sender")
    sender.connect()
    for number in range(20):
        sender.publish("t", b"%d" % number, qos=1)
    cluster.advance(SECOND)
    for _ in range(8):
        fork(cluster)
    found = configuration(cluster["n1"])
    assert found.floor > 0
    assert len(found.ancestors) < 6
    for name in NAMES:
        site = cluster[name]
        source = control(site).branches
        assert source is not None
        assert source.branches(configuration(site)) == []
        site.kill()
        cluster.advance(2 * SECOND)
        site.revive()
        bound(site)
        cluster.settle(60 * SECOND)
        assert configuration(cluster["n1"]).branches == {}
    kinds = {event.kind for site in cluster.sites.values() for event in site.events}
    assert not kinds.intersection(["branch_lost", "branch_overwritten"])
    back = cluster["n3"].client("away")
    back.connect(clean_start=False, session_expiry=EVER)
    cluster.advance(2 * SECOND)
    assert [packet.payload for packet in back.publishes()] == [b"%d" % number for number in range(20)]
