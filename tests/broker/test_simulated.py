"""What the simulator found, each in as few steps as show it."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import V5, V311, Ack, Connack, Connect, Disconnect, Publish, Will
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import properties


@pytest.mark.parametrize("version", [V311, V5])
def test_a_clean_start_is_answered_when_the_end_of_the_session_is_durable(box: Box, version: int) -> None:
    old = box.client("a", version)
    old.resume()
    old.lose()
    box.hold_writes()
    first = box.client("a", version).open()
    first.send(Connect(version, "a", clean_start=True))
    assert first.receive() == []
    first.lose()
    second = box.client("a", version).open()
    second.send(Connect(version, "a", clean_start=True))
    assert second.receive() == []
    box.release_writes()
    assert not second.expect(Connack).session_present


def test_a_full_queue_keeps_what_was_sent(make: MakeBox) -> None:
    box = make(limits={"queue_messages_max": 2, "queue_full_drops_oldest": True})
    reader = box.client("reader", acks=False)
    reader.resume(receive_max=1)
    reader.subscribe("t", qos=2)
    writer = box.client("writer")
    writer.connect()
    writer.publish("t", b"sent", qos=2)
    assert reader.payloads() == [b"sent"]
    reader.lose()
    for number in range(6):
        writer.publish("t", b"%d" % number, qos=2)
    reader.resume(receive_max=10)
    again = reader.publishes()
    assert (again[0].payload, again[0].dup) == (b"sent", True)
    assert [packet.payload for packet in again[1:]] == [b"5"]  # the oldest of those that were not sent have gone


def test_qos_0_does_not_overtake_what_was_stored(make: MakeBox) -> None:
    box = make(limits={"queue_qos0_offline": True, "inflight_max": 1})
    reader = box.client("reader", acks=False)
    reader.resume()
    reader.subscribe("t", qos=1)
    reader.lose()
    writer = box.client("writer")
    writer.connect()
    for qos, payload in ((1, b"1"), (1, b"2"), (0, b"3")):
        writer.publish("t", payload, qos=qos)
    reader.resume()
    writer.publish("t", b"4")
    first = reader.take(Publish)
    assert (first.payload, reader.receive()[1:]) == (b"1", [])
    reader.send(Ack(4, first.packet_id))
    second = reader.take(Publish)
    reader.send(Ack(4, second.packet_id))
    assert [second.payload, *reader.payloads()] == [b"2", b"3", b"4"]


def test_stored_qos_0_comes_once_over_a_crash(make: MakeBox) -> None:
    box = make(limits={"queue_qos0_offline": True})
    reader = box.client("reader")
    reader.resume()
    reader.subscribe("t")
    reader.lose()
    writer = box.client("writer")
    writer.connect()
    writer.publish("t", b"once")
    reader.open()
    box.hold_writes()
    reader.send(Connect(V5, "reader", clean_start=False, properties=properties(session_expiry=1000)))
    box.release_writes(1)
    assert reader.payloads() == [b"once"]
    box.crash()
    reader.resume()
    assert reader.payloads() == []


def test_what_may_have_been_sent_is_marked_over_two_crashes(box: Box) -> None:
    reader = box.client("reader", acks=False)
    reader.resume()
    reader.subscribe("t", qos=1)
    reader.lose()
    writer = box.client("writer")
    writer.connect()
    writer.publish("t", b"m", qos=1)
    reader.open()
    box.hold_writes()
    reader.send(Connect(V5, "reader", clean_start=False, properties=properties(session_expiry=1000)))
    box.release_writes(1)
    assert [packet.dup for packet in reader.publishes()] == [False]
    box.crash()
    box.crash()
    reader.resume()
    assert [packet.dup for packet in reader.publishes()] == [True]


def test_no_local_concerns_retained_messages_too(box: Box) -> None:
    client = box.client("a")
    client.connect()
    client.publish("t", b"mine", qos=1, retain=True)
    client.subscribe("t", no_local=True)
    assert client.payloads() == []
    client.subscribe("t")
    assert client.payloads() == [b"mine"]


def test_an_own_message_has_no_identifier_of_a_no_local_subscription(box: Box) -> None:
    client = box.client("a")
    client.connect()
    client.subscribe("t/#", no_local=True, subscription_id=7)
    client.subscribe("t/x", subscription_id=8)
    for _ in range(3):
        client.publish("t/x", b"m")
    ids = [packet.properties.subscription_ids for packet in client.publishes() if packet.properties]
    assert ids == [[8], [8], [8]]


def test_a_will_for_the_topic_of_its_own_ended_session(box: Box) -> None:
    first = box.client("a")
    first.connect(will=Will(b"will", b"gone", 1))
    first.subscribe("#", qos=1)
    second = box.client("a")
    second.connect()
    first.expect_close(0x8E)
    assert second.payloads() == []


def test_a_stopping_node_refuses_in_words_that_connack_has(box: Box) -> None:
    box.stop()
    late = box.client("late").open()
    late.send(Connect(V5, "late"))
    assert late.expect(Connack).code == 0x88


def test_an_alias_does_not_decide_whether_a_message_fits(box: Box) -> None:
    topic = "a/long/topic/name/that/an/alias/stands/for"
    reader = box.client("reader", acks=False)
    reader.resume(topic_alias_max=1, packet_max=200)
    reader.subscribe("#", qos=2)
    writer = box.client("writer")
    writer.connect()
    writer.publish(topic, b"first", qos=1)
    reader.send(Ack(4, reader.take(Publish).packet_id))
    for size in range(200, 100, -1):
        writer.publish(topic, b"x" * size, qos=2)
    sent = reader.payloads()
    assert len(sent) > 10
    reader.lose()
    reader.resume(topic_alias_max=1, packet_max=200)
    assert reader.payloads() == sent


def test_a_producer_is_disconnected_where_others_are_refused(make: MakeBox) -> None:
    box = make(streams=[StreamConfig("s", b"#", 1)])
    pairs = [[("folkmoot-producer", "p"), ("folkmoot-seq", str(number))] for number in (1, 2)]
    producer = box.client("producer")
    producer.connect()
    box.storage(full=True)
    producer.send(
        Publish(b"t", b"one", 1, packet_id=1, properties=properties(user_properties=pairs[0])),
        Publish(b"t", b"two", 0, properties=properties(user_properties=pairs[1])),
    )
    assert producer.expect(Disconnect).code == 0x97
    box.storage(full=False)
    producer.connect()
    assert producer.publish("t", b"one", 1, user_properties=pairs[0]) == 0
    assert producer.publish("t", b"two", 1, user_properties=pairs[1]) == 0
    assert box.node.streams.streams[0].logs[0].next_offset == 2


@pytest.mark.parametrize("session_expiry", [0, 1000])
def test_a_replay_larger_than_the_queue_is_complete(make: MakeBox, session_expiry: int) -> None:
    box = make(streams=[StreamConfig("s", b"t", 1)], limits={"queue_messages_max": 3, "inflight_max": 2})
    writer = box.client("writer")
    writer.connect()
    wanted = [b"%d" % number for number in range(50)]
    for payload in wanted:
        writer.publish("t", payload, qos=1)
    reader = box.client("reader")
    reader.connect(session_expiry=session_expiry)
    reader.subscribe("$stream/s/earliest/#", qos=1)
    assert reader.payloads() == wanted
