"""A retained message comes to a new subscriber, live or as the retained one, however slow its ways are (A5, A8)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.kernel.hash import hash64
from folkmoot.kernel.planted import Planted
from folkmoot.mqtt.packet import Publish, Suback, Subscribe
from folkmoot.streams.config import StreamConfig
from folkmoot.turn.barrier import Barrier
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.landing import Landings
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


def test_who_subscribes_gets_a_message_that_is_on_its_way_to_the_leader_of_its_topic() -> None:
    cluster = SimulatedCluster(3, replicas=1, partitions=PARTITIONS)
    topic = topic_of(cluster, "n2")
    publisher, subscriber = clients(cluster)
    cluster.held = {("n1", "n2")}
    publisher.send(Publish(topic.encode(), b"1", 1, True, packet_id=1))
    subscriber.send(Subscribe(1, [(topic.encode(), 1)]))
    subscriber.take(Suback, 1)
    assert subscriber.messages() == [], "the message would come behind the look for it"
    cluster.held = set()
    cluster.run()
    assert subscriber.messages() == [(topic, b"1")]


def test_so_does_who_subscribes_to_a_filter_that_all_nodes_know_already() -> None:
    cluster = SimulatedCluster(3, replicas=1, partitions=PARTITIONS)
    topic = topic_of(cluster, "n2")
    publisher, subscriber = clients(cluster)
    earlier = cluster["n3"].client("earlier")
    earlier.connect()
    assert earlier.subscribe(topic, qos=1) == [1]
    cluster.held = {("n1", "n2")}
    publisher.send(Publish(topic.encode(), b"1", 1, True, packet_id=1))
    assert earlier.messages() == [(topic, b"1")], "it came before the other one subscribed"
    assert subscriber.subscribe(topic, qos=1) == [1]
    assert subscriber.messages() == []
    cluster.held = set()
    cluster.run()
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
    subscriber.take(Suback, 1)
    assert subscriber.messages() == [], "the copy at n3 is not on the disk yet"
    cluster["n3"].release_writes()
    cluster.run()
    assert subscriber.messages() == [(topic, b"1")]


def promised(cluster: SimulatedCluster) -> tuple[str, int]:
    """Have n1 die when it has promised to publish a retained message, of which n2 that leads its topic knows nothing.

    Return the topic, and the partition that has the message in its outbox: n3 is to lead it.
    """
    publisher, topic = publish_from_n1(cluster)
    cluster["n1"].kill()
    return topic, _home(publisher.client_id)


def publish_from_n1(cluster: SimulatedCluster) -> tuple[Peer, str]:
    """Publish what is in the outbox of a partition of n1 that n3 has a copy of, and on its way to n2."""
    view = cluster["n2"].cluster_node.view
    assert view is not None
    topic = topic_of(cluster, "n2")
    names = [name for name in cluster["n1"].names_led("p") if view.replicas[_home(name)] == ["n1", "n3"]]
    publisher = cluster["n1"].client(names[0])
    publisher.connect(session_expiry=3600)
    cluster.held = {("n1", "n2")}
    publisher.send(Publish(topic.encode(), b"1", 2, True, packet_id=1))
    return publisher, topic


def _home(name: str) -> int:
    return hash64(name.encode()) % PARTITIONS


def test_a_message_in_the_outbox_of_a_dead_leader_is_waited_for_until_the_next_one_knows_it() -> None:
    cluster = SimulatedCluster(4, replicas=2, partitions=PARTITIONS)
    topic, partition = promised(cluster)
    cluster.hold_opening(partition, "n3", "n4")
    subscriber = cluster["n2"].client(cluster["n2"].names_led("s")[0])
    subscriber.connect()
    assert subscriber.subscribe(topic, qos=1) == [1]
    assert subscriber.messages() == []
    cluster.held = set()
    cluster.run()
    assert subscriber.messages() == [(topic, b"1")]


def test_the_next_leader_is_asked_when_the_subscription_is_older_than_its_leadership() -> None:
    cluster = SimulatedCluster(4, replicas=2, partitions=PARTITIONS)
    subscriber = cluster["n2"].client(cluster["n2"].names_led("s")[0])
    subscriber.connect()
    topic, partition = promised(cluster)
    subscriber.send(Subscribe(1, [(topic.encode(), 1)]))
    assert subscriber.receive() == [], "n1 has not confirmed, and may not be dead"
    cluster.hold_opening(partition, "n3", "n4")
    subscriber.take(Suback, 1)
    assert subscriber.messages() == []
    cluster.held = set()
    cluster.run()
    assert subscriber.messages() == [(topic, b"1")]


def test_so_is_one_to_which_the_outbox_is_handed() -> None:
    cluster = SimulatedCluster(4, replicas=2, partitions=PARTITIONS)
    cluster.hand_log_to("n2")
    publisher, topic = publish_from_n1(cluster)
    subscriber = cluster["n4"].client(cluster["n4"].names_led("s")[0])
    subscriber.connect()
    assert subscriber.subscribe(topic, qos=1) == [1]
    cluster.held.add(("n2", "n4"))  # it gets no view
    cluster.hand_partition_to(_home(publisher.client_id), "n3")
    assert cluster["n1"].cluster_node.fabric.leaders[_home(publisher.client_id)] == "n3"
    assert cluster["n4"].cluster_node.fabric.leaders[_home(publisher.client_id)] == "n1"
    cluster.held = set()
    cluster.settle()
    assert subscriber.messages() == [(topic, b"1")]


def test_a_leader_that_begins_anew_says_nothing_before_it_knows_its_outbox_again() -> None:
    cluster = SimulatedCluster(4, replicas=2, partitions=PARTITIONS)
    _, topic = publish_from_n1(cluster)
    subscriber = cluster["n3"].client(cluster["n3"].names_led("s")[0])
    subscriber.connect()
    assert subscriber.subscribe(topic, qos=1) == [1]
    epochs = [site.cluster_node.fabric.epoch for site in cluster.live()]
    cluster["n1"].cluster_node.peers.overflow("n4")  # for n3 nothing moves
    for _ in range(100):
        cluster.advance(10 * MILLISECOND)
        if all(cluster[name].cluster_node.fabric.epoch > max(epochs) for name in ("n1", "n3")):
            break
    assert not any(cluster["n1"].cluster_node.state.leads), "n2 does not say yet which clients it has"
    cluster.held = set()
    cluster.settle()
    assert subscriber.messages() == [(topic, b"1")]


def test_a_message_for_a_partition_that_is_away_is_waited_for_where_it_is_retained() -> None:
    cluster = SimulatedCluster(4, replicas=1, partitions=PARTITIONS)
    cluster.hand_log_to("n3")
    topic = topic_of(cluster, "n2")
    stored = cluster["n4"].client(cluster["n4"].names_led("q")[0])
    stored.connect(session_expiry=3600)
    stored.subscribe(topic, qos=1)
    publisher = cluster["n1"].client(cluster["n1"].names_led("p")[0])
    publisher.connect(session_expiry=3600)
    cluster.held = {("n1", "n2"), ("n1", "n4")}
    publisher.send(Publish(topic.encode(), b"1", 2, True, packet_id=1))
    subscriber = cluster["n3"].client(cluster["n3"].names_led("s")[0])
    subscriber.connect()
    subscriber.send(Subscribe(1, [(topic.encode(), 1)]))
    cluster["n4"].kill()
    for _ in range(100):
        cluster.advance(10 * MILLISECOND)
        if cluster["n1"].cluster_node.fabric.leaderless:
            break
    cluster.advance(10 * MILLISECOND)
    subscriber.take(Suback, 1)
    assert subscriber.messages() == []
    cluster.held = set()
    cluster.run()
    assert subscriber.messages() == [(topic, b"1")]


def test_a_replay_does_not_wait_behind_it() -> None:
    cluster = SimulatedCluster(4, replicas=2, partitions=PARTITIONS, streams=[StreamConfig("s", b"s/#", 1)])
    source = cluster["n2"].client("source")
    source.connect()
    source.publish("s/1", b"record", qos=1)
    topic, partition = promised(cluster)
    cluster.hold_opening(partition, "n3", "n4")
    first, second = (cluster["n2"].client(name) for name in cluster["n2"].names_led("s")[:2])
    first.connect()
    second.connect()
    assert first.subscribe(topic, qos=1) == [1]
    assert second.subscribe("$stream/s/earliest/#", qos=1) == [1]
    assert second.messages() == [("s/1", b"record")]
    assert first.messages() == []
    cluster.held = set()
    cluster.run()
    assert first.messages() == [(topic, b"1")]


@pytest.mark.parametrize("bug", ["no_landing", "moves_unseen"])
def test_a_feed_that_does_not_wait_misses_it(bug: str) -> None:
    cluster = SimulatedCluster(4, replicas=2, partitions=PARTITIONS)
    for site in cluster.live():
        site.cluster_node.fabric.planted = Planted([bug])
    topic, partition = promised(cluster)
    cluster.hold_opening(partition, "n3", "n4")
    subscriber = cluster["n2"].client(cluster["n2"].names_led("s")[0])
    subscriber.connect()
    assert subscriber.subscribe(topic, qos=1) == [1]
    cluster.held = set()
    cluster.run()
    assert subscriber.messages() == []


def test_a_clear_of_nothing_holds_up_nobody() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    topic = topic_of(cluster, "n1")
    publisher, subscriber = clients(cluster)
    publisher.publish(topic, b"", qos=0, retain=True)
    assert subscriber.subscribe(topic, qos=1) == [1]


def test_questions_wait_for_what_began_before_them_only() -> None:
    barrier = Barrier()
    first, second = barrier.begin(), barrier.begin()
    barrier.asked("a", 1, 0)
    third = barrier.begin()
    barrier.asked("b", 2, 0)
    assert barrier.take(0) == []
    barrier.end(second)
    barrier.end(0)
    assert barrier.take(0) == []
    barrier.end(first)
    assert [one.number for one in barrier.take(0)] == [1]
    barrier.end(third)
    assert [(one.node_id, one.number) for one in barrier.take(0)] == [("b", 2)]
    assert barrier.take(0) == []


def test_questions_wait_for_turns_in_which_something_was_retained_here() -> None:
    barrier = Barrier()
    barrier.kept_here(7)
    barrier.asked("a", 1, 7)
    barrier.asked("b", 2, 7)
    assert barrier.take(6) == []
    barrier.forget("a")
    assert [one.node_id for one in barrier.take(7)] == ["b"]
    barrier.asked("a", 3, 6)  # the turn changed nothing: there will be none of that number
    assert [one.number for one in barrier.take(6)] == [3]


def test_what_is_found_in_an_outbox_is_waited_for_by_those_who_have_asked_before() -> None:
    barrier = Barrier()
    barrier.asked("a", 1, 0)
    ticket = barrier.begin()
    barrier.found()
    assert barrier.take(0) == []
    barrier.end(ticket)
    assert [one.number for one in barrier.take(0)] == [1]


def test_nothing_has_landed_in_the_turn_in_which_a_leader_opens() -> None:
    """It is asked at the end of the turn; the last other answer may come before."""
    fabric = Fabric("here", 2, False)
    landings = Landings(fabric)
    number = landings.join()
    landings.asked("a", 1)
    landings.asked("b", 2)
    landings.end_turn()
    landings.landed("a", 1)
    fabric.leaders[0] = "a"
    landings.moved(0)
    landings.opened(0, "a")
    landings.landed("b", 2)
    assert not landings.has_landed(number)
    assert landings.is_asked("a")
    landings.asked("a", 3)
    assert not landings.has_landed(number)
    landings.landed("a", 3)
    assert landings.has_landed(number)
