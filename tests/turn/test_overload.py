"""Overload slows publishers and nothing else; every buffer is bounded, and nothing acknowledged is lost (A13)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import PUBREL, V311, Ack, Disconnect, Pingreq, Pingresp, Publish, Suback, Subscribe, Will
from folkmoot.turn.overload import FALL_US, LEVEL_MAX, Pressures, next_level
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER, Peer
from tests.harness.simulated_cluster import SimulatedCluster, Site

AGE_US = SECOND // 4  # of what waits, per level
PARTITIONS = 8
pressures = st.integers(0, 3000)


# -- the rule -----------------------------------------------------------------------------------------------------


@given(st.integers(0, LEVEL_MAX), pressures, st.booleans())
def test_a_level_rises_at_once_and_falls_by_one(level: int, pressure: int, may_fall: bool) -> None:
    after = next_level(level, pressure, may_fall)
    wanted = min(pressure // 100, LEVEL_MAX)
    assert 0 <= after <= LEVEL_MAX
    assert after >= wanted
    assert after == max(wanted, level) or (may_fall and after == level - 1)


@given(st.integers(1, LEVEL_MAX))
def test_a_pressure_that_wavers_does_not_move_the_level(level: int) -> None:
    """Whoever is slowed presses less: that alone must not let everybody go."""
    for pressure in (level * 100, level * 100 - 49):
        assert next_level(level, pressure, True) == level
    assert next_level(level, level * 100 - 51, True) == level - 1


@given(pressures)
def test_a_pressure_that_stays_has_one_level(pressure: int) -> None:
    level = LEVEL_MAX
    for _ in range(LEVEL_MAX + 1):
        level = next_level(level, pressure, True)
    assert next_level(level, pressure, True) == level
    assert level - min(pressure // 100, LEVEL_MAX) in (0, 1)


def test_the_highest_pressure_counts() -> None:
    for name in ("waiting", "age", "links", "loop", "queue"):
        found = Pressures(**{"waiting": 1, "age": 1, "links": 1, "loop": 1, name: 500})
        assert found.highest() == 500
        assert found.why() == name


# -- one node -----------------------------------------------------------------------------------------------------


def level(box: Box) -> int:
    return box.node.counters.overload


def fill(box: Box, topic: str = "t") -> Peer:
    """An absent session for which messages are stored."""
    peer = box.client("sleeper")
    peer.resume()
    peer.subscribe(topic, qos=2)
    peer.lose()
    return peer


def burden(box: Box, wanted: int) -> Peer:
    """Let the oldest turn wait until the level is reached."""
    box.hold_writes()
    peer = box.client("burden")
    peer.connect()
    peer.send(Publish(b"t", b"m", 1, packet_id=1))
    box.advance(wanted * AGE_US)
    assert level(box) == wanted
    return peer


def numbers(peer: Peer, first: int, count: int, topic: bytes = b"t", qos: int = 1) -> list[Publish]:
    return [Publish(topic, b"%d" % number, qos, packet_id=number) for number in range(first, first + count)]


def test_what_waits_longer_is_a_higher_level_and_it_ends(make: MakeBox) -> None:
    box = make()
    fill(box)
    assert level(box) == 0
    burden(box, 3)
    box.advance(SECOND)
    assert level(box) == 7
    box.advance(5 * SECOND)
    assert level(box) == LEVEL_MAX
    assert [event.kind for event in box.events].count("overloaded") == 1
    box.release_writes()
    box.advance(LEVEL_MAX * FALL_US // 2)
    assert 0 < level(box) < LEVEL_MAX, "it falls step by step"
    box.advance(LEVEL_MAX * FALL_US)
    assert level(box) == 0
    assert [event.kind for event in box.events].count("overload_over") == 1


def test_bytes_that_wait_are_a_level_too(make: MakeBox) -> None:
    box = make(limits={"write_backlog_bytes_max": 100_000})
    fill(box)
    box.hold_writes()
    peer = box.client("a")
    peer.connect()
    for number in range(1, 50):
        peer.send(Publish(b"t", bytes(1000), 1, packet_id=number))
        box.advance(2 * MILLISECOND << level(box))
    assert 4 <= level(box) <= 7


@pytest.mark.parametrize("wanted", [1, 4, 9])
def test_each_level_halves_what_a_publisher_may_send(make: MakeBox, wanted: int) -> None:
    box = make()
    fill(box)
    burden(box, wanted)
    delay_us = MILLISECOND << wanted
    peer = box.client("a")
    peer.connect()
    peer.send(*numbers(peer, 1, 5))
    before = box.node.counters.publish_received_qos1
    peer.send(*numbers(peer, 6, 5))
    assert peer.paused
    box.advance(delay_us - 1)
    assert box.node.counters.publish_received_qos1 == before
    box.advance(1)
    assert box.node.counters.publish_received_qos1 == before + 5


def test_nobody_waits_who_does_not_publish(make: MakeBox) -> None:
    """Subscribers, newcomers, pings; also what was published before goes out."""
    box = make()
    fill(box)
    reader = box.client("r")
    reader.connect()
    reader.subscribe("live", qos=1)
    burden(box, 8)
    publisher = box.client("p")
    publisher.connect()
    publisher.publish("live", b"1", qos=1)
    publisher.send(Publish(b"live", b"2", 1, packet_id=9))
    assert reader.payloads() == [b"1"]
    reader.ping()
    reader.subscribe("more")
    newcomer = box.client("n")
    newcomer.connect()
    newcomer.subscribe("live")
    newcomer.ping()
    box.advance(MILLISECOND << 9)
    assert reader.payloads() == [b"2"]


def talker(box: Box) -> Peer:
    """A client that publishes and subscribes, and may not publish now."""
    peer = box.client("both")
    peer.connect(receive_max=2)
    peer.subscribe("in", qos=2)
    peer.send(Publish(b"out", b"first", 0))
    assert peer.connection is not None
    assert peer.connection.paused
    assert not peer.paused, "its socket is read"
    return peer


def test_who_also_subscribes_goes_on_acknowledging_while_its_messages_wait(make: MakeBox) -> None:
    box = make()
    fill(box)
    listener = box.client("l")
    listener.connect()
    listener.subscribe("out", qos=0)
    burden(box, 9)
    both = talker(box)
    assert listener.payloads() == [b"first"]
    both.send(*[Publish(b"out", b"%d" % number, 0) for number in range(10)], Pingreq())
    assert both.take(Pingresp)
    assert listener.payloads() == []
    feeder = box.client("f")
    feeder.connect()
    feeder.send(*[Publish(b"in", b"%d" % n, qos, packet_id=n) for n, qos in enumerate([1, 2, 1, 2, 1, 2, 1, 2], 1)])
    assert both.payloads() == [b"%d" % n for n in range(1, 9)], "its window of two opens again and again"
    box.advance(SECOND)
    assert listener.payloads() == [b"%d" % number for number in range(10)]


def test_what_a_client_sends_stays_in_order(make: MakeBox) -> None:
    """A SUBSCRIBE behind a PUBLISH does not overtake it, nor does a PUBREL."""
    box = make()
    fill(box)
    listener = box.client("l")
    listener.connect()
    listener.subscribe("out", qos=2)
    burden(box, 7)
    both = talker(box)
    both.send(Publish(b"in", b"before", 0), Subscribe(77, [(b"in/more", 0)]))
    assert both.receive() == []
    box.advance(SECOND)
    assert both.payloads() == [b"before"]
    assert both.take(Suback, 77)


def test_a_repeated_message_and_its_release_are_not_two_messages(make: MakeBox) -> None:
    """[MQTT-4.3.3-10] The PUBREL must not be seen before the PUBLISH that repeats what it releases."""
    box = make()
    fill(box)
    listener = box.client("l")
    listener.connect()
    listener.subscribe("out", qos=2)
    both = box.client("both")
    both.connect()
    both.subscribe("in")
    both.send(Publish(b"out", b"m", 2, packet_id=5))
    assert listener.payloads() == [b"m"]
    burden(box, 8)
    both.send(Publish(b"x", b"", 0))
    both.send(Publish(b"out", b"m", 2, False, True, 5), Ack(PUBREL, 5))
    box.advance(SECOND)
    box.release_writes()
    box.advance(2 * SECOND)
    assert listener.payloads() == []


def test_what_was_sent_before_a_goodbye_is_published_and_no_will(make: MakeBox) -> None:
    box = make()
    fill(box)
    listener = box.client("l")
    listener.connect()
    listener.subscribe("#", qos=0)
    both = box.client("both")
    both.connect(will=Will(b"will", b"gone", 0, False))
    both.subscribe("in")
    burden(box, 9)
    listener.receive()
    both.send(Publish(b"out", b"1", 0))
    both.send(Publish(b"out", b"2", 0), Disconnect(0))
    assert listener.payloads() == [b"1"]
    both.lose()
    assert listener.payloads() == [b"2"]
    box.advance(3 * SECOND)
    assert listener.payloads() == []


def test_a_stash_has_a_limit_then_the_socket_is_not_read(make: MakeBox) -> None:
    box = make(limits={"write_backlog_bytes_max": 200_000})
    fill(box)
    burden(box, 9)
    both = talker(box)
    sent = 0
    while not both.paused:
        both.send(Publish(b"out", bytes(1000), 0))
        sent += 1
        assert sent < 20
    assert both.connection is not None
    assert 12_500 < box.node._broker.turn.throttle.stash_bytes < 16_000
    box.advance(SECOND)
    assert not both.paused
    box.release_writes()
    box.advance(3 * SECOND)
    assert box.node._broker.turn.throttle.stash_bytes == 0
    assert box.node.counters.publishers_paused == 0


def test_a_stash_of_a_lost_connection_is_freed(make: MakeBox) -> None:
    box = make()
    fill(box)
    burden(box, 9)
    both = talker(box)
    both.send(Publish(b"out", bytes(1000), 0))
    assert box.node._broker.turn.throttle.stash_bytes > 1000
    both.lose()
    assert box.node._broker.turn.throttle.stash_bytes == 0


def test_all_publishers_get_the_same(make: MakeBox) -> None:
    box = make()
    fill(box)
    listener = box.client("l")
    listener.connect()
    listener.subscribe("out/#", qos=0)
    burden(box, 6)
    peers = [box.client(f"p{number}") for number in range(5)]
    for number, peer in enumerate(peers):
        peer.connect()
        if number % 2:
            peer.subscribe(f"in/{number}")
    for _ in range(40):
        for number, peer in enumerate(peers):
            for _ in range(number + 1):  # some push more
                peer.send(Publish(b"out/%d" % number, b"", 0))
        box.advance(16 * MILLISECOND)
    reads = 40 * 16 * MILLISECOND // (MILLISECOND << 6)
    topics = [topic for topic, _ in listener.messages()]
    counts = [topics.count(f"out/{number}") for number in range(5)]
    assert all(count >= reads for count in counts), counts
    box.release_writes()
    box.advance(3 * SECOND)
    assert len(listener.messages()) + len(topics) == 40 * (1 + 2 + 3 + 4 + 5)


def test_everything_is_acknowledged_in_the_end(make: MakeBox) -> None:
    box = make()
    sleeper = fill(box)
    burden(box, 10)
    peer = box.client("a")
    peer.connect()
    for start in range(1, 200, 10):
        peer.send(*numbers(peer, start, 10, qos=1 + start // 10 % 2))
    assert peer.receive() == []
    box.release_writes()
    box.advance(60 * SECOND)
    assert sorted(ack.packet_id for ack in peer.receive() if isinstance(ack, Ack)) == list(range(1, 201))
    sleeper.resume()
    assert len(sleeper.payloads()) == 201


def test_a_late_loop_is_a_pressure(make: MakeBox) -> None:
    box = make()
    box.node.lagged(SECOND, box.now)
    box.run()
    box.turn()
    assert level(box) == 4
    box.node.lagged(0, box.now)
    box.advance(SECOND)
    assert level(box) == 0


def test_a_full_disk_is_no_overload(make: MakeBox) -> None:
    """Who needs it is refused; who talks to the living is not held up."""
    box = make()
    fill(box)
    burden(box, 2)
    box.storage(True)
    box.advance(10 * SECOND)
    assert level(box) == 0


# -- several nodes ------------------------------------------------------------------------------------------------


def leader_of(cluster: SimulatedCluster, at: int) -> Site:
    cluster_node = cluster.live()[0].node.cluster_node
    assert cluster_node is not None
    return cluster[cluster_node.fabric.leaders[at]]


def named(at: int, nth: int = 0) -> str:
    """A client id whose partition is `at`."""
    return [f"c{number}" for number in range(300) if hash64(f"c{number}".encode()) % PARTITIONS == at][nth]


def levels(cluster: SimulatedCluster) -> list[int]:
    return [site.node.counters.cluster_overload for site in cluster.live()]


def test_one_slow_disk_slows_the_publishers_of_all_nodes_and_no_subscriber() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    sleepers = []
    for number in range(PARTITIONS):
        peer = cluster["n1"].client(named(number))
        peer.connect(session_expiry=EVER)
        peer.subscribe("t", qos=1)
        peer.lose()
        sleepers.append(peer)
    readers = [site.client(f"reader-{site.name}") for site in cluster.live()]
    for reader in readers:
        reader.connect()
        reader.subscribe("live", qos=1)
    publishers = [site.client(f"publisher-{site.name}") for site in cluster.live()]
    for publisher in publishers:
        publisher.connect()
    cluster["n3"].hold_writes()
    sent = 0
    for _ in range(50):
        for publisher in publishers:
            publisher.send(Publish(b"t", b"%d" % sent, 1, packet_id=publisher.packet_id()))
            sent += 1
        cluster.advance(30 * MILLISECOND)
    assert min(levels(cluster)) >= 5, levels(cluster)
    assert all(publisher.paused for publisher in publishers)
    newcomer = cluster["n2"].client("newcomer")
    newcomer.connect()
    for reader in readers:
        reader.ping()
    newcomer.send(Publish(b"live", b"now", 1, packet_id=1))
    assert [reader.payloads() for reader in readers] == [[b"now"]] * 3
    cluster["n3"].release_writes()
    cluster.advance(3 * SECOND)
    assert levels(cluster) == [0, 0, 0]
    for publisher in publishers:
        assert len([ack for ack in publisher.receive() if isinstance(ack, Ack)]) == 50
    for peer in sleepers:
        peer.connect(clean_start=False, session_expiry=EVER)
        cluster.run()
        assert sorted(map(int, peer.payloads())) == list(range(sent))


def link_bytes(cluster: SimulatedCluster) -> int:
    found = []
    for site in cluster.live():
        assert site.node.cluster_node is not None
        found += [
            site.node.cluster_node.peers.backlog_bytes(other.name) for other in cluster.live() if other is not site
        ]
    return max(found)


def kinds(cluster: SimulatedCluster) -> set[str]:
    return {event.kind for site in cluster.sites.values() for event in site.events}


@pytest.mark.parametrize("qos", [0, 1])
def test_a_node_that_takes_nothing_gets_no_more_than_its_link_may_hold(qos: int) -> None:
    """Messages for transient subscribers are answered by nobody: only the link tells that they do not arrive."""
    most = 1 << 20
    cluster = SimulatedCluster(3, partitions=PARTITIONS, link_buffer_bytes_max=most, silence_us=60 * SECOND)
    far, near = cluster["n3"].client("far"), cluster["n1"].client("near")
    for reader in (far, near):
        reader.connect()
        reader.subscribe("live", qos=qos)
    publishers = [cluster["n1"].client(f"p{number}") for number in range(4)]
    for publisher in publishers:
        publisher.connect()
    cluster.cut("n3", "n1", "n2")
    sent = 0
    heard = 0
    for _ in range(100):
        for publisher in publishers:
            while len(publisher._unread) < 20_000:  # what a socket may hold
                publisher.send(Publish(b"live", bytes(2000), qos, packet_id=publisher.packet_id() if qos else 0))
                sent += 1
                if not publisher.paused and sent % 5 == 0:
                    break
        cluster.advance(5 * MILLISECOND)
        heard += len(near.payloads())
        assert link_bytes(cluster) < most
    assert sent * 2000 > most // 2, "the link held, because publishers were held"
    assert any(publisher.paused for publisher in publishers)
    cluster.heal()
    for _ in range(20):
        cluster.advance(SECOND // 5)
        heard += len(near.payloads())
    assert heard == sent, "who was there got everything"
    if qos:
        assert len(far.payloads()) == sent
    assert "peer_too_slow" not in kinds(cluster)
    assert levels(cluster) == [0, 0, 0]


def test_what_goes_to_persistent_clients_of_a_slow_node_waits_in_their_queues() -> None:
    most = 1 << 20
    cluster = SimulatedCluster(3, partitions=PARTITIONS, link_buffer_bytes_max=most, silence_us=60 * SECOND, replicas=1)
    leader = leader_of(cluster, 0)
    far = next(site for site in cluster.live() if site is not leader)
    readers = []
    for nth in range(8):
        peer = far.client(named(0, nth))
        peer.connect(session_expiry=EVER)
        peer.subscribe("t", qos=1)
        readers.append(peer)
    publisher = leader.client("p")
    publisher.connect()
    cluster.cut(far.name, *[site.name for site in cluster.live() if site is not far])
    for number in range(150):
        publisher.send(Publish(b"t", b"%d " % number + bytes(4000), 1, packet_id=number + 1))
        cluster.advance(5 * MILLISECOND)
        assert link_bytes(cluster) < most
    cluster.heal()
    cluster.advance(3 * SECOND)
    for peer in readers:
        assert [int(payload.split()[0]) for payload in peer.payloads()] == list(range(150))
    assert "peer_too_slow" not in kinds(cluster)


def hosted_readers(cluster: SimulatedCluster, count: int) -> tuple[Peer, list[Peer]]:
    """A publisher at the leader of a partition, and clients at another node whose stored sessions are there."""
    leader = leader_of(cluster, 0)
    far = next(site for site in cluster.live() if site is not leader)
    readers = []
    for nth in range(count):
        peer = far.client(named(0, nth))
        peer.connect(session_expiry=EVER)
        peer.subscribe("t", qos=0)
        readers.append(peer)
    publisher = leader.client("p")
    publisher.connect()
    return publisher, readers


def test_qos_0_for_clients_of_another_node_is_not_lost_while_its_link_has_room() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS, link_buffer_bytes_max=1 << 20, replicas=1)
    publisher, readers = hosted_readers(cluster, 14)
    for number in range(5):
        publisher.publish("t", b"%d " % number + bytes(14_000))
        cluster.advance(SECOND)
    for peer in readers:
        assert [int(payload.split()[0]) for payload in peer.payloads()] == list(range(5))


def test_qos_0_for_clients_of_another_node_never_breaks_its_link() -> None:
    """One message for all of them is more than the link may hold: some do not get it, and nothing else is lost."""
    most = 1 << 20
    cluster = SimulatedCluster(3, partitions=PARTITIONS, link_buffer_bytes_max=most, replicas=1)
    publisher, readers = hosted_readers(cluster, 20)
    for number in range(4):
        publisher.send(Publish(b"t", b"%d " % number + bytes(60_000), 0))
        cluster[leader_of(cluster, 0).name].turn()
        assert link_bytes(cluster) < most
    cluster.advance(SECOND)
    got = sum(len(peer.payloads()) for peer in readers)
    assert most // 2 < got * 60_000
    assert got + leader_of(cluster, 0).node.counters.dropped_qos0_slow == 4 * 20
    assert "peer_too_slow" not in kinds(cluster)
    publisher.publish("t", b"after")
    cluster.run()
    assert all(peer.payloads() == [b"after"] for peer in readers)


def test_what_waits_for_the_leader_of_a_session_has_a_limit() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS, silence_us=60 * SECOND)
    leader = leader_of(cluster, 0)
    site = next(site for site in cluster.live() if site is not leader)
    other = next(one for one in cluster.live() if one not in (site, leader))
    reader = other.client("reader")
    reader.connect()
    reader.subscribe("t", qos=2)
    peer = site.client(named(0), version=V311)
    peer.connect(clean_start=False)
    cluster.cut(leader.name, *[one.name for one in cluster.live() if one is not leader])
    sent = 0
    while not peer.paused:
        sent += 1
        assert sent < 200
        peer.send(Publish(b"t", bytes(20_000), 2, packet_id=sent))
    assert 50 < sent < 60
    cluster.heal()
    cluster.advance(3 * SECOND)
    assert not peer.paused
    assert len([ack for ack in peer.receive() if isinstance(ack, Ack)]) == sent
    assert len(reader.payloads()) == sent
