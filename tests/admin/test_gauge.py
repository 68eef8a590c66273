"""The figures of a cluster that operators set alarms on."""

from __future__ import annotations

from folkmoot.admin.gauge import measure
from folkmoot.kernel.clock import SECOND
from folkmoot.metrics.counters import Counters
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.picture import AlonePicture
from folkmoot.status.status import NodeStatus
from tests.harness.box import Box
from tests.harness.simulated_cluster import Camp, Site


def figures(site: Site) -> Counters:
    counters = Counters()
    measure(NodeStatus(picture_of(site.node)).status(), counters)
    return counters


def test_a_whole_cluster_has_nothing_to_alarm_about() -> None:
    seen = figures(Camp(3)["n1"])
    assert (seen.cluster_member, seen.cluster_may_serve) == (1, 1)
    assert (seen.cluster_nodes_active, seen.cluster_nodes_away) == (3, 0)
    assert seen.partitions_role_leads + seen.partitions_role_follows == 8
    assert seen.partitions_closed == seen.partitions_under_replicated == seen.partitions_damaged == 0


def test_a_dead_node_shows() -> None:
    camp = Camp(3)
    before = figures(camp["n1"]).cluster_view
    camp["n3"].kill()
    camp.settle()
    seen = figures(camp["n1"])
    assert seen.cluster_view > before
    assert (seen.cluster_nodes_active, seen.cluster_nodes_away) == (2, 1)
    assert seen.partitions_under_replicated == 8
    assert seen.partitions_closed == 0


def test_a_minority_that_may_not_serve_shows() -> None:
    camp = Camp(3, split_policy="majority")
    camp.cut("n1", "n2", "n3")
    camp.advance(10 * SECOND)
    assert figures(camp["n1"]).cluster_may_serve == 0
    assert figures(camp["n2"]).cluster_may_serve == 1


def test_a_node_that_was_left_out_counts_nothing_of_the_others() -> None:
    camp = Camp(3)
    assert camp["n1"].node.liaison is not None
    camp["n1"].node.liaison.membership.evict("n3", camp.now)
    camp.run()
    camp.advance(3 * SECOND)
    seen = figures(camp["n3"])
    assert (seen.cluster_member, seen.cluster_nodes_active, seen.cluster_nodes_away) == (0, 0, 0)
    assert (seen.partitions_role_leads, seen.partitions_role_follows) == (0, 0)
    assert (seen.partitions_closed, seen.partitions_under_replicated) == (8, 8)


def test_settings_that_differ_show() -> None:
    camp = Camp(3)
    assert figures(camp["n1"]).cluster_settings_differ == 0
    camp["n2"].kill()
    camp["n2"].cluster.split_policy = "majority"
    camp["n2"].revive()
    camp.settle()
    assert [figures(site).cluster_settings_differ for site in camp.live()] == [1, 2, 1]


def test_a_full_disk_shows_at_every_node() -> None:
    camp = Camp(3)
    mine = figures(camp["n2"]).partitions_role_leads
    camp["n2"].storage(True)
    camp.advance(SECOND)
    for site in camp.live():
        assert (figures(site).cluster_disks_full, figures(site).partitions_refusing) == (1, mine)
    camp.advance(5 * SECOND)
    for site in camp.live():
        assert (figures(site).cluster_disks_full, figures(site).partitions_refusing) == (1, 0)


def test_a_node_alone_has_its_figures_too() -> None:
    counters = Counters()
    measure(NodeStatus(AlonePicture(Box().node)).status(), counters)
    assert (counters.cluster_nodes_active, counters.partitions_closed) == (1, 0)
