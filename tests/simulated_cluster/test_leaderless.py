"""One partition that cannot answer holds up nobody who does not need it (A11)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.membership.loss import Losses
from folkmoot.mqtt import reason
from folkmoot.mqtt.packet import V311, Ack, Disconnect, Publish, Will
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 8


def topic_of(cluster: SimulatedCluster, leader: str, but: int = -1) -> tuple[str, int]:
    """Return a topic whose retained message is led by a node, and its partition."""
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    for number in range(1000):
        topic = f"r/{number}"
        partition = hash64(topic.encode()) % PARTITIONS
        if cluster_node.fabric.leaders[partition] == leader and partition != but:
            return topic, partition
    raise AssertionError(f"{leader} leads nothing else")


def send(peer: Peer, topic: str, packet_id: int, qos: int = 1) -> None:
    peer.send(Publish(topic.encode(), b"x", qos, True, False, packet_id))


def acks(peer: Peer) -> list[int]:
    return [packet.packet_id for packet in peer.receive() if isinstance(packet, Ack)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_leader_that_hangs_holds_up_only_those_who_need_it(qos: int) -> None:
    cluster = SimulatedCluster(3, replicas=1, partitions=PARTITIONS)
    near, _ = topic_of(cluster, "n1")
    far, _ = topic_of(cluster, "n3")
    next_, _ = topic_of(cluster, "n2")
    both, other = cluster["n1"].client("both"), cluster["n1"].client("other")
    both.connect()
    other.connect()
    cluster["n3"].up = False  # it hangs: nobody knows yet
    send(both, far, 1, qos)
    send(other, near, 1, qos)
    send(other, next_, 2, qos)
    send(both, near, 2, qos)
    cluster.run()
    assert acks(other) == [1, 2]
    assert acks(both) == [], "acknowledgements of one connection are in the order of its packets [MQTT-4.6.0-2]"
    late = cluster["n1"].client(near)  # so that n1 has its registration
    late.connect()
    send(late, near, 7, qos)
    assert acks(late) == [7]
    cluster["n3"].up = True
    cluster.run()
    assert acks(both) == [1, 2]


def spoil(cluster: SimulatedCluster, partition: int) -> None:
    """Damage all copies of a partition."""
    for site in cluster.sites.values():
        assert site.node.cluster_node is not None
        site.node.cluster_node.replication.replicas[partition].spoil("a test")
    cluster.advance(5 * SECOND)


def spoiled(policy: str = "available") -> tuple[SimulatedCluster, str, str, int]:
    """Return a cluster, a topic whose partition has damaged copies only, a topic of another one, and that partition."""
    cluster = SimulatedCluster(3, partitions=PARTITIONS, split_policy=policy)
    far, lost = topic_of(cluster, "n3")
    near, _ = topic_of(cluster, "n1", lost)
    spoil(cluster, lost)
    return cluster, far, near, lost


def test_a_partition_without_a_sound_copy_is_refused_and_named() -> None:
    cluster, far, near, lost = spoiled("majority")
    peer = cluster["n1"].client("modern")
    peer.connect()
    send(peer, far, 1)
    answer = peer.expect(Ack)
    assert answer.code == reason.IMPLEMENTATION_SPECIFIC_ERROR
    assert answer.properties is not None
    assert f"partition {lost} has no leader" in str(answer.properties.reason)
    send(peer, near, 2)
    assert acks(peer) == [2]
    old = cluster["n1"].client("old", version=V311)
    old.connect()
    send(old, near, 1)
    assert acks(old) == [1]
    send(old, far, 2)
    assert old.closed, "3.1.1 cannot refuse a message: its client keeps it"


def test_nothing_of_an_idempotent_producer_is_accepted_behind_what_could_not_be_taken() -> None:
    """It repeats a message of which it has no answer, and a later number would make that one count as known."""
    cluster, far, near, _ = spoiled()
    peer = cluster["n1"].client("producer")
    peer.connect()
    for number, topic in ((1, far), (2, near)):
        named = properties(user_properties=[("folkmoot-producer", "p"), ("folkmoot-seq", str(number))])
        if not peer.closed:
            peer.send(Publish(topic.encode(), b"x", 1, True, False, number, named))
    assert acks(peer) == []
    peer.expect_close(reason.IMPLEMENTATION_SPECIFIC_ERROR)


def test_what_waits_for_a_partition_when_its_last_copy_is_found_to_be_damaged_is_given_back() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    far, lost = topic_of(cluster, "n3")
    peer = cluster["n1"].client("waits")
    peer.connect()
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    cluster_node.fabric.open[lost] = False  # as while its leader takes over
    send(peer, far, 1)
    assert acks(peer) == []
    spoil(cluster, lost)
    assert peer.expect(Disconnect).code == reason.SERVER_BUSY
    other = cluster["n1"].client("other")
    other.connect()
    near, _ = topic_of(cluster, "n1", lost)
    send(other, near, 1)
    assert acks(other) == [1]


def test_a_will_that_nobody_can_retain_holds_up_no_subscription() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    far, lost = topic_of(cluster, "n3")
    mortal = next(f"m{n}" for n in range(99) if hash64(b"m%d" % n) % PARTITIONS != lost)
    peer = cluster["n1"].client(mortal)
    peer.connect(will=Will(far.encode(), b"will", 1, True, None))
    subscriber = cluster["n2"].client(next(f"s{n}" for n in range(99) if hash64(b"s%d" % n) % PARTITIONS != lost))
    subscriber.connect()
    spoil(cluster, lost)
    peer.lose()
    cluster.advance(SECOND)
    assert subscriber.subscribe("other", qos=1) == [1]
    for number in range(20):
        if hash64(b"late%d" % number) % PARTITIONS != lost:
            cluster["n2"].client(f"late{number}").connect(session_expiry=EVER)


def test_a_partition_whose_last_copy_is_damaged_is_tried_again_at_each_start_and_can_be_given_up() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    far, lost = topic_of(cluster, "n3")
    spoil(cluster, lost)
    holder = losses(cluster["n1"]).damaged[lost]
    other = next(site for site in cluster.sites.values() if site.name != holder)
    assert losses(other).missing == {}, "it is there, and cannot be read"
    cluster[holder].kill()
    cluster.advance(5 * SECOND)
    assert losses(other).damaged == {lost: holder}
    cluster[holder].revive()
    cluster.advance(10 * SECOND)
    assert "cannot_lead" in cluster[holder].kinds()
    assert losses(other).damaged == {lost: holder}
    cluster[holder].kill()
    cluster.advance(5 * SECOND)
    assert other.node.cluster_node is not None
    other.node.cluster_node.membership.forget(holder, cluster.now, True)
    cluster.advance(5 * SECOND)
    assert losses(other).damaged == {}
    assert [(loss.partitions, loss.nodes) for loss in losses(other).past] == [(1, [holder])]
    peer = other.client("late")
    peer.connect()
    send(peer, far, 1)
    assert acks(peer) == [1], "it goes on with what another copy has"


def losses(site: Site) -> Losses:
    assert site.node.cluster_node is not None
    view = site.node.cluster_node.view
    assert view is not None
    return view.losses
