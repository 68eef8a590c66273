"""For whom a node waits: the sentences of health and status, seen by real nodes of a cluster."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.picture import AlonePicture
from folkmoot.status.status import NodeStatus
from folkmoot.status.wait import wait_of
from tests.harness.box import Box
from tests.harness.picture import Drawn
from tests.harness.simulated_cluster import SimulatedCluster, Site


def of(site: Site) -> NodeStatus:
    return NodeStatus(picture_of(site.node))


def test_who_serves_waits_for_nobody() -> None:
    cluster = SimulatedCluster(2)
    assert [of(site).status()["waits"] for site in cluster.live()] == ["", ""]
    assert wait_of(AlonePicture(Box().node)) == ""


def test_the_half_of_two_without_a_vote_names_whom_it_waits_for() -> None:
    cluster = SimulatedCluster(2, split_policy="majority")
    (voter,) = picture_of(cluster["n1"].node).voters()
    other = "n2" if voter == "n1" else "n1"
    cluster[voter].kill()
    cluster.advance(5 * SECOND)
    status = of(cluster[other])
    assert status.status()["writable"] is False
    assert status.status()["partitions"]["open"] == 0  # type: ignore[index]
    why = f"it has no lease: no controller: 0 of 1 voters are connected; waits for {voter}"
    assert status.unready() == status.status()["waits"] == why


def test_the_half_of_two_with_the_vote_goes_on() -> None:
    cluster = SimulatedCluster(2, split_policy="majority")
    (voter,) = picture_of(cluster["n1"].node).voters()
    cluster["n2" if voter == "n1" else "n1"].kill()
    cluster.advance(5 * SECOND)
    assert of(cluster[voter]).unready() == ""


def test_a_minority_that_is_cut_off_names_all_others() -> None:
    cluster = SimulatedCluster(5, split_policy="majority")
    cluster.cut("n1", "n3", "n4", "n5")
    cluster.cut("n2", "n3", "n4", "n5")
    cluster.advance(10 * SECOND)
    why = "it has no lease: no controller: 2 of 5 voters are connected; waits for n3, n4, n5"
    assert of(cluster["n1"]).unready() == why


def test_one_that_the_controller_does_not_reach_names_it() -> None:
    cluster = SimulatedCluster(3, split_policy="majority")
    controller = picture_of(cluster["n1"].node).controller()
    other = next(name for name in cluster.sites if name != controller)
    before = of(cluster[other]).status()
    assert (before["controller"], before["writable"]) == (controller, True)
    cluster.cut(controller, other)
    cluster.advance(10 * SECOND)
    assert of(cluster[other]).unready() == f"it has no lease: it is not connected to the controller {controller}"
    (third,) = [name for name in cluster.sites if name not in (controller, other)]
    assert of(cluster[third]).unready() == ""
    assert picture_of(cluster[third].node).why_away(other)


def test_one_that_starts_alone_names_the_voters_and_what_their_addresses_answer() -> None:
    cluster = SimulatedCluster(3, split_policy="majority")
    for site in cluster.live():
        site.kill()
    cluster["n1"].revive()
    cluster.advance(5 * SECOND)
    why = of(cluster["n1"]).unready().split("; ")
    assert why[0] == "it waits to become a member of the cluster"
    assert why[1:3] == ["no controller: 1 of 3 voters are connected", "waits for n2, n3"]
    assert why[3:] == ["n2:1: nobody listens", "n3:1: nobody listens"]


def test_a_first_start_alone_names_the_seeds_that_do_not_answer() -> None:
    cluster = SimulatedCluster(1, split_policy="majority")
    cluster["n1"].kill()
    site = cluster.add("n2")
    cluster.advance(5 * SECOND)
    why = of(site).unready().split("; ")
    assert why[0] == "it waits to become a member of the cluster"
    assert "the first of the seeds founds it" in why[1]
    assert why[2:] == ["n1:1: nobody listens"]


def test_the_only_voter_that_starts_alone_waits_a_moment_and_goes_on() -> None:
    cluster = SimulatedCluster(2)
    (voter,) = picture_of(cluster["n1"].node).voters()
    cluster["n1"].kill()
    cluster["n2"].kill()
    cluster[voter].revive()
    cluster.advance(SECOND // 2)
    why = "it is the controller, and waits until all leases from before its election are over"
    assert why in of(cluster[voter]).unready()
    cluster.advance(5 * SECOND)
    assert of(cluster[voter]).unready() == ""


@pytest.mark.parametrize("full", [False, True])
def test_who_is_away_for_its_disk_says_so(full: bool) -> None:
    cluster = SimulatedCluster(3)
    site = cluster["n3"]
    site.storage(full)
    assert site.node.cluster_node is not None
    site.node.stalled("disk", cluster.now, cluster.now)
    cluster.advance(10 * SECOND)
    assert of(site).unready().startswith("the others go on without it: its disk stands still")
    assert ("its disk is full" in of(site).unready()) == full


def test_who_was_put_out_says_so_and_the_others_too() -> None:
    cluster = SimulatedCluster(3)
    assert of(cluster["n1"]).evict("n3", cluster.now) == ""
    cluster.advance(3 * SECOND)
    why = "the others go on without it: an operator has put this node out: start it again to have it back"
    assert of(cluster["n3"]).unready() == why
    assert picture_of(cluster["n1"].node).why_away("n3") == "its process was put out"


def test_a_controller_without_a_lease_does_not_speak_of_itself_as_of_another() -> None:
    picture = Drawn([["a", "b"]])
    picture.leased = False
    picture.heard = ["b"]
    assert "the controller b does not renew it" in wait_of(picture)
    picture.leader_of_log = "a"
    assert "it is the controller, and too few voters answer it" in wait_of(picture)


def test_a_side_that_can_fork_no_more_says_what_to_do() -> None:
    picture = Drawn([["a", "b"]])
    picture.leased = False
    picture.leader_of_log = ""
    picture.voting = ["b", "c"]
    assert wait_of(picture).endswith("waits for b, c")
    picture.more_forks = 0
    assert wait_of(picture).endswith("bring back the nodes that are away, or forget those that are lost")
    picture.split_policy = "majority"
    assert wait_of(picture).endswith("waits for b, c")
