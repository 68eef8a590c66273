"""What an operator may not do by mistake: with real cores in a cluster, and for pictures that a test draws."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.peer.member import LEAVING
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.status import NodeStatus
from tests.harness.peer import EVER
from tests.harness.picture import Drawn, Roles
from tests.harness.simulated_cluster import SimulatedCluster, Site

ALL: Roles = [["a", "b"], ["b", "a"]]


def of(site: Site) -> NodeStatus:
    return NodeStatus(picture_of(site.node))


def status(site: Site) -> dict[str, Any]:
    return of(site).status()


def rest(cluster: SimulatedCluster) -> None:
    cluster.run()
    cluster.advance(5 * SECOND)


def empty(site: Site) -> None:
    """Put another disk into a node that is down; its starts are numbered from anywhere, as on a new one."""
    site.store = type(site.store)()
    site.seed += 1 << 30


def told(site: Site) -> list[str]:
    return [event.kind for event in site.events if event.kind.startswith("copies_")]


def test_the_only_copy_is_not_put_out_by_a_slip() -> None:
    picture = Drawn([["a", "b"], ["b"], ["b"]])
    why = NodeStatus(picture).evict("b", 1)
    assert "only copy of 2 partitions (1, 2)" in why
    assert "folkmoot evict b --force" in why
    assert "force=true" in why
    assert NodeStatus(picture).evict("a", 1) == "", "the others have all that it has"
    assert NodeStatus(picture).evict("b", 1, True) == ""
    assert picture.orders == [("evict", "a"), ("evict", "b")]


def test_the_last_one_that_stays_is_not_put_out_by_a_slip() -> None:
    picture = Drawn([["a", "b"]] * 3, members="ab")
    picture.members[0].state = LEAVING
    why = NodeStatus(picture).evict("b", 1)
    assert "nobody would be left to serve, because a leaves" in why
    assert "--undo" in why
    assert NodeStatus(picture).evict("a", 1) == ""
    assert NodeStatus(picture).evict("b", 1, True) == ""


def test_who_is_heard_is_not_forgotten_by_a_slip() -> None:
    picture = Drawn(ALL, members="ab", known="abc")
    picture.heard = ["c"]
    assert "c runs and is heard" in NodeStatus(picture).forget("c", 1)
    assert picture.orders == []
    assert NodeStatus(picture).forget("c", 1, True) == ""
    picture.heard = ["a", "b"]
    assert NodeStatus(picture).forget("c", 1) == ""


def test_who_has_the_only_copies_is_not_forgotten_by_a_slip() -> None:
    picture = Drawn(ALL, members="ab", known="abcd")
    picture.losses.missing = {1: ["c"], 0: ["c", "d"]}
    why = NodeStatus(picture).forget("c", 1)
    assert "only copies of what 1 partitions (1) had" in why
    assert "folkmoot forget c --force" in why
    assert NodeStatus(picture).forget("d", 1) == "", "c has the same"
    picture.known_ids = list("abc")
    assert "2 partitions (0, 1)" in NodeStatus(picture).forget("c", 1)


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(2, replicas=1)


def test_what_is_missing_is_told_until_it_is_back(cluster: SimulatedCluster) -> None:
    lost = [p for p, entry in enumerate(of(cluster["n1"]).partitions()) if entry["leader"] == "n2"]
    assert lost
    assert "the only copy" in of(cluster["n1"]).evict("n2", cluster.now)
    rest(cluster)
    assert status(cluster["n1"])["copies_missing"] == []
    assert of(cluster["n1"]).evict("n2", cluster.now, True) == ""
    rest(cluster)
    assert status(cluster["n1"])["copies_missing"] == [{"nodes": ["n2"], "partitions": lost}]
    assert told(cluster["n1"]) == ["copies_missing"]
    assert "n2 runs and is heard" in of(cluster["n1"]).forget("n2", cluster.now)
    cluster["n2"].kill()
    rest(cluster)
    assert "only copies" in of(cluster["n1"]).forget("n2", cluster.now)
    cluster["n1"].kill()
    cluster["n1"].revive()
    rest(cluster)
    assert status(cluster["n1"])["copies_missing"] == [{"nodes": ["n2"], "partitions": lost}], "also after a restart"
    cluster["n2"].revive()
    cluster.settle()
    for site in cluster.live():
        assert status(site)["copies_missing"] == []
        assert status(site)["last_loss"] is None
    assert told(cluster["n1"])[-1] == "copies_back"


def test_a_loss_by_force_stays_in_the_status(cluster: SimulatedCluster) -> None:
    lost = len([entry for entry in of(cluster["n1"]).partitions() if entry["leader"] == "n2"])
    cluster["n2"].kill()
    rest(cluster)
    assert of(cluster["n1"]).forget("n2", cluster.now, True) == ""
    rest(cluster)
    found = status(cluster["n1"])
    assert (found["copies_missing"], found["last_loss"]["partitions"]) == ([], lost)
    assert found["last_loss"]["nodes"] == ["n2"]
    assert told(cluster["n1"]) == ["copies_missing", "copies_lost"]
    late = cluster.add("n3")
    cluster.settle()
    assert status(late)["last_loss"] == found["last_loss"], "all members tell it"
    assert "copies_lost" not in told(late)


def test_a_dead_node_whose_copies_others_have_is_forgotten_without_force() -> None:
    cluster = SimulatedCluster(3, replicas=2)
    cluster["n3"].kill()
    cluster.settle()
    assert status(cluster["n1"])["copies_missing"] == []
    assert of(cluster["n1"]).forget("n3", cluster.now) == ""
    rest(cluster)
    assert status(cluster["n1"])["last_loss"] is None
    assert told(cluster["n1"]) == []


def test_an_emptied_disk_is_told_as_a_loss() -> None:
    cluster = SimulatedCluster(2, replicas=1)
    cluster["n2"].kill()
    empty(cluster["n2"])
    cluster["n2"].revive()
    cluster.settle()
    assert status(cluster["n1"])["last_loss"]["nodes"] == ["n2"]
    assert status(cluster["n1"])["copies_missing"] == []


def lose_power(cluster: SimulatedCluster) -> None:
    """Three of five nodes go; the others make a view and go before they begin anything, or the second has stored it."""
    cluster["n5"].hold_writes()
    cluster.freeze()
    for name in ("n1", "n2", "n3"):
        cluster[name].kill()
    for _ in range(1_000):
        if "copies_missing" in told(cluster["n4"]):
            break
        if not cluster.step():
            cluster.now += SECOND // 100
    assert "copies_missing" in told(cluster["n4"])
    assert cluster["n4"].turn()  # its new view goes to the disk, and it has heard nothing of the other one's
    cluster["n4"].kill()
    cluster["n5"].kill()
    cluster.thaw()


def test_a_power_cut_in_two_blows_loses_nothing() -> None:
    cluster = SimulatedCluster(5, partitions=32)
    lose_power(cluster)
    for site in cluster.sites.values():
        site.revive()
    cluster.settle()
    for site in cluster.live():
        assert (status(site)["last_loss"], status(site)["copies_missing"]) == (None, [])


def test_planned_restarts_with_enough_copies_are_no_news() -> None:
    cluster = SimulatedCluster(3)
    for name in ("n1", "n2", "n3"):
        cluster[name].kill()
        rest(cluster)
        cluster[name].revive()
        cluster.settle()
    assert [told(site) for site in cluster.live()] == [[], [], []]


def test_what_is_left_without_a_quorum_is_a_cluster_again_by_order() -> None:
    cluster = SimulatedCluster(3, split_policy="majority")
    site = cluster["n1"]
    cluster["n2"].kill()
    cluster["n3"].kill()
    cluster.advance(10 * SECOND)
    assert "no controller: 1 of 3 voters are connected" in of(site).unready()
    for policy in ("available", "majority"):
        site.kill()
        site.settings.split_policy = policy
        site.revive()
        cluster.advance(10 * SECOND)
        assert of(site).unready() == ""
        if policy == "available":
            assert status(site)["apart"] is True
            for name in ("n2", "n3"):
                assert of(site).forget(name, cluster.now) == ""
                rest(cluster)
        found = status(site)
        assert (found["apart"], found["voters"], found["copies_missing"]) == (False, ["n1"], [])
        assert found["partitions"]["open"] == found["partitions"]["total"]


def cut_off(cluster: SimulatedCluster) -> None:
    """Let n3 take a message on its own side of a split, come back, and die before that is merged."""
    reader = cluster["n1"].client("reader")
    reader.connect(session_expiry=EVER)
    reader.subscribe("t", qos=1)
    reader.disconnect()
    cluster.advance(SECOND)
    cluster.cut("n3", "n1", "n2")
    cluster.advance(8 * SECOND)
    writer = cluster["n3"].client("writer")
    writer.connect()
    writer.publish("t", b"only n3 has it", qos=1)
    cluster.advance(SECOND)
    configuration = cluster["n1"].control.configuration
    assert configuration is not None
    cluster.heal()
    cluster.freeze()
    for _ in range(10_000):
        configuration = cluster["n1"].control.configuration
        if configuration is not None and configuration.branches:
            break
        if not cluster.step():
            cluster.now += SECOND // 100
    assert configuration is not None
    assert configuration.branches
    cluster["n3"].kill()
    cluster.thaw()
    cluster.advance(5 * SECOND)


def test_what_was_acknowledged_in_a_split_is_not_forgotten_by_a_slip_before_it_is_merged() -> None:
    cluster = SimulatedCluster(3)
    cut_off(cluster)
    site = cluster["n1"]
    why = of(site).forget("n3", cluster.now)
    assert "n3 has acknowledged changes of " in why
    assert "on another side of a split" in why
    assert "folkmoot forget n3 --force" in why
    site.cluster_node.membership.forget("n3", cluster.now)  # as a node would that does not know it yet
    cluster.advance(2 * SECOND)
    (refused,) = [event.fields for event in site.events if event.kind == "forget_refused"]
    assert refused["node"] == "n3"
    assert "not merged yet" in str(refused["why"])
    assert refused["partitions"] == 0
    assert "would be lost" in str(refused["why"])
    assert "n3" in of(site).picture.known()
    cluster["n3"].revive()
    cluster.settle(60 * SECOND)
    reader = cluster["n1"].client("reader")
    reader.resume()
    assert reader.payloads() == [b"only n3 has it"]


def test_what_is_given_up_by_force_is_told() -> None:
    cluster = SimulatedCluster(3)
    cut_off(cluster)
    assert of(cluster["n1"]).forget("n3", cluster.now, True) == ""
    cluster.advance(2 * SECOND)
    assert "n3" not in of(cluster["n1"]).picture.known()
    (given_up,) = [event.fields for site in cluster.live() for event in site.events if event.kind == "given_up"]
    assert given_up["node"] == "n3"
    assert given_up["partitions"] == 0
    assert f"changes of {given_up['unmerged']} partitions (" in str(given_up["why"])
