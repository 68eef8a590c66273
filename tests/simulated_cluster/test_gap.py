"""Messages between two nodes that live were lost: nothing that comes behind the gap counts before they came again.

A link is given up when too much waits in it, and a new member is told of things before its link is there.
"""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.pack import varint
from folkmoot.mqtt.packet import PUBACK, Ack, Connack, Connect, Publish, Will
from folkmoot.turn.message import OUTPUT
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 16
WRITERS = 8
BUFFER_BYTES = 20_000


def a_cluster() -> SimulatedCluster:
    return SimulatedCluster(
        3, partitions=PARTITIONS, replicas=1, link_buffer_bytes_max=BUFFER_BYTES, silence_us=60 * SECOND
    )


def lose(cluster: SimulatedCluster) -> None:
    """Have n1 give up its link to n2, with all that it has sent since that is held."""
    before = cluster["n1"].kinds().count("peer_too_slow")
    for _ in range(2):
        cluster["n1"].cluster_node.peers.send(
            "n2", OUTPUT, varint(99) + bytes(BUFFER_BYTES)
        )  # for a client that has gone
    cluster.run()
    assert cluster["n1"].kinds().count("peer_too_slow") == before + 1, "the link was given up"


def begin_anew(cluster: SimulatedCluster, waits_for: str) -> None:
    """A link is lost, and n2 begins anew in the next view, for which it waits for another node: it leads nothing."""
    epoch = cluster["n2"].cluster_node.fabric.epoch
    cluster.held = {("n1", "n2")}
    lose(cluster)
    cluster.held = set()
    for _ in range(400):
        cluster.step()
        if all(site.cluster_node.fabric.epoch > epoch for site in cluster.live()):
            break
        due = min(site.node.next_wake() for site in cluster.live())
        cluster.now = max(cluster.now, min(due, cluster.now + SECOND // 100))
    cluster.held = {(waits_for, "n2")}
    cluster.advance(SECOND)
    assert not any(cluster["n2"].node._state.leads)


def publish(writer: Peer, packet_id: int) -> None:
    writer.send(Publish(b"t", writer.client_id.encode() + b" %d" % packet_id, 1, False, False, packet_id))


def acknowledged(writer: Peer) -> list[int]:
    return [packet.packet_id for packet in writer.inbox if isinstance(packet, Ack) and packet.kind == PUBACK]


@pytest.mark.parametrize("late", range(8))
def test_what_comes_behind_messages_that_were_lost_with_a_link_does_not_stand_for_them(late: int) -> None:
    cluster = a_cluster()
    here, there = cluster["n1"], cluster["n2"]
    reader = there.client(there.names_led("r")[0])
    reader.connect(session_expiry=EVER)
    reader.subscribe("t", qos=1)
    writers = [here.client(name) for name in here.names_led("w")[:WRITERS]]
    for writer in writers:
        writer.connect()
    cluster.held = {("n1", "n2")}
    for writer in writers:
        publish(writer, 1)
    lose(cluster)
    cluster.held = set()
    for _ in range(late):
        cluster.step()
    for writer in writers:
        publish(writer, 2)
    cluster.advance(20 * SECOND)
    assert [acknowledged(writer) for writer in writers] == [[1, 2]] * WRITERS
    expected = sorted(f"{writer.client_id} {number}" for writer in writers for number in (1, 2))
    assert sorted(payload.decode() for payload in reader.payloads()) == expected


@pytest.mark.parametrize("expiry_s", [0, EVER])
@pytest.mark.parametrize("slow", [False, True])
def test_a_goodbye_that_was_lost_with_a_link_is_said_again(expiry_s: int, slow: bool) -> None:
    cluster = a_cluster()
    there, third = cluster["n2"], cluster["n3"]
    watcher = third.client(third.names_led("w")[0])
    watcher.connect(session_expiry=EVER)
    watcher.subscribe("will", qos=1)
    client = cluster["n1"].client(there.names_led("c")[0])
    client.connect(will=Will(b"will", b"x", 1, False), session_expiry=expiry_s)
    cluster.held = {("n1", "n2")}
    client.disconnect()
    if slow:
        there.hold_writes()
    lose(cluster)
    cluster.held = set()
    cluster.advance(3 * SECOND)
    if slow:
        there.release_writes()
    cluster.advance(20 * SECOND)
    assert watcher.payloads() == []


def test_who_asks_a_leader_that_begins_anew_asks_again_when_it_leads() -> None:
    cluster = a_cluster()
    at, waits_for = "n1", "n3"  # not n1, to which it speaks for its lease
    topic = cluster["n2"].names_led("t")[0]
    publisher = cluster[at].client("p")
    publisher.connect()
    publisher.publish(topic, b"kept", qos=1, retain=True)
    reader = cluster[at].client(cluster[at].names_led("s")[0])
    reader.connect()
    begin_anew(cluster, waits_for)
    reader.subscribe(topic, qos=1)
    cluster.advance(SECOND)
    cluster.held = set()
    cluster.advance(30 * SECOND)
    assert reader.payloads() == [b"kept"]


@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_a_client_that_has_gone_while_its_node_was_not_heard_is_not_let_in(expiry_s: int) -> None:
    cluster = a_cluster()
    client_id = cluster["n2"].names_led("c")[0]
    begin_anew(cluster, "n3")
    ghost = cluster["n1"].client(client_id)
    ghost.open().send(Connect(5, client_id, True, properties=properties(session_expiry=expiry_s)))
    cluster.advance(SECOND // 100)
    cluster.held = {("n3", "n2"), ("n1", "n2")}
    ghost.lose()
    lose(cluster)
    cluster.held = {("n3", "n2")}
    cluster.advance(3 * SECOND)
    cluster.held = set()
    cluster.advance(20 * SECOND)
    assert not [key for key in cluster["n2"].node._broker.leadership.hosting.remotes if key[0] == "n1"]
    other = cluster["n3"].client(client_id)
    other.open().send(Connect(5, client_id, True))
    cluster.advance(20 * SECOND)
    assert not other.take(Connack).code


def test_a_client_that_takes_bytes_again_does_not_starve_because_that_was_lost() -> None:
    cluster = a_cluster()
    client = cluster["n1"].client(cluster["n2"].names_led("c")[0])
    client.connect(session_expiry=EVER)
    client.subscribe("t", qos=1)
    begin_anew(cluster, "n3")
    connection = client.connection
    assert connection is not None
    cluster["n1"].node.writable(connection, False, cluster.now)
    cluster.advance(SECOND // 100)
    cluster.held = {("n3", "n2"), ("n1", "n2")}
    cluster["n1"].node.writable(connection, True, cluster.now)
    lose(cluster)
    cluster.held = {("n3", "n2")}
    cluster.advance(3 * SECOND)
    cluster.held = set()
    cluster.advance(20 * SECOND)
    publisher = cluster["n3"].client("p")
    publisher.connect()
    publisher.publish("t", b"m", qos=1)
    cluster.advance(20 * SECOND)
    assert client.payloads() == [b"m"]
