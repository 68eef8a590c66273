"""The figures of a cluster that operators set alarms on."""

from __future__ import annotations

from folkmoot.admin.gauge import measure
from folkmoot.kernel.clock import SECOND
from folkmoot.metrics.counters import Counters
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.picture import AlonePicture
from folkmoot.status.status import NodeStatus
from tests.harness.box import Box
from tests.harness.simulated_cluster import SimulatedCluster, Site


def figures(site: Site) -> Counters:
    counters = Counters()
    measure(NodeStatus(picture_of(site.node)).status(), counters)
    return counters


def test_a_whole_cluster_has_nothing_to_alarm_about() -> None:
    seen = figures(SimulatedCluster(3)["n1"])
    assert (seen.cluster_member, seen.cluster_may_serve) == (1, 1)
    assert (seen.cluster_nodes_active, seen.cluster_nodes_away) == (3, 0)
    assert seen.partitions_role_leads + seen.partitions_role_follows == 8
    assert seen.partitions_closed == seen.partitions_under_replicated == seen.partitions_damaged == 0


def test_a_dead_node_shows() -> None:
    cluster = SimulatedCluster(3)
    before = figures(cluster["n1"]).cluster_view
    cluster["n3"].kill()
    cluster.settle()
    seen = figures(cluster["n1"])
    assert seen.cluster_view > before
    assert (seen.cluster_nodes_active, seen.cluster_nodes_away) == (2, 1)
    assert seen.partitions_under_replicated == 8
    assert seen.partitions_closed == 0


def test_a_minority_that_may_not_serve_shows() -> None:
    cluster = SimulatedCluster(3, split_policy="majority")
    cluster.cut("n1", "n2", "n3")
    cluster.advance(10 * SECOND)
    assert figures(cluster["n1"]).cluster_may_serve == 0
    assert figures(cluster["n2"]).cluster_may_serve == 1


def test_a_node_that_was_left_out_counts_nothing_of_the_others() -> None:
    cluster = SimulatedCluster(3)
    assert cluster["n1"].node.cluster_node is not None
    cluster["n1"].node.cluster_node.membership.evict("n3", cluster.now)
    cluster.run()
    cluster.advance(3 * SECOND)
    seen = figures(cluster["n3"])
    assert (seen.cluster_member, seen.cluster_nodes_active, seen.cluster_nodes_away) == (0, 0, 0)
    assert (seen.partitions_role_leads, seen.partitions_role_follows) == (0, 0)
    assert (seen.partitions_closed, seen.partitions_under_replicated) == (8, 8)


def test_settings_that_differ_show() -> None:
    cluster = SimulatedCluster(3)
    assert figures(cluster["n1"]).cluster_settings_differ == 0
    cluster["n2"].kill()
    cluster["n2"].settings.split_policy = "majority"
    cluster["n2"].revive()
    cluster.settle()
    assert [figures(site).cluster_settings_differ for site in cluster.live()] == [1, 2, 1]


def test_a_full_disk_shows_at_every_node() -> None:
    cluster = SimulatedCluster(3)
    mine = figures(cluster["n2"]).partitions_role_leads
    cluster["n2"].storage(True)
    cluster.advance(SECOND)
    for site in cluster.live():
        assert (figures(site).cluster_disks_full, figures(site).partitions_refusing) == (1, mine)
    cluster.advance(5 * SECOND)
    for site in cluster.live():
        assert (figures(site).cluster_disks_full, figures(site).partitions_refusing) == (1, 0)


def test_a_node_alone_has_its_figures_too() -> None:
    counters = Counters()
    measure(NodeStatus(AlonePicture(Box().node)).status(), counters)
    assert (counters.cluster_nodes_active, counters.partitions_closed) == (1, 0)
