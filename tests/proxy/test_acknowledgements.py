"""Acknowledgements of clients whose sessions other nodes lead: they wait in bounded memory, and none is lost (A13)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.leadership.shedding import held_by
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.kind import PUBACK, PUBCOMP, PUBREC, PUBREL
from folkmoot.mqtt.packet import V5, Ack, Disconnect, Pingreq, Pingresp, Publish
from folkmoot.session.connection import Connection
from folkmoot.session.relay import Relay
from folkmoot.sim.check_quota import miscounted
from folkmoot.turn.memory import REFUSING
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site

LOG_BYTES_MAX = 2 << 20  # 1 MB, what a client can owe with the default limits, and what is handled in one turn
MANY = 5000


def relay_of(site: Site) -> Relay:
    (relay,) = site.node._broker.proxy.relays.relays.values()
    return relay


def hosted_at(site: Site) -> Connection:
    (connection,) = site.node._broker.leadership.hosting.remotes.values()
    return connection


def flood(peer: Peer, kind: int) -> None:
    """Send acknowledgements of nothing, whether the node reads or not."""
    assert peer.connection is not None
    peer.box.node.receive(peer.connection, encode(Ack(kind, 7), V5) * MANY, peer.box.now)


def check(cluster: SimulatedCluster) -> None:
    for site in cluster.live():
        assert miscounted(site.node) == "", site.name


def test_a_client_that_acknowledges_faster_than_its_leader_handles_is_not_read() -> None:
    cluster = SimulatedCluster(2)
    site, leader = cluster["n1"], cluster["n2"]
    peer = site.client(leader.names_led("c")[0])
    peer.connect(session_expiry=EVER)
    busy = [leader.client(client_id) for client_id in leader.names_led("b")[:30]]
    for client in busy:
        client.connect()
    cluster.run()
    messages = encode(Publish(b"x", b"m" * 20, 1, packet_id=5), V5) * 2000
    relay, hosted = relay_of(site), hosted_at(leader)
    most = 0
    paused = False
    cluster.freeze()
    for number in range(60):
        if not peer.paused:
            flood(peer, PUBACK)
        for client in busy:
            if not client.paused:
                client._transmit(messages)
        cluster.step()
        cluster.now += 10_000
        paused = paused or peer.paused
        most = max(most, relay.log_bytes)
        assert hosted.backlog_bytes <= relay.log_bytes
        assert held_by(hosted) >= hosted.backlog_bytes
        if number % 10 == 0:
            check(cluster)
    assert paused
    assert most <= LOG_BYTES_MAX
    cluster.thaw()
    cluster.advance(SECOND)
    assert relay.log_bytes == hosted.backlog_bytes == 0
    assert not peer.paused
    peer.receive()
    peer.send(Pingreq())
    peer.expect(Pingresp)
    check(cluster)


def orphaned() -> tuple[SimulatedCluster, Peer]:
    """Return a client that is connected to n1, and whose session nobody leads: n2 had the only copy."""
    cluster = SimulatedCluster(3, replicas=1, split_policy="majority")
    site, leader = cluster["n1"], cluster["n2"]
    peer = site.client(leader.names_led("c")[0])
    peer.connect(session_expiry=EVER)
    cluster.run()
    leader.kill()
    cluster.advance(3 * SECOND)
    return cluster, peer


@pytest.mark.parametrize("kind", [PUBACK, PUBREC, PUBCOMP])
def test_acknowledgements_wait_unread_until_there_is_a_leader(kind: int) -> None:
    cluster, peer = orphaned()
    site, leader = cluster["n1"], cluster["n2"]
    relay = relay_of(site)
    for _ in range(6):
        flood(peer, kind)
        cluster.advance(20_000)
    assert LOG_BYTES_MAX // 2 < relay.log_bytes <= LOG_BYTES_MAX
    assert peer.paused
    check(cluster)
    leader.revive()
    cluster.advance(5 * SECOND)
    assert relay.log_bytes == 0
    assert not peer.paused
    assert site.node.counters.publishers_paused == 0
    peer.receive()
    assert peer.subscribe("t", qos=1) == [1]
    check(cluster)


def test_what_has_come_unread_before_the_end_of_a_connection_is_passed_on() -> None:
    cluster, peer = orphaned()
    site, leader = cluster["n1"], cluster["n2"]
    for _ in range(4):
        flood(peer, PUBACK)
        cluster.advance(20_000)
    assert peer.paused
    assert peer.connection is not None
    farewell = encode(Disconnect(0, properties(session_expiry=0)), V5)
    site.node.receive(peer.connection, farewell, cluster.now)
    peer.lose()
    cluster.advance(SECOND)
    leader.revive()
    cluster.advance(5 * SECOND)
    assert not site.node._broker.proxy.relays.relays
    again = site.client(peer.client_id)
    assert not again.connect(clean_start=False, session_expiry=EVER).session_present
    check(cluster)


def test_a_client_that_was_ended_for_its_acknowledgements_keeps_nobody_out() -> None:
    cluster = SimulatedCluster(3, replicas=1, split_policy="majority", limits={"memory_bytes_max": 4 << 20})
    site, leader = cluster["n1"], cluster["n2"]
    peers = [site.client(client_id) for client_id in leader.names_led("c")[:3]]
    for peer in peers:
        peer.connect(session_expiry=EVER)
    cluster.run()
    leader.kill()
    cluster.advance(3 * SECOND)
    memory = site.node._state.memory
    for _ in range(10):
        for peer in peers:
            if peer.connection is not None:
                flood(peer, PUBACK)
        cluster.advance(20_000)
    if memory.stage >= REFUSING:
        cluster.advance(12 * SECOND)
    assert site.node.counters.memory_dropped_clients > 0
    assert memory.stage < REFUSING
    check(cluster)
    site.client(site.names_led("x")[0]).connect()


def test_of_an_ended_connection_only_acknowledgements_are_forgotten() -> None:
    cluster = SimulatedCluster(3, replicas=1, split_policy="majority")
    site, leader = cluster["n1"], cluster["n2"]
    client_id = leader.names_led("c")[0]
    peer = site.client(client_id, acks=False)
    peer.connect(session_expiry=EVER)
    assert peer.subscribe("t", qos=2) == [2]
    source = leader.client(leader.names_led("source")[0])
    source.connect()
    for number in range(3):
        source.publish("t", b"m%d" % number, qos=1 if number < 2 else 2)
    cluster.advance(SECOND)
    delivered = [packet for packet in peer.receive() if isinstance(packet, Publish)]
    assert [packet.payload for packet in delivered] == [b"m0", b"m1", b"m2"]
    leader.kill()
    cluster.advance(3 * SECOND)
    for packet in delivered:
        peer.send(Ack(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id))
    peer.send(Publish(b"u", b"mine", 2, packet_id=9), Disconnect(0, properties(session_expiry=3600)))
    peer.lose()
    cluster.advance(SECOND)
    relay = relay_of(site)
    numbers = [entry[0] for entry in relay.log]
    site.node._broker.proxy.relays.forget_acks(relay)
    assert [entry[0] for entry in relay.log] == numbers[3:]
    check(cluster)
    leader.revive()
    cluster.advance(5 * SECOND)
    assert not site.node._broker.proxy.relays.relays
    cluster.advance(60 * SECOND)
    again = site.client(client_id, acks=False)
    assert again.connect(clean_start=False, session_expiry=EVER).session_present
    cluster.run()
    repeated = [packet for packet in again.receive() if isinstance(packet, Publish)]
    assert [(packet.payload, packet.dup) for packet in repeated] == [(b"m0", True), (b"m1", True), (b"m2", True)]
    again.send(Ack(PUBREC, repeated[2].packet_id))
    assert again.take(Ack).kind == PUBREL


@pytest.mark.parametrize("successor", ["n1", "n3"])
def test_a_client_that_is_not_read_is_read_again_when_another_node_leads_its_session(successor: str) -> None:
    cluster = SimulatedCluster(3)
    site, leader = cluster["n1"], cluster["n2"]
    peer = site.client(leader.names_led("c")[0])
    peer.connect(session_expiry=EVER)
    assert peer.subscribe("t", qos=1) == [1]
    cluster.run()
    for _ in range(6):
        flood(peer, PUBACK)
        site.run_alone()
    assert peer.paused
    cluster.hand_partition_to(site.node._state.partition_of(peer.client_id.encode()), successor)
    cluster.settle()
    cluster.advance(SECOND)
    assert not peer.paused
    assert site.node.counters.publishers_paused == 0
    peer.publish("t", b"m", qos=1)
    assert peer.payloads() == [b"m"]
    check(cluster)
