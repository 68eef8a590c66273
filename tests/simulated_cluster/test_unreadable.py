"""A row that cannot be read costs the connection of its client, and nothing else."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import PUBREC, Ack, Publish, Suback, Subscribe, Will
from folkmoot.store.key import BODY, PRODUCER, QUEUE, RETAINED, SESSION
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster
from tests.harness.unreadable import Unreadable


def test_who_comes_to_a_queue_that_cannot_be_read_is_sent_away_and_the_node_goes_on() -> None:
    cluster = SimulatedCluster(3)
    for name in cluster.sites:
        for site in cluster.live():
            peer = site.client(f"r-{name}-{site.name}")
            peer.connect(session_expiry=EVER)
            peer.subscribe("t", qos=1)
            peer.lose()
    source = cluster["n1"].client("source")
    source.connect()
    for number in range(5):
        source.publish("t", b"%d" % number, qos=1)
    for site in cluster.live():
        state = site.node._broker.state
        state.reader = Unreadable(state.reader, QUEUE, gets=False)
    sent_away = 0
    for name in cluster.sites:
        for site in cluster.live():
            peer = next(peer for peer in site.peers if peer.client_id == f"r-{name}-{site.name}")
            peer.connect(clean_start=False, session_expiry=EVER, code=None)
            cluster.advance(SECOND)
            sent_away += peer.closed
    assert sent_away == 9
    assert any("corrupt_store" in site.kinds() for site in cluster.live())
    source.publish("other", b"x", qos=1)
    assert not source.closed


def name_led_by(cluster: SimulatedCluster, node_id: str) -> str:
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    leaders = cluster_node.fabric.leaders
    names = [f"t/{number}" for number in range(99)]
    return next(name for name in names if leaders[hash64(name.encode()) % cluster.partitions] == node_id)


def break_reading(cluster: SimulatedCluster, node_id: str, kind: int, *, scans: bool = True) -> None:
    state = cluster[node_id].node._broker.state
    state.reader = Unreadable(state.reader, kind, scans=scans)


def retained_elsewhere(payload: bytes) -> tuple[SimulatedCluster, str, Peer]:
    """Return three nodes, a topic with a retained message that n2 leads, and its publisher, who is at n1."""
    cluster = SimulatedCluster(3)
    topic = name_led_by(cluster, "n2")
    source = cluster["n1"].client("source")
    source.connect()
    source.publish(topic, payload, qos=1, retain=True)
    return cluster, topic, source


def test_a_retained_message_that_cannot_be_read_can_be_replaced_from_another_node() -> None:
    cluster, topic, source = retained_elsewhere(b"old")
    break_reading(cluster, "n2", RETAINED)
    source.publish(topic, b"new", qos=1, retain=True)  # waits for PUBACK
    reader = cluster["n3"].client("reader")
    reader.connect()
    cluster["n2"].kill()
    cluster.settle()
    reader.subscribe(topic, qos=1)
    assert reader.payloads() == [b"new"]


def test_requests_that_need_what_cannot_be_read_go_to_another_leader_in_their_order() -> None:
    cluster = SimulatedCluster(3)
    reader = cluster["n3"].client(name_led_by(cluster, "n2"))
    reader.connect(session_expiry=EVER)
    reader.subscribe("t", qos=1)
    reader.lose()
    source, other = cluster["n1"].client("source"), cluster["n1"].client("other")
    source.connect()
    other.connect()
    other.publish("t", b"0", qos=1)
    break_reading(cluster, "n2", PRODUCER)
    named = properties(user_properties=[("folkmoot-producer", "p"), ("folkmoot-seq", "1")])
    source.send(Publish(b"t", b"1", 1, packet_id=1, properties=named))
    other.send(Publish(b"t", b"2", 1, packet_id=7))  # needs no such row, and must not come before
    cluster.advance(10 * SECOND)
    assert source.take(Ack).packet_id == 1
    assert other.take(Ack).packet_id == 7
    assert "replica_damaged" in cluster["n2"].kinds()
    reader.connect(clean_start=False, session_expiry=EVER)
    assert reader.payloads() == [b"0", b"1", b"2"]


def test_who_was_to_lead_and_cannot_takes_no_packet_of_a_client_for_done() -> None:
    cluster = SimulatedCluster(3)
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    assert cluster_node.view is not None
    replicas = cluster_node.view.replicas
    partition = next(number for number in range(cluster.partitions) if replicas[number][1] < replicas[number][2])
    leader, successor, third = [
        cluster[node_id] for node_id in replicas[partition]
    ]  # the successor has each view first
    names = [f"c{number}" for number in range(99)]
    client = third.client(next(name for name in names if hash64(name.encode()) % cluster.partitions == partition))
    client.connect(session_expiry=EVER)
    state = successor.node._broker.state
    reader = state.reader
    break_reading(cluster, successor.name, SESSION)
    leader.kill()
    client.send(Publish(b"t", b"x", 2, packet_id=1))
    while "replica_damaged" not in successor.kinds():
        cluster.advance(SECOND // 100)
    state.reader = reader
    cluster.settle()
    assert client.take(Ack).kind == PUBREC


def test_who_wants_retained_messages_that_cannot_be_read_is_sent_away_and_gets_them_later() -> None:
    cluster, topic, _source = retained_elsewhere(b"x")
    state = cluster["n2"].node._broker.state
    reader = state.reader
    break_reading(cluster, "n2", RETAINED)
    peer = cluster["n2"].client(name_led_by(cluster, "n2"))
    peer.connect(session_expiry=EVER)
    peer.send(Subscribe(1, [(topic.encode(), 1)]))
    cluster.advance(SECOND)
    assert peer.closed
    assert "corrupt_store" in cluster["n2"].kinds()
    state.reader = reader
    peer.connect(clean_start=False, session_expiry=EVER)
    cluster.advance(SECOND)
    assert peer.payloads() == [b"x"]


def test_whose_message_in_flight_is_not_there_at_the_next_leader_is_sent_away() -> None:
    """Its row names a body that is missing; all copies are equal, so each leader after that one would meet it, too."""
    cluster = SimulatedCluster(3)
    leader, successor, third = cluster.live()
    names = leader.names_led("c")
    partition = hash64(names[0].encode()) % cluster.partitions
    names = [name for name in names if hash64(name.encode()) % cluster.partitions == partition][:2]
    clients = [third.client(names[0], acks=False), successor.client(names[1], acks=False)]
    for client in clients:
        client.connect(session_expiry=EVER)
        client.subscribe("t", qos=1)
    source = third.client("source")
    source.connect()
    source.publish("t", bytes(200), qos=1)
    readers = {site.name: site.node._broker.state.reader for site in (successor, third)}
    for site in (successor, third):
        break_reading(cluster, site.name, BODY, scans=False)
    leader.kill()
    cluster.advance(5 * SECOND)
    assert all(client.closed for client in clients)
    for site in (successor, third):
        site.node._broker.state.reader = readers[site.name]
    for client in clients:
        assert client.connect(clean_start=False, session_expiry=EVER).session_present
        assert client.payloads() == [bytes(200)]


def test_a_will_that_may_have_been_published_holds_up_no_other_client_and_comes_from_the_next_leader() -> None:
    cluster = SimulatedCluster(3)
    leader, _, third = cluster.live()
    names = leader.names_led("c")
    partition = hash64(names[0].encode()) % cluster.partitions
    first, second, watching = [name for name in names if hash64(name.encode()) % cluster.partitions == partition][:3]
    watcher = third.client(watching)
    watcher.connect(session_expiry=EVER)
    watcher.subscribe("will", qos=1)
    mortal, other = third.client(first), third.client(second)
    mortal.connect(session_expiry=EVER, will=Will(b"will", b"gone", 1, False))
    other.connect(session_expiry=EVER)
    break_reading(cluster, leader.name, PRODUCER)
    cluster.freeze()  # both go to the leader in one message
    mortal.lose()
    other.send(Subscribe(1, [(b"t", 1)]))
    cluster.thaw()
    cluster.advance(SECOND)
    assert other.take(Suback).codes == [1]
    assert "corrupt_store" in leader.kinds()
    mortal.connect(clean_start=False, session_expiry=EVER)
    assert watcher.payloads() == []
    leader.kill()
    cluster.advance(5 * SECOND)
    assert watcher.payloads() == [b"gone"]
    assert not mortal.closed
