"""Shared subscriptions across nodes: absent members get nothing while others are there (DESIGN section 9)."""

from __future__ import annotations

import pytest

from folkmoot.delivery.shared import Lost
from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import Publish
from folkmoot.store.message import Message
from tests.harness.peer import EVER, Peer
from tests.harness.simulated_cluster import SimulatedCluster

FILTER = "$share/g/t/#"


def members(cluster: SimulatedCluster, count: int) -> list[Peer]:
    found: list[Peer] = []
    for number in range(count):
        peer = cluster[f"n{number % 3 + 1}"].client(f"member{number}")
        peer.connect(session_expiry=EVER)
        peer.subscribe(FILTER, qos=1)
        found.append(peer)
    return found


def publish(cluster: SimulatedCluster, count: int) -> None:
    for node_id in ("n1", "n2", "n3"):
        writer = cluster[node_id].client(f"writer-{node_id}")
        writer.connect()
        for number in range(count):
            writer.publish(f"t/{number}", b"%s-%d" % (node_id.encode(), number), qos=number % 2 + 1)


def test_who_is_away_gets_nothing_while_others_are_there() -> None:
    cluster = SimulatedCluster(3)
    everybody = members(cluster, 8)
    here, away = everybody[::2], everybody[1::2]
    for peer in away:
        peer.disconnect()
    publish(cluster, 40)
    assert sum(len(peer.payloads()) for peer in here) == 120
    for peer in away:
        peer.resume()
    cluster.advance(SECOND)
    assert [peer.payloads() for peer in away] == [[], [], [], []]
    publish(cluster, 40)
    assert all(peer.payloads() for peer in everybody), "they take turns again"


def test_when_nobody_is_there_the_members_keep_what_comes() -> None:
    cluster = SimulatedCluster(3)
    everybody = members(cluster, 6)
    for peer in everybody:
        peer.disconnect()
    publish(cluster, 20)
    for peer in everybody:
        peer.resume()
    cluster.advance(SECOND)
    assert sum(len(peer.payloads()) for peer in everybody) == 60
    assert all(peer.payloads() == [] for peer in everybody)


def test_a_new_leader_knows_who_is_away() -> None:
    cluster = SimulatedCluster(3)
    everybody = members(cluster, 8)
    here: list[Peer] = []
    away: list[Peer] = []
    for peer in everybody:
        if peer.box is cluster["n3"]:
            continue
        (away if len(away) < 3 else here).append(peer)
    for peer in [*away, *[peer for peer in everybody if peer.box is cluster["n3"]]]:
        peer.disconnect()
    cluster["n3"].kill()
    cluster.advance(5 * SECOND)
    for number in range(60):
        writer = cluster["n1"].client(f"writer{number}")
        writer.connect()
        writer.publish("t/1", b"%d" % number, qos=1)
        writer.disconnect()
    assert sum(len(peer.payloads()) for peer in here) == 60


def lasting(cluster: SimulatedCluster, leader: str, qos: int = 1) -> Peer:
    """A member that a node leads, and that has gone away."""
    site = cluster[leader]
    peer = site.client(site.names_led(f"{leader}-member")[0])
    peer.connect(session_expiry=EVER)
    peer.subscribe("$share/g/t", qos=qos)
    peer.disconnect()
    return peer


def writer_at(cluster: SimulatedCluster, node_id: str, expiry_s: int = 0) -> Peer:
    """A client of a node that leads its partition."""
    site = cluster[node_id]
    peer = site.client(site.names_led("writer")[0])
    peer.connect(session_expiry=expiry_s)
    return peer


@pytest.mark.parametrize("at", ["n1", "n3"])
@pytest.mark.parametrize(("subscribed", "published"), [(1, 0), (0, 1), (0, 2)])
def test_what_no_member_keeps_is_dropped(subscribed: int, published: int, at: str) -> None:
    """QoS 0 while all members are away: the message does not go round among their leaders."""
    cluster = SimulatedCluster(3)
    everybody = [lasting(cluster, node_id, subscribed) for node_id in ("n1", "n2")]
    writer = writer_at(cluster, at, EVER)
    unmatched = sum(site.node.counters.publish_unmatched for site in cluster.live())
    writer.publish("t", b"m", qos=published)
    cluster.advance(SECOND)
    for peer in everybody:
        peer.resume()
        assert peer.payloads() == []
    assert sum(site.node.counters.publish_unmatched for site in cluster.live()) == unmatched


