"""A retained message comes to a new subscriber, live or as the retained one, however slow its ways are (A5, A8)."""

from __future__ import annotations

from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import Publish, Suback, Subscribe
from folkmoot.turn.barrier import Barrier
from tests.harness.peer import Peer
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 8


def topic_of(cluster: SimulatedCluster, leader: str) -> str:
    """Return a topic whose retained message that node keeps."""
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    leaders = cluster_node.fabric.leaders
    return next(f"t{n}" for n in range(99) if leaders[hash64(b"t%d" % n) % PARTITIONS] == leader)


def clients(cluster: SimulatedCluster) -> tuple[Peer, Peer]:
    publisher = cluster["n1"].client("publisher")
    publisher.connect()
    subscriber = cluster["n3"].client("subscriber")
    subscriber.connect()
    return publisher, subscriber


def test_who_subscribes_waits_for_a_message_on_its_way_to_the_leader_of_its_topic() -> None:
    cluster = SimulatedCluster(3, replicas=1, partitions=PARTITIONS)
    topic = topic_of(cluster, "n2")
    publisher, subscriber = clients(cluster)
    cluster.held = {("n1", "n2")}
    publisher.send(Publish(topic.encode(), b"1", 1, True, packet_id=1))
    subscriber.send(Subscribe(1, [(topic.encode(), 1)]))
    assert subscriber.receive() == [], "the message would come behind the look for it"
    cluster.held = set()
    cluster.run()
    subscriber.take(Suback, 1)
    assert subscriber.messages() == [(topic, b"1")]


def test_a_copy_is_looked_at_when_it_has_what_was_published_before() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    topic = topic_of(cluster, "n1")
    publisher, subscriber = clients(cluster)
    cluster.held = {("n3", "n1")}
    subscriber.send(Subscribe(1, [(topic.encode(), 1)]))
    cluster["n3"].hold_writes()
    publisher.send(Publish(topic.encode(), b"1", 1, True, packet_id=1))
    cluster.held = set()
    cluster.run()
    assert subscriber.receive() == [], "the copy at n3 is not on the disk yet"
    cluster["n3"].release_writes()
    cluster.run()
    subscriber.take(Suback, 1)
    assert subscriber.messages() == [(topic, b"1")]


def test_a_clear_of_nothing_holds_up_nobody() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    topic = topic_of(cluster, "n1")
    publisher, subscriber = clients(cluster)
    publisher.publish(topic, b"", qos=0, retain=True)
    assert subscriber.subscribe(topic, qos=1) == [1]


def test_announcements_wait_for_what_began_before_them_only() -> None:
    barrier = Barrier()
    first, second = barrier.begin(), barrier.begin()
    barrier.announced("a", 1, 0)
    third = barrier.begin()
    barrier.announced("b", 2, 0)
    assert barrier.take(0) == []
    barrier.end(second)
    barrier.end(0)
    assert barrier.take(0) == []
    barrier.end(first)
    assert [one.number for one in barrier.take(0)] == [1]
    barrier.end(third)
    assert [(one.node_id, one.number) for one in barrier.take(0)] == [("b", 2)]
    assert barrier.take(0) == []


def test_announcements_wait_for_turns_in_which_something_was_retained_here() -> None:
    barrier = Barrier()
    barrier.kept_here(7)
    barrier.announced("a", 1, 7)
    barrier.announced("b", 2, 7)
    assert barrier.take(6) == []
    barrier.forget("a")
    assert [one.node_id for one in barrier.take(7)] == ["b"]
    barrier.announced("a", 3, 6)  # the turn changed nothing: there will be none of that number
    assert [one.number for one in barrier.take(6)] == [3]
