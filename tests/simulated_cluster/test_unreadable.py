"""A row that cannot be read costs the connection of its client, and nothing else."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import PUBREC, Ack, Publish, Subscribe
from folkmoot.store.key import PRODUCER, QUEUE, RETAINED, SESSION
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import Camp
from tests.harness.unreadable import Unreadable


def test_who_comes_to_a_queue_that_cannot_be_read_is_sent_away_and_the_node_goes_on() -> None:
    camp = Camp(3)
    for name in camp.sites:
        for site in camp.live():
            peer = site.client(f"r-{name}-{site.name}")
            peer.connect(session_expiry=EVER)
            peer.subscribe("t", qos=1)
            peer.lose()
    source = camp["n1"].client("source")
    source.connect()
    for number in range(5):
        source.publish("t", b"%d" % number, qos=1)
    for site in camp.live():
        state = site.node._broker.state
        state.reader = Unreadable(state.reader, QUEUE, gets=False)
    sent_away = 0
    for name in camp.sites:
        for site in camp.live():
            peer = next(peer for peer in site.peers if peer.client_id == f"r-{name}-{site.name}")
            peer.connect(clean_start=False, session_expiry=EVER, code=None)
            camp.advance(SECOND)
            sent_away += peer.closed
    assert sent_away == 9
    assert any("corrupt_store" in site.kinds() for site in camp.live())
    source.publish("other", b"x", qos=1)
    assert not source.closed


def name_led_by(camp: Camp, node_id: str) -> str:
    liaison = camp["n1"].node.liaison
    assert liaison is not None
    leaders = liaison.fabric.leaders
    names = [f"t/{number}" for number in range(99)]
    return next(name for name in names if leaders[hash64(name.encode()) % camp.partitions] == node_id)


def break_reading(camp: Camp, node_id: str, kind: int) -> None:
    state = camp[node_id].node._broker.state
    state.reader = Unreadable(state.reader, kind)


def retained_elsewhere(payload: bytes) -> tuple[Camp, str, Peer]:
    """Return three nodes, a topic with a retained message that n2 leads, and its publisher, who is at n1."""
    camp = Camp(3)
    topic = name_led_by(camp, "n2")
    source = camp["n1"].client("source")
    source.connect()
    source.publish(topic, payload, qos=1, retain=True)
    return camp, topic, source


def test_a_retained_message_that_cannot_be_read_can_be_replaced_from_another_node() -> None:
    camp, topic, source = retained_elsewhere(b"old")
    break_reading(camp, "n2", RETAINED)
    source.publish(topic, b"new", qos=1, retain=True)  # waits for PUBACK
    reader = camp["n3"].client("reader")
    reader.connect()
    camp["n2"].kill()
    camp.settle()
    reader.subscribe(topic, qos=1)
    assert reader.payloads() == [b"new"]


def test_requests_that_need_what_cannot_be_read_go_to_another_leader_in_their_order() -> None:
    camp = Camp(3)
    reader = camp["n3"].client(name_led_by(camp, "n2"))
    reader.connect(session_expiry=EVER)
    reader.subscribe("t", qos=1)
    reader.lose()
    source, other = camp["n1"].client("source"), camp["n1"].client("other")
    source.connect()
    other.connect()
    other.publish("t", b"0", qos=1)
    break_reading(camp, "n2", PRODUCER)
    named = properties(user_properties=[("folkmoot-producer", "p"), ("folkmoot-seq", "1")])
    source.send(Publish(b"t", b"1", 1, packet_id=1, properties=named))
    other.send(Publish(b"t", b"2", 1, packet_id=7))  # needs no such row, and must not come before
    camp.advance(10 * SECOND)
    assert source.take(Ack).packet_id == 1
    assert other.take(Ack).packet_id == 7
    assert "replica_damaged" in camp["n2"].kinds()
    reader.connect(clean_start=False, session_expiry=EVER)
    assert reader.payloads() == [b"0", b"1", b"2"]


def test_who_was_to_lead_and_cannot_takes_no_packet_of_a_client_for_done() -> None:
    camp = Camp(3)
    liaison = camp["n1"].node.liaison
    assert liaison is not None
    assert liaison.view is not None
    replicas = liaison.view.replicas
    partition = next(number for number in range(camp.partitions) if replicas[number][1] < replicas[number][2])
    leader, heir, third = [camp[node_id] for node_id in replicas[partition]]  # the heir has each view first
    names = [f"c{number}" for number in range(99)]
    client = third.client(next(name for name in names if hash64(name.encode()) % camp.partitions == partition))
    client.connect(session_expiry=EVER)
    state = heir.node._broker.state
    reader = state.reader
    break_reading(camp, heir.name, SESSION)
    leader.kill()
    client.send(Publish(b"t", b"x", 2, packet_id=1))
    while "replica_damaged" not in heir.kinds():
        camp.advance(SECOND // 100)
    state.reader = reader
    camp.settle()
    assert client.take(Ack).kind == PUBREC


def test_who_wants_retained_messages_that_cannot_be_read_is_sent_away_and_gets_them_later() -> None:
    camp, topic, _source = retained_elsewhere(b"x")
    state = camp["n2"].node._broker.state
    reader = state.reader
    break_reading(camp, "n2", RETAINED)
    peer = camp["n2"].client(name_led_by(camp, "n2"))
    peer.connect(session_expiry=EVER)
    peer.send(Subscribe(1, [(topic.encode(), 1)]))
    camp.advance(SECOND)
    assert peer.closed
    assert "corrupt_store" in camp["n2"].kinds()
    state.reader = reader
    peer.connect(clean_start=False, session_expiry=EVER)
    camp.advance(SECOND)
    assert peer.payloads() == [b"x"]
