"""For whom a node waits: the sentences of health and status, seen by real nodes of a cluster."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.picture import AlonePicture
from folkmoot.status.status import NodeStatus
from folkmoot.status.wait import wait_of
from tests.harness.box import Box
from tests.harness.simulated_cluster import SimulatedCluster, Site


def of(site: Site) -> NodeStatus:
    return NodeStatus(picture_of(site.node))


def test_who_serves_waits_for_nobody() -> None:
    cluster = SimulatedCluster(2)
    assert [of(site).status()["waits"] for site in cluster.live()] == ["", ""]
    assert wait_of(AlonePicture(Box().node)) == ""


def test_who_has_no_quorum_of_voters_names_whom_it_waits_for() -> None:
    cluster = SimulatedCluster(2, split_policy="majority")
    cluster["n1"].kill()  # two members have one voter
    cluster.advance(5 * SECOND)
    status = of(cluster["n2"])
    assert status.unready() == status.status()["waits"] == "no quorum: 0 of 1 voters heard; waits for n1"
    assert not status.status()["writable"]


def test_a_minority_that_is_cut_off_names_the_voters_that_it_lacks() -> None:
    cluster = SimulatedCluster(5, split_policy="majority")
    cluster.cut("n1", "n3", "n4", "n5")
    cluster.cut("n2", "n3", "n4", "n5")
    cluster.advance(10 * SECOND)
    assert of(cluster["n1"]).unready() == "no quorum: 2 of 5 voters heard; waits for n3, n4, n5"
    assert of(cluster["n3"]).unready() == ""


def test_one_that_starts_alone_names_the_members_that_it_knew_and_what_their_addresses_answer() -> None:
    cluster = SimulatedCluster(3, split_policy="majority")
    for site in cluster.live():
        site.kill()
    cluster["n1"].revive()
    cluster.advance(5 * SECOND)
    why = of(cluster["n1"]).unready().split("; ")
    assert why[0] == "it waits to become a member of the cluster"
    assert why[1:3] == ["no quorum: 1 of 3 voters heard", "waits for n2, n3"]
    assert why[3:] == ["n2:1: nobody listens", "n3:1: nobody listens"]


def test_a_first_start_alone_waits_for_the_first_of_its_seeds() -> None:
    cluster = SimulatedCluster(1, split_policy="majority")
    cluster["n1"].kill()
    site = cluster.add("n2")
    cluster.advance(5 * SECOND)
    why = "it knows none yet: the first of the seeds founds it, or as many nodes as are expected; n1:1: nobody listens"
    assert why in of(site).unready()


def test_one_that_waits_a_moment_before_it_goes_on_alone_names_whom_it_hopes_for() -> None:
    cluster = SimulatedCluster(2, join_wait_us=10 * SECOND)
    cluster["n1"].kill()
    cluster["n2"].kill()
    cluster["n1"].revive()
    cluster.advance(SECOND)
    assert "; n2 is not heard; n2:1: nobody listens" in of(cluster["n1"]).unready()
    cluster.advance(12 * SECOND)
    assert of(cluster["n1"]).unready() == ""


@pytest.mark.parametrize("full", [False, True])
def test_who_is_left_out_for_its_full_disk_says_so(full: bool) -> None:
    cluster = SimulatedCluster(3)
    site = cluster["n3"]
    site.storage(full)
    assert site.node.cluster_node is not None
    site.node.stalled("disk", cluster.now, cluster.now)
    cluster.advance(10 * SECOND)
    assert of(site).unready().startswith("it is excluded from the cluster's view")
    assert ("its disk is full" in of(site).unready()) == full
