"""Links that carry less than is sent: everybody keeps its lease, and publishers are slowed before data becomes old."""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.peer.kind import KIND_END
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 8
MBIT = 1_000_000 // 8


def assert_calm(cluster: SimulatedCluster, controller: str) -> None:
    assert cluster.controller().name == controller
    for site in cluster.live():
        assert not site.node.silence(site.steady_ns()), f"{site.name} has lost its lease"
        assert not {"lease_over", "peer_too_slow", "peer_down", "view_excluded"} & set(site.kinds())


def test_leases_hold_while_seconds_of_data_wait_for_the_links() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS, split_policy="majority")
    controller = cluster.controller().name
    cluster.advance(SECOND)
    cluster.rate = 20 * MBIT
    for site in cluster.live():
        peers = site.cluster_node.peers
        for other in cluster.live():
            if other is not site:
                peers.send(other.name, KIND_END - 1, bytes(5_000_000))  # nobody knows the kind
                for _ in range(100):
                    peers.send(other.name, KIND_END - 1, bytes(50_000))
    for _ in range(380):
        cluster.advance(10 * MILLISECOND)
        assert_calm(cluster, controller)
    assert all(link.backlog_bytes() > 100_000 for site in cluster.live() for link in site.cluster_node.peers.links())
    cluster.advance(SECOND)
    assert all(link.backlog_bytes() < 1000 for site in cluster.live() for link in site.cluster_node.peers.links())
    assert_calm(cluster, controller)
