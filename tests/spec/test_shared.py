"""Section 4.8.2: shared subscriptions; 3.x clients have them too, by the same filter."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import PUBACK, PUBREC, PUBREL, V5, Ack, Suback
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.peer import Peer
from tests.harness.version import BOTH

SHARED = "$share/g/t"


def group(box: Box, size: int, version: int = V5, qos: int = 2, acks: bool = True) -> list[Peer]:
    """Members of one group with lasting sessions."""
    members = [box.client(f"m{number}", version, acks=acks) for number in range(size)]
    for member in members:
        member.resume()
        member.subscribe(SHARED, qos=qos)
    return members


def source(box: Box) -> Peer:
    peer = box.client("s")
    peer.connect()
    return peer


@pytest.mark.spec("MQTT-4.8.2-1", "MQTT-4.8.2-2", version="5.0")
@BOTH
@pytest.mark.parametrize("topic_filter", ["$share/", "$share/g", "$share/g/", "$share//t", "$share/g+/t", "$share/#/t"])
def test_a_malformed_shared_filter_is_rejected(box: Box, version: int, topic_filter: str) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.raw(wire.subscribe(version, (topic_filter, 0)))
    if peer.closed:
        peer.expect_close(0x81, 0x82, 0x8F)
    else:
        assert peer.take(Suback).codes == [0x8F if version == V5 else 0x80]


@pytest.mark.spec("MQTT-4.8.2-1", "MQTT-4.8.2-2", version="5.0")
@BOTH
def test_each_message_goes_to_one_member_of_each_group(box: Box, version: int) -> None:
    members, other, plain = group(box, 3, version), box.client("o", version), box.client("p", version)
    for peer, topic_filter in ((other, "$share/h/t"), (plain, "t")):
        peer.connect()
        peer.subscribe(topic_filter)
    publisher = source(box)
    expected = [b"%d" % number for number in range(12)]
    for payload in expected:
        publisher.publish("t", payload, qos=1)
    got = [member.payloads() for member in members]
    assert sorted(payload for payloads in got for payload in payloads) == sorted(expected)
    assert all(got), "every member has its share"
    assert other.payloads() == plain.payloads() == expected


@BOTH
def test_a_share_is_not_a_topic(box: Box, version: int) -> None:
    (member,) = group(box, 1, version)
    watcher = box.client("w", version)
    watcher.connect()
    watcher.subscribe("#")
    publisher = source(box)
    publisher.publish("t", b"m")
    assert member.messages() == [("t", b"m")]
    assert watcher.messages() == [("t", b"m")]


@pytest.mark.spec("MQTT-4.8.2-3", version="5.0")
def test_the_granted_qos_is_respected(box: Box) -> None:
    publisher = source(box)
    for granted in (0, 1, 2):
        member = box.client(f"m{granted}")
        member.connect()
        member.subscribe(SHARED, qos=granted)
        for published in (0, 1, 2):
            publisher.publish("t", b"m", qos=published)
            assert [packet.qos for packet in member.publishes()] == [min(granted, published)]
        member.disconnect()


@pytest.mark.spec("MQTT-4.8.2-4", version="5.0")
@pytest.mark.parametrize("stage", ["sent", "received"])
@pytest.mark.parametrize("how", ["lose", "crash"])
def test_a_qos_2_delivery_is_completed_to_the_same_client(box: Box, stage: str, how: str) -> None:
    members = group(box, 2, acks=False)
    source(box).publish("t", b"m", qos=2)
    (chosen,) = [member for member in members if member.inbox]
    (rest,) = [member for member in members if member is not chosen]
    (packet,) = chosen.publishes()
    if stage == "received":
        chosen.send(Ack(PUBREC, packet.packet_id))
        assert chosen.expect(Ack).kind == PUBREL
    if how == "crash":
        box.crash()
        rest.resume()
    else:
        chosen.lose()
    assert rest.receive() == []
    chosen.resume()
    (again,) = chosen.receive()
    assert again.packet_id == packet.packet_id  # type: ignore[union-attr]
    assert isinstance(again, Ack) is (stage == "received")
    assert rest.receive() == []


@pytest.mark.spec("MQTT-4.8.2-5", version="5.0")
@pytest.mark.parametrize("how", ["clean start", "expiry"])
def test_a_qos_2_message_of_an_ended_session_goes_to_nobody(box: Box, how: str) -> None:
    members = group(box, 2, acks=False)
    source(box).publish("t", b"m", qos=2)
    (chosen,) = [member for member in members if member.inbox]
    (rest,) = [member for member in members if member is not chosen]
    if how == "clean start":
        chosen.lose()
        chosen.connect(clean_start=True)
    else:
        chosen.disconnect(session_expiry=5)
        box.advance(10_000_000)
    assert rest.messages() == []


@pytest.mark.spec("MQTT-4.8.2-6", version="5.0")
@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
def test_a_refused_message_goes_to_nobody_else(box: Box, qos: int, kind: int) -> None:
    members = group(box, 3, acks=False)
    source(box).publish("t", b"m", qos=qos)
    (chosen,) = [member for member in members if member.inbox]
    (packet,) = chosen.publishes()
    chosen.send(Ack(kind, packet.packet_id, 0x83))
    box.advance(60_000_000)
    chosen.lose()
    chosen.resume()
    assert [member.receive() for member in members] == [[], [], []]


def test_qos_1_messages_of_a_lost_member_go_to_others(box: Box) -> None:
    """What section 4.8.2 leaves to the server: unacknowledged QoS 1 messages do not wait for the lost member."""
    first, second = group(box, 2, qos=1, acks=False)
    publisher = source(box)
    for number in range(8):
        publisher.publish("t", b"%d" % number, qos=1)
    got = {packet.payload for packet in first.publishes()}
    assert got
    first.disconnect(session_expiry=0)
    seen = {packet.payload for packet in second.publishes()}
    assert seen == {b"%d" % number for number in range(8)}


@BOTH
def test_a_transient_member_that_vanishes_leaves_its_qos_1_messages_to_others(box: Box, version: int) -> None:
    """And its QoS 2 messages to nobody: it may have received them [MQTT-4.8.2-5]."""
    members = [box.client(f"m{number}", version, acks=False) for number in range(2)]
    for member in members:
        member.connect()
        member.subscribe(SHARED, qos=2)
    publisher = source(box)
    for number in range(8):
        publisher.publish("t", b"%d" % number, qos=1 + number // 4)
    first, second = ({packet.payload: packet.qos for packet in member.publishes()} for member in members)
    assert {**first, **second} == {b"%d" % number: 1 + number // 4 for number in range(8)}
    members[0].lose()
    passed_on = sorted(members[1].payloads())
    assert passed_on == sorted(payload for payload, qos in first.items() if qos == 1)
    assert 0 < len(passed_on) < len(first)


def test_members_share_with_members_of_older_versions(box: Box) -> None:
    new, old = box.client("new"), box.client("old", 4)
    for member in (new, old):
        member.connect()
        member.subscribe(SHARED, qos=1)
    publisher = source(box)
    for number in range(10):
        publisher.publish("t", b"%d" % number, qos=1)
    first, second = new.payloads(), old.payloads()
    assert sorted(first + second) == [b"%d" % number for number in range(10)]
    assert first
    assert second


def test_a_member_that_left_gets_nothing(box: Box) -> None:
    first, second = group(box, 2)
    publisher = source(box)
    assert first.unsubscribe(SHARED) == [0]
    for number in range(6):
        publisher.publish("t", b"%d" % number, qos=1)
    assert first.payloads() == []
    assert len(second.payloads()) == 6
