"""One full disk in a cluster: what it refuses names it, others take over what it leads, and it loses nothing."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import Ack, Publish
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.status import NodeStatus
from tests.harness.peer import Peer
from tests.harness.simulated_cluster import SimulatedCluster, Site

WAIT = 5 * SECOND
HOLD = 12 * SECOND
QUOTA = 0x97


def status(site: Site) -> NodeStatus:
    return NodeStatus(picture_of(site.node))


def leads(cluster: SimulatedCluster, name: str) -> list[int]:
    return [entry["partition"] for entry in status(cluster["n1"]).partitions() if entry["leader"] == name]  # type: ignore[misc]


def retained_of(cluster: SimulatedCluster, name: str, seen_by: str = "n1") -> str:
    """A topic whose retained message is in a partition that a node leads."""
    topics = [f"t/{number}" for number in range(200)]
    return next(topic for topic in topics if status(cluster[seen_by]).where_topic(topic)["leader"] == name)


def keep(peer: Peer, topic: str, payload: bytes = b"m") -> int:
    return peer.publish(topic, payload, qos=1, retain=True)


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(3)


@pytest.fixture
def peer(cluster: SimulatedCluster) -> Peer:
    found = cluster["n1"].client("a")
    found.connect()
    return found


def test_a_node_that_is_started_again_on_a_full_disk_leads_nothing_from_the_beginning(
    cluster: SimulatedCluster,
) -> None:
    cluster["n2"].storage(True)
    cluster.advance(WAIT)
    cluster["n2"].kill()
    cluster.advance(SECOND // 2)  # it is not gone for so long that its copies are made elsewhere
    cluster.freeze()
    cluster["n2"].revive()
    cluster["n2"].storage(True)
    cluster.thaw()
    for _ in range(5 * 20):
        cluster.advance(SECOND // 20)
        assert leads(cluster, "n2") == []
    assert cluster.settled()
    assert status(cluster["n1"]).status()["disks_full"] == ["n2"]


def test_a_refusal_names_the_node_whose_disk_is_full(cluster: SimulatedCluster, peer: Peer) -> None:
    topic = retained_of(cluster, "n2")
    cluster["n2"].storage(True)
    cluster.advance(SECOND)
    peer.send(Publish(topic.encode(), b"m", 1, True, False, 9))
    answer = peer.expect(Ack)
    assert answer.code == QUOTA
    assert answer.properties is not None
    assert answer.properties.reason == "no room on the disk of n2"
    assert keep(peer, retained_of(cluster, "n1")) in (0, 0x10)


def test_every_node_names_the_full_disk_and_what_it_refuses(cluster: SimulatedCluster) -> None:
    mine = leads(cluster, "n2")
    cluster["n2"].storage(True)
    cluster.advance(SECOND)
    for site in cluster.live():
        found = status(site).status()
        assert found["disks_full"] == ["n2"]
        assert found["partitions"]["refusing"] == len(mine)  # type: ignore[index]
        assert [entry["partition"] for entry in status(site).partitions() if entry["refuses"]] == mine
        assert status(site).unready() == ""
        cost = f"{len(mine)} of 8 partitions refuse what must be stored"
        assert status(site).caution() == f"the disk of n2 is full: {cost}"


def test_after_a_while_others_lead_and_all_is_accepted_on_all_disks(cluster: SimulatedCluster, peer: Peer) -> None:
    topics = [retained_of(cluster, name) for name in cluster.sites]
    cluster["n2"].storage(True)
    cluster.advance(WAIT)
    cluster.settle()
    assert [keep(peer, topic) for topic in topics] == [0x10] * 3
    assert leads(cluster, "n2") == []
    for site in cluster.live():
        found = status(site).status()
        assert found["disks_full"] == ["n2"]
        assert (found["partitions"]["refusing"], found["partitions"]["under_replicated"]) == (0, 0)  # type: ignore[index]
        assert status(site).caution() == "the disk of n2 is full; other nodes lead its partitions"


def test_a_client_of_the_full_node_is_served(cluster: SimulatedCluster) -> None:
    cluster["n2"].storage(True)
    cluster.advance(WAIT)
    cluster.settle()
    waiting = cluster["n2"].client("waits")
    assert waiting.resume() is not None
    assert waiting.subscribe("w", qos=1) == [1]
    there = cluster["n2"].client("b")
    there.connect()
    assert there.publish("w", b"1", qos=1) == 0
    assert waiting.payloads() == [b"1"]


def test_with_room_it_leads_again_and_a_restart_shows_that_nothing_is_lost(
    cluster: SimulatedCluster, peer: Peer
) -> None:
    mine = leads(cluster, "n2")
    topic = retained_of(cluster, "n2")
    assert keep(peer, topic, b"before") in (0, 0x10)
    cluster["n2"].storage(True)
    cluster.advance(WAIT)
    cluster.settle()
    assert keep(peer, topic, b"meanwhile") in (0, 0x10)
    cluster["n2"].storage(False)
    cluster.advance(HOLD)
    cluster.settle()
    assert len(leads(cluster, "n2")) >= len(mine) - 1, "it leads as much as others do, within one"
    for name in ("n1", "n3"):
        cluster[name].kill()
    cluster.advance(WAIT)
    reader = cluster["n2"].client("reader")
    reader.connect()
    reader.subscribe(topic)
    assert reader.payloads() == [b"meanwhile"]


@pytest.mark.parametrize("policy", ["available", "majority"])
def test_two_nodes_go_on_when_one_disk_is_full(policy: str) -> None:
    cluster = SimulatedCluster(2, replicas=2, split_policy=policy)
    topics = [retained_of(cluster, name) for name in ("n1", "n2")]
    cluster["n1"].storage(True)
    cluster.advance(WAIT)
    cluster.settle()
    peer = cluster["n1"].client("a")
    peer.connect()
    assert [keep(peer, topic) in (0, 0x10) for topic in topics] == [True, True]
    assert leads(cluster, "n1") == []


def test_with_all_disks_full_what_must_be_kept_is_refused(cluster: SimulatedCluster, peer: Peer) -> None:
    for site in cluster.live():
        site.storage(True)
    cluster.advance(WAIT)
    assert [keep(peer, retained_of(cluster, name)) for name in cluster.sites] == [QUOTA] * 3
    assert status(cluster["n1"]).caution().startswith("the disks of n1, n2, n3 are full: 8 of 8 partitions refuse")


def test_an_only_copy_stays_where_it_is_and_is_refused() -> None:
    cluster = SimulatedCluster(2, replicas=1)
    cluster["n2"].storage(True)
    cluster.advance(WAIT)
    cluster.settle()
    peer = cluster["n1"].client("a")
    peer.connect()
    assert keep(peer, retained_of(cluster, "n2")) == QUOTA
    cluster["n2"].storage(False)
    cluster.advance(HOLD)
    assert keep(peer, retained_of(cluster, "n2")) in (0, 0x10)


def test_the_last_node_with_room_may_not_be_stopped(cluster: SimulatedCluster) -> None:
    cluster["n2"].storage(True)
    cluster.advance(WAIT)
    cluster.settle()
    assert [status(cluster["n1"]).safe_to_stop(name)["safe"] for name in cluster.sites] == [True] * 3  # type: ignore[index]
    cluster["n3"].storage(True)
    cluster.advance(WAIT)
    cluster.settle()
    answer = status(cluster["n2"]).safe_to_stop("n1")
    assert answer is not None
    assert not answer["safe"]
    assert str(answer["why"]).startswith("the disks with the other copies of 8 partitions")
    assert status(cluster["n1"]).safe_to_stop("n2")["safe"]  # type: ignore[index]
