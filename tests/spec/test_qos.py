"""Section 4.3: the delivery protocols of QoS 0, 1 and 2, as receiver and as sender."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, Ack, Publish
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer
from tests.harness.version import BOTH


def setting(box: Box, version: int, qos: int) -> tuple[Peer, Peer]:
    """A source and a subscriber with a lasting session that acknowledges nothing by itself."""
    source, peer = box.client("s", version, acks=False), box.client("a", version, acks=False)
    source.resume()
    peer.resume()
    peer.subscribe("t", qos=qos)
    return source, peer


def acks(peer: Peer) -> list[tuple[int, int]]:
    """All acknowledgements that came, as (kind, identifier)."""
    taken = [packet for packet in peer.receive() if isinstance(packet, Ack)]
    return [(packet.kind, packet.packet_id) for packet in taken]


@pytest.mark.spec("MQTT-4.3.1-1", version="5.0")
@pytest.mark.spec("MQTT-4.3.1-1", version="3.1.1")
@BOTH
def test_qos_0_is_sent_once_and_needs_no_answer(box: Box, version: int) -> None:
    source, peer = setting(box, version, 0)
    source.publish("t", b"m")
    (packet,) = peer.publishes()
    assert (packet.qos, packet.dup, packet.packet_id) == (0, False, 0)
    peer.lose()
    peer.resume()
    assert peer.receive() == []


@pytest.mark.spec("MQTT-4.3.2-1", "MQTT-4.3.2-2", "MQTT-4.3.3-1", "MQTT-4.3.3-2", version="5.0")
@pytest.mark.spec("MQTT-4.3.2-1", "MQTT-4.3.3-1", version="3.1.1")
@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_each_new_message_has_an_unused_identifier(box: Box, version: int, qos: int) -> None:
    source, peer = setting(box, version, qos)
    source.acks = True
    for number in range(20):
        source.publish("t", b"%d" % number, qos=qos)
    packets = peer.publishes()
    assert [(packet.qos, packet.dup) for packet in packets] == [(qos, False)] * 20
    assert len({packet.packet_id for packet in packets}) == 20


@pytest.mark.spec("MQTT-4.3.2-1", version="5.0")
@pytest.mark.spec("MQTT-4.3.2-1", version="3.1.1")
@pytest.mark.soak_interpreted("66,000 messages: seconds, interpreted")
@BOTH
def test_identifiers_stay_unused_beyond_65535_messages(make: MakeBox, version: int) -> None:
    """One message is never acknowledged while the counter goes round: the rules of the connection watch its number."""
    box = make()
    source, peer = setting(box, version, 1)
    source.send(Publish(b"t", b"held", 1, packet_id=1))
    (held,) = peer.publishes()
    peer.acks = True
    for _ in range(66):
        source.send(*[Publish(b"t", b"", 1, packet_id=number) for number in range(1, 1_001)])
    assert held.packet_id not in [packet.packet_id for packet in peer.publishes()]


@pytest.mark.spec("MQTT-4.3.2-3", version="5.0")
@pytest.mark.spec("MQTT-4.3.2-1", version="3.1.1")
@BOTH
def test_qos_1_is_unacknowledged_until_puback(box: Box, version: int) -> None:
    source, peer = setting(box, version, 1)
    source.publish("t", b"m", qos=1)
    (first,) = peer.publishes()
    peer.lose()
    peer.resume()
    (second,) = peer.publishes()
    assert (second.packet_id, second.payload) == (first.packet_id, b"m")
    peer.send(Ack(PUBACK, first.packet_id))
    peer.lose()
    peer.resume()
    assert peer.receive() == []
    box.crash()
    peer.resume()
    assert peer.receive() == []


@pytest.mark.spec("MQTT-4.3.2-4", version="5.0")
@pytest.mark.spec("MQTT-4.3.2-2", version="3.1.1")
@BOTH
def test_puback_means_ownership(box: Box, version: int) -> None:
    source, peer = setting(box, version, 1)
    peer.lose()
    source.send(Publish(b"t", b"m", 1, packet_id=0x4321))
    assert acks(source) == [(PUBACK, 0x4321)]
    box.crash()
    peer.resume()
    assert peer.payloads() == [b"m"]


@pytest.mark.spec("MQTT-4.3.2-5", version="5.0")
@pytest.mark.spec("MQTT-4.3.2-2", version="3.1.1")
@BOTH
def test_after_puback_the_identifier_means_a_new_message(box: Box, version: int) -> None:
    source, peer = setting(box, version, 1)
    for number, dup in enumerate((False, True, False)):
        source.send(Publish(b"t", b"%d" % number, 1, dup=dup, packet_id=7))
        assert acks(source) == [(PUBACK, 7)]
    assert peer.payloads() == [b"0", b"1", b"2"]


@pytest.mark.spec("MQTT-4.3.3-3", version="5.0")
@pytest.mark.spec("MQTT-4.3.3-1", "MQTT-4.3.3-3", version="3.1.1")
@BOTH
def test_qos_2_is_unacknowledged_until_pubrec(box: Box, version: int) -> None:
    source, peer = setting(box, version, 2)
    source.send(Publish(b"t", b"m", 2, packet_id=1))
    (first,) = peer.publishes()
    box.crash()
    peer.resume()
    (second,) = peer.publishes()
    assert (second.packet_id, second.payload, second.dup) == (first.packet_id, b"m", True)


@pytest.mark.spec("MQTT-4.3.3-4", version="5.0")
@pytest.mark.spec("MQTT-4.3.3-1", "MQTT-4.3.3-4", version="3.1.1")
@BOTH
def test_pubrec_is_answered_with_pubrel(box: Box, version: int) -> None:
    source, peer = setting(box, version, 2)
    source.send(Publish(b"t", b"m", 2, packet_id=1))
    (packet,) = peer.publishes()
    for _ in range(2):  # a repeated PUBREC too
        peer.send(Ack(PUBREC, packet.packet_id))
        assert acks(peer) == [(PUBREL, packet.packet_id)]


@pytest.mark.spec("MQTT-4.3.3-4", "MQTT-4.4.0-2", version="5.0")
def test_a_refusing_pubrec_gets_no_pubrel(box: Box) -> None:
    source, peer = setting(box, V5, 2)
    source.send(Publish(b"t", b"m", 2, packet_id=1))
    (packet,) = peer.publishes()
    peer.send(Ack(PUBREC, packet.packet_id, 0x80))
    assert peer.receive() == []
    peer.lose()
    peer.resume()
    assert peer.receive() == []


@pytest.mark.spec("MQTT-4.3.3-5", "MQTT-4.3.3-6", version="5.0")
@pytest.mark.spec("MQTT-4.3.3-1", version="3.1.1")
@BOTH
@pytest.mark.parametrize("crash", [False, True])
def test_pubrel_is_unacknowledged_until_pubcomp(box: Box, version: int, crash: bool) -> None:
    """PUBREL is sent again, the message is not."""
    source, peer = setting(box, version, 2)
    source.send(Publish(b"t", b"m", 2, packet_id=1))
    (packet,) = peer.publishes()
    peer.send(Ack(PUBREC, packet.packet_id))
    peer.receive()
    box.crash() if crash else peer.lose()
    peer.resume()
    assert acks(peer) == [(PUBREL, packet.packet_id)]
    peer.send(Ack(PUBCOMP, packet.packet_id))
    box.settle()
    box.crash() if crash else peer.lose()
    peer.resume()
    assert peer.receive() == []


@pytest.mark.spec("MQTT-4.3.3-8", version="5.0")
@pytest.mark.spec("MQTT-4.3.3-2", version="3.1.1")
@BOTH
def test_pubrec_means_ownership(box: Box, version: int) -> None:
    source, peer = setting(box, version, 2)
    peer.lose()
    source.send(Publish(b"t", b"m", 2, packet_id=0x4321))
    assert acks(source) == [(PUBREC, 0x4321)]
    box.crash()
    peer.resume()
    assert peer.payloads() == [b"m"]


@pytest.mark.spec("MQTT-4.3.3-9", version="5.0")
def test_after_a_refusing_pubrec_the_identifier_means_a_new_message(make: MakeBox) -> None:
    box = make(limits={"check_payload_format": True})
    source, peer = setting(box, V5, 2)
    assert source.publish("t", b"\xff", qos=2, payload_format=1) == 0x99
    source.send(Publish(b"t", b"good", 2, packet_id=1))
    assert acks(source) == [(PUBREC, 1)]
    assert peer.payloads() == [b"good"]


@pytest.mark.spec("MQTT-4.3.3-10", version="5.0")
@pytest.mark.spec("MQTT-4.3.3-2", version="3.1.1")
@BOTH
@pytest.mark.parametrize("how", ["same connection", "reconnect", "crash"])
def test_until_pubrel_the_message_is_not_delivered_again(box: Box, version: int, how: str) -> None:
    source, peer = setting(box, version, 2)
    source.send(Publish(b"t", b"m", 2, packet_id=5))
    assert acks(source) == [(PUBREC, 5)]
    peer.acks = True
    peer.send(Ack(PUBREC, peer.publishes()[0].packet_id))
    if how == "reconnect":
        source.lose()
    elif how == "crash":
        box.crash()
        peer.resume()
    if how != "same connection":
        source.resume()
    source.send(Publish(b"t", b"m", 2, dup=True, packet_id=5))
    assert acks(source) == [(PUBREC, 5)]
    assert peer.messages() == []


@pytest.mark.spec("MQTT-4.3.3-12", version="5.0")
@pytest.mark.spec("MQTT-4.3.3-2", version="3.1.1")
@BOTH
@pytest.mark.parametrize("crash", [False, True])
def test_after_pubcomp_the_identifier_means_a_new_message(box: Box, version: int, crash: bool) -> None:
    source, peer = setting(box, version, 2)
    peer.acks = True
    for number in range(3):
        source.send(Publish(b"t", b"%d" % number, 2, packet_id=5))
        source.send(Ack(PUBREL, 5))
        assert acks(source) == [(PUBREC, 5), (PUBCOMP, 5)]
        assert peer.payloads() == [b"%d" % number]
        if crash:
            box.crash()
            source.resume()
            peer.resume()
