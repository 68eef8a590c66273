"""A node that the others refuse does not begin to serve beside them; a second one of the same id puts nobody out."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.status.cluster_picture import picture_of
from tests.harness.simulated_cluster import SimulatedCluster, Site


def state(site: Site) -> str:
    return picture_of(site.node).state()


def rename(cluster: SimulatedCluster, node_id: str, name: str) -> None:
    """Start a node again that takes itself for one of this cluster."""
    cluster[node_id].kill()
    cluster[node_id].settings.name = name
    cluster[node_id].revive()


def test_a_node_with_another_cluster_name_waits_until_that_is_mended() -> None:
    cluster = SimulatedCluster(3)
    rename(cluster, "n3", "another")
    cluster.advance(30 * SECOND)
    assert state(cluster["n3"]) == "waiting"
    assert [state(cluster[name]) for name in ("n1", "n2")] == ["member", "member"]
    rename(cluster, "n3", cluster["n1"].settings.name)
    cluster.settle()
    assert state(cluster["n3"]) == "member"


def test_a_node_alone_begins_when_nobody_refuses_it_any_more() -> None:
    cluster = SimulatedCluster(2)
    rename(cluster, "n2", "another")
    cluster.advance(5 * SECOND)
    assert state(cluster["n2"]) == "waiting"
    cluster["n1"].kill()
    cluster.advance(30 * SECOND)
    assert state(cluster["n2"]) == "member"


def test_a_node_of_version_0_1_is_refused() -> None:
    cluster = SimulatedCluster(2)
    old = Site.__new__(Site)
    cluster._running = True
    old.__init__(cluster, "n3")  # type: ignore[misc]
    assert old.node.cluster_node is not None
    hello = old.node.cluster_node.peers._switch.greeter.hello
    hello.wire_min = hello.wire_max = 1
    cluster._running = False
    cluster.sites["n3"] = old
    cluster.advance(5 * SECOND)
    assert [site.name for site in cluster.live() if state(site) == "member"] == ["n1", "n2"]
    why = [str(event.fields) for event in cluster["n3"].events if event.kind == "peer_refused"]
    assert why, "it is said"
    assert "it speaks the wire versions 2 to 2, this node 1 to 1" in why[0]
