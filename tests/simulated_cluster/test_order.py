"""The last retained message of a client stays, also when its session is elsewhere and its QoS differ (A8).

A message of QoS 2 goes by way of the leader of its session, others go from the client's node to the topic's leader.
"""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt import reason
from folkmoot.mqtt.packet import PUBACK, PUBREC, Ack, Disconnect, Packet, Properties, Publish, Will
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 8

GOODBYES: list[tuple[list[Packet], list[bytes]]] = [
    ([Disconnect(reason.NORMAL_DISCONNECTION)], []),
    ([Disconnect(reason.DISCONNECT_WITH_WILL)], [b"will"]),
    ([], [b"will"]),
]
"""How a client goes, and which wills are published then."""


def named(cluster: SimulatedCluster, prefix: str, leader: str) -> str:
    """Return a name of which the node leads the partition."""
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    leaders = cluster_node.fabric.leaders
    names = [f"{prefix}{number}" for number in range(99)]
    return next(name for name in names if leaders[hash64(name.encode()) % PARTITIONS] == leader)


def stage(will: Will | None = None) -> tuple[SimulatedCluster, Peer, str]:
    """A client at n3 whose session is at n1, and a topic of n2."""
    cluster = SimulatedCluster(3, replicas=1, partitions=PARTITIONS)
    peer = cluster["n3"].client(named(cluster, "c", "n1"))
    peer.connect(session_expiry=EVER, will=will)
    return cluster, peer, named(cluster, "t", "n2")


def retained(cluster: SimulatedCluster, topic: str) -> list[bytes]:
    reader = cluster["n2"].client("reader")
    reader.connect()
    reader.subscribe(topic, qos=1)
    return reader.payloads()


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("held", [("n1", "n2"), ("n3", "n1")])
def test_it_does_not_overtake_one_of_qos_2(qos: int, held: tuple[str, str]) -> None:
    cluster, peer, topic = stage()
    cluster.held = {held}
    peer.send(
        Publish(topic.encode(), b"1", 2, True, packet_id=1),
        Publish(topic.encode(), b"2", qos, True, packet_id=2 * qos),
        Publish(b"other", b"3", 0, False),
    )
    cluster.held = set()
    cluster.run()
    assert retained(cluster, topic) == [b"2"]
    peer.take(Ack, 1)
    if qos:
        peer.take(Ack, 2)


@pytest.mark.parametrize("qos", [0, 1])
def test_one_of_qos_2_does_not_overtake_it(qos: int) -> None:
    cluster, peer, topic = stage()
    cluster.held = {("n3", "n2")}
    peer.send(
        Publish(topic.encode(), b"1", qos, True, packet_id=2 * qos),
        Publish(topic.encode(), b"2", 2, True, packet_id=1),
    )
    assert not [packet for packet in peer.inbox if isinstance(packet, Ack) and packet.kind == PUBREC]
    cluster.held = set()
    cluster.run()
    assert retained(cluster, topic) == [b"2"]
    peer.take(Ack, 1)


def test_what_waits_when_the_client_goes_is_published() -> None:
    cluster, peer, topic = stage()
    cluster.held = {("n1", "n2")}
    peer.send(Publish(topic.encode(), b"1", 2, True, packet_id=1), Publish(topic.encode(), b"2", 1, True, packet_id=2))
    peer.lose()
    cluster.held = set()
    cluster.run()
    assert len(retained(cluster, topic)) == 1
    assert cluster["n3"].node.counters.publishers_paused == 0


@pytest.mark.parametrize(("last", "wills"), GOODBYES)
def test_what_still_waits_when_the_client_goes_hides_no_goodbye(last: list[Packet], wills: list[bytes]) -> None:
    cluster, peer, topic = stage(Will(b"will", b"will", 1, False))
    successor = cluster["n2"].client("heir")
    successor.connect()
    successor.subscribe("will", qos=1)
    cluster.held = {("n1", "n2")}
    peer.send(
        Publish(topic.encode(), b"1", 2, True, packet_id=1),
        Publish(topic.encode(), b"2", 1, True, packet_id=2),  # behind the first one, or when the client has gone
        Publish(topic.encode(), b"3", 2, True, packet_id=3),  # behind the second one
        *last,
    )
    peer.lose()
    cluster.held = set()
    cluster.run()
    assert successor.payloads() == wills
    assert cluster["n3"].node.counters.publishers_paused == 0


