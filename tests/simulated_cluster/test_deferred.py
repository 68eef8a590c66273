"""With "available", what is for a partition without a leader is acknowledged, and comes when it has one again (A1)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt import reason
from folkmoot.mqtt.packet import Ack, Publish
from tests.harness.peer import EVER, Peer
from tests.harness.simulated_cluster import SimulatedCluster, Site

TOPIC = "t"


def available(nodes: int = 3, **settings: object) -> SimulatedCluster:
    return SimulatedCluster(nodes, partitions=16, replicas=1, split_policy="available", **settings)  # type: ignore[arg-type]


def subscriber_at(site: Site) -> Peer:
    """Return a client that is not connected, with a session that this node leads and a subscription."""
    subscriber = site.client(site.names_led("s")[0])
    subscriber.connect(session_expiry=EVER)
    assert subscriber.subscribe(TOPIC, qos=2) == [2]
    subscriber.disconnect()
    site.advance(SECOND)
    return subscriber


def lose(site: Site) -> None:
    """Kill a node, and wait until the others know."""
    site.kill()
    site.advance(5 * SECOND)


def come_back(site: Site, subscriber: Peer) -> Peer:
    site.revive()
    site.cluster.settle()
    back = site.client(subscriber.client_id)
    assert back.connect(clean_start=False, session_expiry=EVER).session_present
    site.advance(2 * SECOND)
    return back


@pytest.mark.parametrize("led_by", ["n1", "n2"])
@pytest.mark.parametrize("expiry", [0, EVER])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_for_an_absent_partition_is_acknowledged_and_comes(qos: int, expiry: int, led_by: str) -> None:
    """The home of its publisher is led by the node with the connection, or by another one."""
    cluster = available()
    n1, n3 = cluster["n1"], cluster["n3"]
    subscriber = subscriber_at(n3)
    lose(n3)
    publisher = n1.client(cluster[led_by].names_led("p")[0])
    publisher.connect(session_expiry=expiry)
    payloads = [b"%d" % number for number in range(20)]
    assert [publisher.publish(TOPIC, payload, qos=qos) for payload in payloads] == [0] * 20
    assert n1.node._state.counters.publish_deferred + cluster[led_by].node._state.counters.publish_deferred >= 20
    back = come_back(n3, subscriber)
    assert back.payloads() == payloads
    assert publisher.publish(TOPIC, b"later", qos=qos) == 0
    cluster.run()
    assert back.payloads() == [b"later"]


def test_what_is_deferred_survives_its_node() -> None:
    cluster = SimulatedCluster(4, partitions=16, replicas=2, split_policy="available")
    n1 = cluster["n1"]
    subscriber = subscriber_at(cluster["n4"])
    pair = _copies_of(cluster, subscriber.client_id)
    others = [name for name in cluster.sites if name not in pair]
    for name in pair:
        cluster[name].kill()
    cluster.advance(12 * SECOND)
    keeper, other = (cluster[name] for name in others)
    publisher = other.client(keeper.names_led("p")[0])
    publisher.connect()
    assert publisher.publish(TOPIC, b"kept", qos=1) == 0
    keeper.kill()
    keeper.advance(5 * SECOND)
    for name in [*pair, keeper.name]:
        cluster[name].revive()
    cluster.settle()
    back = n1.client(subscriber.client_id)
    assert back.connect(clean_start=False, session_expiry=EVER).session_present
    cluster.advance(2 * SECOND)
    assert back.payloads() == [b"kept"]


def _copies_of(cluster: SimulatedCluster, client_id: str) -> list[str]:
    site = cluster["n1"]
    view = site.cluster_node.view
    assert view is not None
    return list(view.replicas[site.node._state.partition_of(client_id.encode())])


def test_a_retained_message_for_an_absent_partition_is_kept_when_that_is_back() -> None:
    cluster = available()
    n1, n3 = cluster["n1"], cluster["n3"]
    topic = n3.names_led("r")[0]
    lose(n3)
    publisher = n1.client(n1.names_led("p")[0])
    publisher.connect()
    assert publisher.publish(topic, b"old", qos=1, retain=True) in (0, reason.NO_MATCHING_SUBSCRIBERS)
    assert publisher.publish(topic, b"new", qos=1, retain=True) in (0, reason.NO_MATCHING_SUBSCRIBERS)
    n3.revive()
    cluster.settle()
    reader = n1.client("reader")
    reader.connect()
    reader.subscribe(topic, qos=1)
    cluster.advance(SECOND)
    assert reader.payloads() == [b"new"]


def test_with_majority_it_is_refused() -> None:
    cluster = SimulatedCluster(3, partitions=16, replicas=1, split_policy="majority")
    n1, n3 = cluster["n1"], cluster["n3"]
    subscriber_at(n3)
    lose(n3)
    publisher = n1.client(n1.names_led("p")[0])
    publisher.connect()
    assert publisher.publish(TOPIC, b"x", qos=1) == reason.IMPLEMENTATION_SPECIFIC_ERROR
    assert n1.node._state.counters.publish_deferred == 0


@pytest.mark.parametrize("planted", [[], ["undrained"]])
def test_what_is_published_later_does_not_overtake_what_was_deferred(planted: list[str]) -> None:
    """The home is at n2, whose link to the subscriber's partition is slow when that is back."""
    cluster = available(planted=planted)
    cluster.hand_log_to("n1")
    n1, n2, n3 = cluster["n1"], cluster["n2"], cluster["n3"]
    subscriber = subscriber_at(n3)
    lose(n3)
    publisher = n1.client(n2.names_led("p")[0])
    publisher.connect()
    payloads = [b"%d" % number for number in range(5)]
    assert [publisher.publish(TOPIC, payload, qos=1) for payload in payloads] == [0] * 5
    n3.revive()
    cluster.held = {("n2", "n3")}
    cluster.advance(SECOND)
    publisher.send(Publish(TOPIC.encode(), b"later", 1, False, packet_id=77))
    cluster.advance(SECOND // 4)
    waits = [packet for packet in publisher.inbox if isinstance(packet, Ack)] == []
    cluster.held = set()
    cluster.settle()
    back = n1.client(subscriber.client_id)
    assert back.connect(clean_start=False, session_expiry=EVER).session_present
    cluster.advance(SECOND)
    assert (back.payloads() == [*payloads, b"later"]) == (not planted)
    assert waits


@pytest.mark.parametrize("planted", [[], ["undrained"]])
def test_a_node_that_has_just_started_lets_nothing_overtake_what_was_deferred(planted: list[str]) -> None:
    """It has not seen that the partition was absent, and its client has published at another node before."""
    cluster = available(4, planted=planted)
    cluster.hand_log_to("n1")
    n1, n2, n3, n4 = (cluster[name] for name in ("n1", "n2", "n3", "n4"))
    subscriber = subscriber_at(n3)
    client_id = n2.names_led("p")[0]
    lose(n3)
    lose(n4)
    publisher = n1.client(client_id)
    publisher.connect()
    assert publisher.publish(TOPIC, b"deferred", qos=1) == 0
    publisher.disconnect()
    partition = n1.node._state.partition_of(subscriber.client_id.encode())
    n3.revive()
    n4.revive()
    _hold_when_open(cluster, partition)
    cluster.advance(SECOND)
    assert cluster.held
    again = n4.client(client_id)
    again.connect()
    again.send(Publish(TOPIC.encode(), b"later", 1, False, packet_id=77))
    cluster.advance(SECOND // 4)
    cluster.held = set()
    cluster.settle()
    back = n1.client(subscriber.client_id)
    assert back.connect(clean_start=False, session_expiry=EVER).session_present
    cluster.advance(SECOND)
    assert (back.payloads() == [b"deferred", b"later"]) == (not planted)


@pytest.mark.parametrize("planted", [[], ["undrained"]])
def test_a_message_that_was_on_its_way_when_its_partition_was_lost_counts_as_deferred(planted: list[str]) -> None:
    """It is in the outbox of its home, and confirmed to its client, when the partition is gone."""
    cluster = available(planted=planted)
    cluster.hand_log_to("n1")
    n1, n2, n3 = cluster["n1"], cluster["n2"], cluster["n3"]
    topic = n3.names_led("r")[0]
    publisher = n1.client(n2.names_led("p")[0])
    publisher.connect(session_expiry=EVER)
    cluster.advance(SECOND)
    cluster.held = {("n2", "n3")}
    publisher.send(Publish(topic.encode(), b"old", 2, True, packet_id=5))
    cluster.advance(SECOND // 10)
    n3.kill()
    cluster.held = set()
    cluster.advance(5 * SECOND)
    publisher.take(Ack, 5)
    n3.revive()
    _hold_when_open(cluster, n1.node._state.partition_of(topic.encode()))
    cluster.advance(SECOND)
    assert cluster.held
    publisher.send(Publish(topic.encode(), b"new", 1, True, packet_id=77))
    cluster.advance(SECOND // 4)
    cluster.held = set()
    cluster.settle()
    reader = n1.client("reader")
    reader.connect()
    reader.subscribe(topic, qos=1)
    cluster.advance(SECOND)
    assert (reader.payloads() == [b"new"]) == (not planted)


def _hold_when_open(cluster: SimulatedCluster, partition: int) -> None:
    """Let the link from n2 to n3 become slow as soon as n3 has opened a partition."""
    seen: list[int] = []

    def look(site: Site) -> None:
        if site.name == "n3" and not seen and site.cluster_node.fabric.open[partition]:
            seen.append(partition)
            cluster.held = {("n2", "n3")}

    cluster.look_after_turns(look)


def test_a_client_whose_home_is_away_too_is_refused() -> None:
    """Its messages would wait in two orders, when it is back before the other partition, or goes after that."""
    cluster = available(4)
    n1, n2, n3 = cluster["n1"], cluster["n2"], cluster["n3"]
    subscriber = subscriber_at(n3)
    publisher = n1.client(n2.names_led("p")[0])
    publisher.connect()
    lose(n3)
    lose(n2)
    assert publisher.publish(TOPIC, b"0", qos=1) == reason.IMPLEMENTATION_SPECIFIC_ERROR
    n2.revive()
    cluster.advance(8 * SECOND)
    assert publisher.publish(TOPIC, b"1", qos=1) == 0
    assert come_back(n3, subscriber).payloads() == [b"1"]


def test_messages_that_go_by_outboxes_all_the_time_do_not_hold_others_up() -> None:
    """Those with QoS 2 do; one of them is always under way to a partition that has just come back."""
    cluster = available()
    cluster.hand_log_to("n1")
    n1, n2, n3 = cluster["n1"], cluster["n2"], cluster["n3"]
    subscriber_at(n3)
    lose(n3)
    n3.revive()
    steady = n1.client(n1.names_led("p")[0])
    steady.connect(session_expiry=EVER)
    cluster.run()
    publisher = n2.client(n2.names_led("p")[0])
    publisher.connect()
    packet_id = 0
    for _ in range(300):
        cluster.held = {("n1", "n3")}
        packet_id += 1
        steady.send(Publish(TOPIC.encode(), b"x", 2, False, packet_id=packet_id))
        if n1.cluster_node.fabric.leaderless:
            packet_id = 0
            steady.receive()
        elif packet_id == 20:
            publisher.send(Publish(TOPIC.encode(), b"y", 1, False, packet_id=7))
        cluster.advance(5000)
        cluster.held = set()
        cluster.advance(5000)
    assert packet_id > 30
    assert publisher.expect(Ack).packet_id == 7


@pytest.mark.parametrize("name", ["n1", "n2"])
def test_a_witness_is_not_asked_what_is_deferred(name: str) -> None:
    cluster = available(2)
    cluster.add("w", witness=True)
    cluster.advance(5 * SECOND)
    cluster.settle()
    lost = cluster["n2" if name == "n1" else "n1"]
    subscriber = subscriber_at(lost)
    lose(lost)
    publisher = cluster[name].client(cluster[name].names_led("p")[0])
    publisher.connect()
    assert publisher.publish(TOPIC, b"1", qos=1) == 0
    back = come_back(lost, subscriber)
    assert publisher.publish(TOPIC, b"2", qos=1) == 0
    cluster.run()
    assert back.payloads() == [b"1", b"2"]


def test_what_does_not_concern_the_partition_does_not_wait_for_deferred_messages() -> None:
    cluster = available()
    cluster.hand_log_to("n1")
    n1, n3 = cluster["n1"], cluster["n3"]
    subscriber_at(n3)
    lose(n3)
    publisher = n1.client(cluster["n2"].names_led("p")[0])
    publisher.connect()
    publisher.publish(TOPIC, b"x", qos=1)
    n3.revive()
    cluster.held = {("n2", "n3")}
    cluster.advance(SECOND)
    assert publisher.publish("other", b"y", qos=1) == reason.NO_MATCHING_SUBSCRIBERS
    cluster.held = set()
    cluster.run()


def test_it_is_refused_when_as_much_waits_as_may() -> None:
    """Also where another node has the home, which says that it has no room."""
    cluster = available()
    n1, n2, n3 = cluster["n1"], cluster["n2"], cluster["n3"]
    subscriber = subscriber_at(n3)
    lose(n3)
    limit = n2.node._broker.turn.throttle.backlog_bytes_max // 8
    publisher = n1.client(n2.names_led("p")[0])
    publisher.connect()
    taken: list[int] = []
    for number in range(2 * limit // (256 << 10) + 2):
        if publisher.publish(TOPIC, b"%d" % number + bytes(256 << 10), qos=1):
            break
        taken.append(number)
    else:
        raise AssertionError("all is taken, however much it is")
    assert len(taken) >= limit // (256 << 10)
    back = come_back(n3, subscriber)
    cluster.advance(5 * SECOND)
    assert [int(payload[:3].rstrip(b"\0")) for payload in back.payloads()] == taken


@pytest.mark.parametrize("expiry", [0, EVER])
@pytest.mark.parametrize("qos", [1, 2])
def test_both_sides_of_a_split_keep_what_is_for_partitions_of_the_other_side(qos: int, expiry: int) -> None:
    cluster = SimulatedCluster(5, partitions=32, replicas=2, split_policy="available")
    few, most = ("n1", "n2"), ("n3", "n4", "n5")
    subscribers = {side: _subscriber_of(cluster, side) for side in (few, most)}
    cluster.cut("n1", *most)
    cluster.cut("n2", *most)
    cluster.advance(20 * SECOND)
    sent: dict[tuple[str, ...], list[bytes]] = {}
    for here, there in ((few, most), (most, few)):
        site = cluster[here[0]]
        name = next(name for name in site.names_led("p") if name not in subscribers[here].client_id)
        publisher = site.client(name)
        publisher.connect(session_expiry=expiry)
        sent[there] = [b"%d from %s" % (number, here[0].encode()) for number in range(5)]
        assert [publisher.publish(f"to/{there[0]}", payload, qos=qos) for payload in sent[there]] == [0] * 5
        assert site.node._state.counters.publish_deferred == 5
        publisher.disconnect()
    cluster.heal()
    cluster.settle(60 * SECOND)
    for side, subscriber in subscribers.items():
        back = cluster["n3"].client(subscriber.client_id)
        assert back.connect(clean_start=False, session_expiry=EVER).session_present
        cluster.advance(2 * SECOND)
        assert back.payloads() == sent[side]


def _subscriber_of(cluster: SimulatedCluster, side: tuple[str, ...]) -> Peer:
    """Return a client that is not connected, whose session has copies at one side only."""
    for number in range(500):
        name = f"{side[0]}/{number}"
        if set(_copies_of(cluster, name)) <= set(side):
            subscriber = cluster[side[0]].client(name)
            subscriber.connect(session_expiry=EVER)
            assert subscriber.subscribe(f"to/{side[0]}", qos=2) == [2]
            subscriber.disconnect()
            cluster.advance(SECOND)
            return subscriber
    raise AssertionError(f"no partition has its copies at {side} only")
