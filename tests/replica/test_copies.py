"""Nodes that are set to different numbers of copies: the most counts, so that one slip loses nothing (A1)."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.membership.view import View
from folkmoot.status.cluster_picture import picture_of
from tests.harness.simulated_cluster import SimulatedCluster


def restart(cluster: SimulatedCluster, node_id: str, copies: int) -> None:
    """Start a node again with another number of copies, and let all settle."""
    cluster[node_id].kill()
    cluster[node_id].settings.replicas = copies
    cluster[node_id].revive()
    cluster.settle()
    cluster.advance(20 * SECOND)


def test_a_member_that_wants_fewer_copies_takes_none_away() -> None:
    cluster = SimulatedCluster(3)
    restart(cluster, "n1", 1)
    view = cluster.view_of(cluster["n1"])
    assert isinstance(view, View)
    assert {len(replicas) for replicas in view.replicas} == {3}
    assert [picture_of(site.node).replicas() for site in cluster.live()] == [3, 3, 3]
    kinds = [event for site in cluster.live() for event in site.events if event.kind == "settings_differ"]
    assert kinds, "whoever proposes says so"


def test_one_that_wants_more_gets_them() -> None:
    cluster = SimulatedCluster(3, replicas=1)
    restart(cluster, "n3", 2)
    view = cluster.view_of(cluster["n2"])
    assert isinstance(view, View)
    assert {len(replicas) for replicas in view.replicas} == {2}
    assert picture_of(cluster["n2"].node).replicas() == 2