def with_replicas(cluster: SimulatedCluster, prefix: str, replicas: list[str], partitions: int = PARTITIONS) -> str:
    """Return a name whose partition has these copies, the leader first."""
    view = cluster["n1"].cluster_node.membership.view
    assert view is not None
    names = [f"{prefix}{number}" for number in range(999)]
    return next(name for name in names if view.replicas[hash64(name.encode()) % partitions] == replicas)


@pytest.mark.parametrize("qos", [0, 1])
def test_one_of_qos_2_does_not_overtake_it_from_the_next_leader_of_the_session(qos: int) -> None:
    """The message with QoS 2 is in the outbox of the session's partition, the other one still at its client's node."""
    cluster = SimulatedCluster(3, replicas=2, partitions=PARTITIONS)
    cluster.hand_log_to("n2")
    publisher = cluster["n1"].client(with_replicas(cluster, "c", ["n1", "n2"]))
    publisher.connect(session_expiry=EVER)
    topic = named(cluster, "t", "n3")
    cluster.held = {("n1", "n3")}
    publisher.send(Publish(topic.encode(), b"old", qos, True, packet_id=qos))
    publisher.send(Publish(topic.encode(), b"new", 2, True, packet_id=2))
    cluster.advance(SECOND // 100)
    cluster.hand_partition_to(hash64(publisher.client_id.encode()) % PARTITIONS, "n2")
    cluster.advance(SECOND // 10)
    cluster.held = set()
    cluster.advance(SECOND)
    assert [packet.kind for packet in publisher.inbox if isinstance(packet, Ack)] == [PUBACK, PUBREC][1 - qos :]
    assert retained(cluster, topic) == [b"new"]


@pytest.mark.parametrize("replicas", [["n3", "n2"], ["n1", "n3"]])
def test_behind_a_retained_message_none_is_certain_before_one_that_its_node_would_drop(replicas: list[str]) -> None:
    """[A3] The node of the client loses its lease; the client repeats at another node what was not answered.

    replicas: of the subscriber's partition. Its leader, or the follower of its leader, does not get the first message.
    """
    cluster = SimulatedCluster(3, replicas=2, partitions=PARTITIONS, split_policy="majority")
    cluster.hand_log_to("n2")
    subscriber = cluster["n2"].client(with_replicas(cluster, "s", replicas))
    subscriber.connect(session_expiry=EVER)
    subscriber.subscribe("order", qos=1)
    topic = named(cluster, "t", "n1")
    publisher = cluster["n1"].client(with_replicas(cluster, "c", ["n1", "n2"]))
    publisher.connect(session_expiry=EVER)
    cluster.held = {("n1", "n3")}
    packets = [
        Publish(b"order", b"1", 1, False, packet_id=1),
        Publish(topic.encode(), b"r", 2, True, packet_id=2),
        Publish(b"order", b"2", 1, False, packet_id=3),
    ]
    publisher.send(*packets)
    cluster.advance(SECOND // 10)
    assert [packet for packet in publisher.inbox if isinstance(packet, Ack) and packet.kind == PUBACK] == []
    cluster.cut("n1", "n2", "n3")
    cluster.held = set()
    cluster.advance(8 * SECOND)
    assert publisher.closed
    again = cluster["n2"].client(publisher.client_id)
    again.connect(clean_start=False, session_expiry=EVER)
    for packet in packets:
        packet.dup = True
    again.send(packets[0], packets[2])
    cluster.advance(SECOND)
    cluster.heal()
    cluster.settle()
    assert list(dict.fromkeys(subscriber.payloads())) == [b"1", b"2"]


@pytest.mark.parametrize(("last", "wills"), GOODBYES)
def test_what_waits_at_the_node_of_the_session_hides_no_goodbye(last: list[Packet], wills: list[bytes]) -> None:
    cluster = SimulatedCluster(3, replicas=1, partitions=PARTITIONS)
    topic = named(cluster, "t", "n2")
    peer = cluster["n1"].client(named(cluster, "c", "n1"))
    peer.connect(session_expiry=EVER, will=Will(b"will", b"will", 1, False))
    successor = cluster["n3"].client("heir")
    successor.connect()
    successor.subscribe("will", qos=1)
    cluster.held = {("n1", "n2")}
    peer.send(
        Publish(topic.encode(), b"1", 1, True, packet_id=1),
        Publish(topic.encode(), b"2", 2, True, packet_id=2),
        Publish(topic.encode(), b"3", 1, True, packet_id=3),  # for the outbox, and the first one is not
        *last,
    )
    assert cluster["n1"].node.counters.publishers_paused == 1
    peer.lose()
    cluster.held = set()
    cluster.run()
    cluster.advance(SECOND)
    assert successor.payloads() == wills
    assert cluster["n1"].node.counters.publishers_paused == 0


def produced(number: int) -> Properties:
    return properties(user_properties=[("folkmoot-producer", "p"), ("folkmoot-seq", str(number))])


def led_by(cluster: SimulatedCluster, partition: int) -> str:
    view = cluster["n1"].cluster_node.membership.view
    assert view is not None
    return view.leader_of(partition)


def test_what_a_producer_has_sent_to_the_leader_before_is_handled_when_its_node_leads() -> None:
    """The node holds up newer messages for an older one of its own, not those that only it has any more."""
    cluster = SimulatedCluster(4, replicas=2, partitions=32)
    cluster.hand_log_to("n1")
    n1, n2, n4 = cluster["n1"], cluster["n2"], cluster["n4"]
    subscriber = n4.client(with_replicas(cluster, "s", ["n4", "n3"], 32))
    subscriber.connect(session_expiry=EVER)
    subscriber.subscribe("t", qos=1)
    name = with_replicas(cluster, "p", ["n1", "n2"], 32)
    partition = hash64(name.encode()) % 32
    publisher = n1.client(name)
    publisher.connect(session_expiry=EVER)
    cluster.held = {("n3", "n4")}
    publisher.send(Publish(b"t", b"1", 1, False, packet_id=1))
    cluster.run()
    cluster.hand_partition_to(partition, "n2")
    cluster.run()
    assert led_by(cluster, partition) == "n2"
    cluster.held = {("n3", "n4"), ("n1", "n2")}
    for number in (2, 3):
        publisher.send(Publish(b"t", b"%d" % number, 1, False, False, number, produced(number)))
    cluster.run()
    n2.kill()
    for _ in range(600):
        cluster.advance(SECOND // 500)
        if led_by(cluster, partition) == "n1":
            break
    cluster.advance(SECOND // 50)
    cluster.held = set()
    cluster.advance(5 * SECOND)
    assert sorted(packet.packet_id for packet in publisher.inbox if isinstance(packet, Ack)) == [1, 2, 3]
    assert subscriber.payloads() == [b"1", b"2", b"3"]


def test_a_producer_without_a_name_is_none() -> None:
    cluster = SimulatedCluster(3, replicas=2, partitions=PARTITIONS)
    subscriber = cluster["n2"].client(named(cluster, "s", "n2"))
    subscriber.connect(session_expiry=EVER)
    subscriber.subscribe("t", qos=1)
    publisher = cluster["n1"].client(named(cluster, "p", "n2"))
    publisher.connect(session_expiry=EVER)
    nameless = properties(user_properties=[("folkmoot-producer", "")])
    publisher.send(*[Publish(b"t", b"%d" % number, 1, False, False, number, nameless) for number in range(1, 6)])
    cluster.run()
    assert [packet.packet_id for packet in publisher.inbox if isinstance(packet, Ack)] == [1, 2, 3, 4, 5]
    assert subscriber.payloads() == [b"1", b"2", b"3", b"4", b"5"]