@pytest.mark.parametrize("expiry_s", [0, EVER])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("at", ["n1", "n3"])
def test_members_with_full_queues_leave_the_others_what_they_cannot_take(at: str, qos: int, expiry_s: int) -> None:
    """Two members are full of other messages, and away as the third; what that one cannot take either is dropped."""
    cluster = SimulatedCluster(3, limits={"queue_messages_max": 4})
    full = [lasting(cluster, node_id) for node_id in ("n1", "n2")]
    room = lasting(cluster, "n3")
    for peer in full:
        peer.resume()
        peer.subscribe("own", qos=1)
        peer.disconnect()
    writer = writer_at(cluster, at, expiry_s)
    for number in range(4):
        writer.publish("own", b"own %d" % number, qos=1)
    for number in range(6):
        writer.publish("t", b"%d" % number, qos=qos)
    cluster.advance(SECOND)
    room.resume()
    cluster.advance(SECOND)
    assert room.payloads() == [b"%d" % number for number in range(4)]
    for peer in full:
        peer.resume()
        assert peer.payloads() == [b"own %d" % number for number in range(4)]


def test_a_message_for_readers_that_are_all_slow_ends() -> None:
    """QoS 0, and no member reads for a moment; another one is asked once, and then the message is dropped."""
    cluster = SimulatedCluster(3)
    for node_id in ("n1", "n2"):
        member = cluster[node_id].client(f"member-{node_id}")
        member.connect()
        member.subscribe("$share/g/t", qos=0)
        assert member.connection is not None
        cluster[node_id].node.writable(member.connection, False, cluster.now)
    writer_at(cluster, "n3").publish("t", b"m")
    assert [site.node.counters.dropped_qos0_slow for site in cluster.live()] == [1, 1, 0]


def test_what_a_lost_member_had_is_passed_on_before_its_partition_has_another_leader() -> None:
    """One change takes it from the queue and puts it into the outbox; the next leader has both or none of it."""
    cluster = SimulatedCluster(3)
    other = cluster["n2"].client("other")
    other.connect(session_expiry=EVER)
    other.subscribe("$share/g/t", qos=1)
    broker = cluster["n1"].node._broker
    home = broker.state.leads.index(True)
    shared = broker.delivery.shared
    for payload, place in ((b"0", home), (b"1", -1)):
        shared.homeless.append(Lost(b"$share/g/t", Message(b"t", payload, 1, False, b"", "writer", 0, 0), place, []))
    broker.flush()  # then the roles change
    assert broker.channel.outbox.busy(home)
    assert [lost.home for lost in shared.homeless] == [-1]
    cluster.advance(SECOND)
    assert sorted(other.payloads()) == [b"0", b"1"]


def test_what_a_lost_member_may_have_with_qos_2_goes_to_no_other_one() -> None:
    """Neither its node nor the leader that sent the message remembers that it was given to a client [MQTT-4.8.2-5]."""
    cluster = SimulatedCluster(3, replicas=1)
    lost = cluster["n1"].client("lost")
    lost.connect()
    lost.subscribe(FILTER, qos=2)
    other = cluster["n3"].client(cluster["n3"].names_led("other")[0])
    other.connect(session_expiry=EVER)
    other.subscribe(FILTER, qos=2)
    other.disconnect()
    writer = cluster["n2"].client(cluster["n2"].names_led("writer")[0])
    writer.connect(session_expiry=EVER)
    cluster.held.add(("n1", "n2"))
    writer.send(Publish(b"t/1", b"m", 2, packet_id=1))
    cluster.run()
    assert lost.payloads() == [b"m"]
    for name in ("n1", "n2"):
        cluster[name].kill()
    cluster.held.clear()
    for name in ("n1", "n2"):
        cluster[name].revive()
    cluster.settle()
    other.resume()
    cluster.advance(SECOND)
    assert other.payloads() == []
