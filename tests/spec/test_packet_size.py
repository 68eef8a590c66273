"""Section 3.1.2.11.4, Maximum Packet Size of the client, and what is left out to stay within it."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, Ack, Publish
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer, properties


@pytest.mark.spec("MQTT-3.1.2-24", "MQTT-3.1.2-25", version="5.0")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_too_large_for_a_client_counts_as_sent(box: Box, qos: int) -> None:
    """It uses up neither the window nor the queue, and others get it."""
    source, small, large = box.client("s"), box.client("a"), box.client("b")
    source.connect()
    small.connect(packet_max=40, receive_max=1)
    large.connect()
    for peer in (small, large):
        peer.subscribe("t", qos=2)
    for payload in (b"1", bytes(100), b"2", bytes(100), b"3"):
        assert source.publish("t", payload, qos=qos) == 0
    assert small.payloads() == [b"1", b"2", b"3"]
    assert large.payloads() == [b"1", bytes(100), b"2", bytes(100), b"3"]


@pytest.mark.spec("MQTT-3.1.2-24", version="5.0")
def test_the_maximum_is_exact(box: Box) -> None:
    peer = box.client("a")
    peer.connect(packet_max=50)
    peer.subscribe("t")
    room = 50 - 2 - 3 - 1  # fixed header, topic, properties
    peer.publish("t", bytes(room))
    peer.publish("t", bytes(room + 1))
    assert peer.payloads() == [bytes(room)]


@pytest.mark.spec("MQTT-3.1.2-24", "MQTT-3.1.2-25", version="5.0")
@pytest.mark.parametrize("crash", [False, True])
def test_a_queued_message_too_large_is_dropped_at_the_reconnect(box: Box, crash: bool) -> None:
    source, peer = box.client("s"), box.client("a")
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=1)
    peer.lose()
    for payload in (b"1", bytes(100), b"2"):
        source.publish("t", payload, qos=1)
    if crash:
        box.crash()
    peer.resume(packet_max=40)
    assert peer.payloads() == [b"1", b"2"]
    peer.lose()
    peer.resume()
    assert peer.payloads() == []


@pytest.mark.spec("MQTT-3.1.2-24", version="5.0")
def test_properties_count(box: Box) -> None:
    source, peer = box.client("s"), box.client("a")
    source.connect()
    peer.connect(packet_max=60)
    peer.subscribe("t")
    source.publish("t", b"m", user_properties=[("n", "v" * 60)])
    source.publish("t", b"m", user_properties=[("n", "v")])
    assert len(peer.publishes()) == 1


@pytest.mark.spec("MQTT-3.1.2-24", "MQTT-3.1.2-25", version="5.0")
@pytest.mark.parametrize("qos", [0, 1])
def test_what_the_server_adds_counts(box: Box, qos: int) -> None:
    """A message that fits alone, but not with its expiry, subscription identifier and topic alias."""
    source, peer, plain = box.client("s"), box.client("a"), box.client("b")
    source.connect()
    peer.connect(packet_max=40, topic_alias_max=5)
    peer.subscribe("t", qos=1, subscription_id=268_435_455)
    plain.connect(packet_max=40)
    plain.subscribe("t", qos=1)
    for size in (40, 27, 10):
        source.publish("t", bytes(size), qos=qos, message_expiry=60)
    assert peer.payloads() == [bytes(10)]
    assert plain.payloads() == [bytes(27), bytes(10)]


@pytest.mark.spec("MQTT-3.1.2-24", "MQTT-3.1.2-25", version="5.0")
def test_a_retained_message_too_large_is_skipped(box: Box) -> None:
    source, peer = box.client("s"), box.client("a")
    source.connect()
    source.publish("t/1", bytes(100), qos=1, retain=True)
    source.publish("t/2", b"m", qos=1, retain=True)
    peer.connect(packet_max=40)
    peer.subscribe("t/#")
    assert peer.messages() == [("t/2", b"m")]


@pytest.mark.spec("MQTT-3.2.2-19", "MQTT-3.2.2-20", version="5.0")
@pytest.mark.parametrize("method", ["x", "y" * 200])
def test_connack_leaves_reasons_out(box: Box, method: str) -> None:
    """A refusal of the least possible size still says its code; the rules of the connection check the size."""
    peer = box.client("a")
    connack = peer.connect(auth_method=method, packet_max=5, code=0x8C)
    told = connack.properties
    assert told is None or (told.reason, told.user_properties) == (None, [])
    assert peer.closed


@pytest.mark.spec("MQTT-3.1.2-24", version="5.0")
@pytest.mark.parametrize("packet_max", [1, 4, 5, 10])
def test_a_client_that_cannot_take_a_connack_is_closed(box: Box, packet_max: int) -> None:
    peer = box.client("a").open()
    peer.raw(wire.connect(V5, wire.text("a"), properties=wire.props(wire.prop(39, wire.u32(packet_max)))))
    assert peer.closed
    assert len(peer.wire) <= packet_max
    assert peer.close_code == (None if packet_max < 5 else 0x83)


def tight(box: Box) -> Peer:
    """A client that takes no more than the CONNACK that welcomes it has, and acknowledges nothing by itself."""
    probe = box.client("tight", acks=False)
    probe.connect()
    size = len(probe.wire)
    probe.disconnect()
    probe.connect(packet_max=size)
    assert len(probe.wire) == size < 25, "a reason string would fit"
    return probe


@pytest.mark.spec(
    "MQTT-3.4.2-2", "MQTT-3.4.2-3", "MQTT-3.5.2-2", "MQTT-3.5.2-3", "MQTT-3.6.2-2", "MQTT-3.6.2-3", version="5.0"
)
@pytest.mark.spec("MQTT-3.7.2-2", "MQTT-3.7.2-3", version="5.0")
def test_acknowledgements_leave_reasons_out(make: MakeBox) -> None:
    box = make(limits={"check_payload_format": True})
    wide = box.client("wide", acks=False)
    wide.connect()
    sizes = []
    for peer in (wide, tight(box)):
        before = len(peer.wire)
        bad = properties(payload_format=1)
        peer.send(Publish(b"t", b"\xff", 1, packet_id=1, properties=bad))
        peer.send(Publish(b"t", b"\xff", 2, packet_id=2, properties=bad))
        peer.send(Ack(PUBREC, 3), Ack(PUBREL, 4))
        acks = [packet for packet in peer.receive() if isinstance(packet, Ack)]
        assert [(ack.kind, ack.code) for ack in acks] == [
            (PUBACK, 0x99),
            (PUBREC, 0x99),
            (PUBREL, 0x92),
            (PUBCOMP, 0x92),
        ]
        sizes.append(len(peer.wire) - before)
    assert sizes[1] < sizes[0], "there was a reason to leave out"


@pytest.mark.spec("MQTT-3.9.2-1", "MQTT-3.9.2-2", "MQTT-3.11.2-1", "MQTT-3.11.2-2", version="5.0")
def test_suback_and_unsuback_leave_reasons_out(make: MakeBox) -> None:
    box = make(limits={"subscriptions_max": 1})
    wide = box.client("wide")
    wide.connect()
    sizes = []
    for peer in (wide, tight(box)):
        before = len(peer.wire)
        assert peer.subscribe("one") == [0]
        assert peer.subscribe("two") == [0x97]
        assert peer.unsubscribe("three") == [0x11]
        sizes.append(len(peer.wire) - before)
    assert sizes[1] < sizes[0], "there was a reason to leave out"


@pytest.mark.spec("MQTT-3.14.2-3", "MQTT-3.14.2-4", version="5.0")
def test_disconnect_leaves_reasons_out(box: Box) -> None:
    wide = box.client("wide")
    wide.connect()
    sizes = []
    for peer in (wide, tight(box)):
        before = len(peer.wire)
        peer.raw(b"\x00\x00")
        peer.expect_close(0x81)
        sizes.append(len(peer.wire) - before)
    assert sizes[1] < sizes[0], "there was a reason to leave out"


@pytest.mark.spec("MQTT-3.1.2-29", version="5.0")
def test_without_problem_information_acknowledgements_are_bare(make: MakeBox) -> None:
    """CONNACK and DISCONNECT may carry reasons all the same; the rules of the connection watch the others."""
    box = make(limits={"check_payload_format": True, "subscriptions_max": 1})
    peer = box.client("a", acks=False)
    peer.connect(request_problem=0)
    size = len(peer.wire)
    assert peer.publish("t", b"\xff", qos=1, payload_format=1) == 0x99
    assert peer.publish("t", b"\xff", qos=2, payload_format=1) == 0x99
    assert peer.subscribe("a", "b") == [0, 0x97]
    assert peer.unsubscribe("none") == [0x11]
    peer.send(Ack(PUBREC, 99), Ack(PUBREL, 98))
    assert [packet.code for packet in peer.receive() if isinstance(packet, Ack)] == [0x92, 0x92]
    for first, body in wire.split(peer.wire[size:])[0]:
        assert b"\x1f" not in body[2:], f"a reason string in packet {first:#x}"


@pytest.mark.spec("MQTT-3.1.2-29", version="5.0")
def test_user_properties_of_messages_pass_without_problem_information(box: Box) -> None:
    peer = box.client("a")
    peer.connect(request_problem=0)
    peer.subscribe("t")
    peer.send(Publish(b"t", b"m"))
    peer.publish("t", b"m", user_properties=[("n", "v")])
    assert [packet.properties.user_properties if packet.properties else [] for packet in peer.publishes()] == [
        [],
        [("n", "v")],
    ]


@pytest.mark.spec("MQTT-3.1.2-28", version="5.0")
@pytest.mark.parametrize("asked", [None, 0])
def test_response_information_is_not_sent_unasked(box: Box, asked: int | None) -> None:
    told = box.client("a").connect(request_response=asked).properties
    assert told is None or told.response_info is None


def test_response_information_is_sent_when_asked(make: MakeBox) -> None:
    box = make(response_information="answers/%c")
    told = box.client("a").connect(request_response=1).properties
    assert told is not None
    assert told.response_info == "answers/a"
    told = box.client("b").connect().properties
    assert told is not None
    assert told.response_info is None
