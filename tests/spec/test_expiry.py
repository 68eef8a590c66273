"""Section 3.3.2.3.3, Message Expiry Interval."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import PUBCOMP, PUBREC, PUBREL, Ack, Publish
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer, properties


def setting(box: Box, qos: int = 1) -> tuple[Peer, Peer]:
    """A publisher and an absent subscriber of `t`."""
    source, peer = box.client("s"), box.client("a")
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=qos)
    peer.lose()
    return source, peer


def expiries(peer: Peer) -> list[int | None]:
    return [packet.properties.message_expiry if packet.properties else None for packet in peer.publishes()]


@pytest.mark.spec("MQTT-3.3.2-5", version="5.0")
@pytest.mark.parametrize("crash", [False, True])
def test_an_expired_message_is_not_delivered(box: Box, crash: bool) -> None:
    source, peer = setting(box)
    source.publish("t", b"short", qos=1, message_expiry=10)
    source.publish("t", b"long", qos=1, message_expiry=100)
    source.publish("t", b"for ever", qos=1)
    if crash:
        box.crash()
    box.advance(11 * SECOND)
    peer.resume()
    assert peer.payloads() == [b"long", b"for ever"]


@pytest.mark.spec("MQTT-3.3.2-6", version="5.0")
@pytest.mark.parametrize("crash", [False, True])
def test_the_waiting_time_is_subtracted(box: Box, crash: bool) -> None:
    source, peer = setting(box)
    source.publish("t", b"m", qos=1, message_expiry=100)
    box.advance(30 * SECOND)
    source.publish("t", b"m", qos=1, message_expiry=100)
    if crash:
        box.crash()
    box.advance(20 * SECOND)
    peer.resume()
    assert expiries(peer) == [50, 80]


@pytest.mark.spec("MQTT-3.3.2-6", version="5.0")
def test_without_waiting_nothing_is_subtracted(box: Box) -> None:
    source, peer = setting(box)
    peer.resume()
    source.publish("t", b"m", qos=1, message_expiry=100)
    source.publish("t", b"m", qos=0, message_expiry=7)
    source.publish("t", b"m", qos=0)
    assert expiries(peer) == [100, 7, None]


@pytest.mark.spec("MQTT-3.3.2-6", version="5.0")
def test_a_retained_message_counts_down(box: Box) -> None:
    source, peer = setting(box)
    source.publish("r", b"m", qos=1, retain=True, message_expiry=100)
    box.advance(60 * SECOND)
    peer.resume()
    peer.subscribe("r")
    assert expiries(peer) == [40]
    box.crash()
    box.advance(39 * SECOND)
    peer.resume()
    peer.subscribe("r")
    assert expiries(peer) == [1]


@pytest.mark.spec("MQTT-3.3.2-5", version="5.0")
def test_an_expired_retained_message_is_not_sent(box: Box) -> None:
    source, peer = setting(box)
    source.publish("r", b"m", qos=1, retain=True, message_expiry=10)
    box.advance(11 * SECOND)
    peer.resume()
    peer.subscribe("r")
    assert peer.messages() == []


@pytest.mark.spec("MQTT-3.3.2-5", version="5.0")
def test_a_message_that_waits_for_the_window_expires(box: Box) -> None:
    source, peer = box.client("s"), box.client("a", acks=False)
    source.connect()
    peer.connect(receive_max=1)
    peer.subscribe("t", qos=1)
    source.publish("t", b"begun", qos=1, message_expiry=10)
    source.publish("t", b"waiting", qos=1, message_expiry=10)
    source.publish("t", b"patient", qos=1, message_expiry=100)
    box.advance(20 * SECOND)
    (begun,) = peer.publishes()
    peer.acks = True
    peer.send(Ack(4, begun.packet_id))
    assert expiries(peer) == [80]


@pytest.mark.spec("MQTT-4.3.3-7", version="5.0")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_was_sent_does_not_expire(box: Box, qos: int) -> None:
    """It is sent again on reconnect however late, because its delivery was begun."""
    source, peer = setting(box, qos)
    peer.acks = False
    peer.resume()
    source.publish("t", b"m", qos=qos, message_expiry=10)
    (first,) = peer.publishes()
    peer.lose()
    box.advance(1_000 * SECOND)
    peer.resume()
    (again,) = peer.publishes()
    assert (again.payload, again.packet_id, again.dup) == (b"m", first.packet_id, True)


@pytest.mark.spec("MQTT-4.3.3-13", version="5.0")
def test_the_qos_2_flow_goes_on_after_expiry(box: Box) -> None:
    source, peer = box.client("s", acks=False), setting(box, 2)[1]
    source.connect()
    source.send(Publish(b"t", b"m", 2, packet_id=3, properties=properties(message_expiry=5)))
    assert source.expect(Ack).kind == PUBREC
    box.advance(10 * SECOND)
    source.send(Ack(PUBREL, 3))
    ack = source.expect(Ack)
    assert (ack.kind, ack.packet_id, ack.code) == (PUBCOMP, 3, 0)
    peer.resume()
    assert peer.messages() == []


def test_an_upper_bound_is_put_on_every_message(make: MakeBox) -> None:
    box = make(limits={"message_expiry_max_s": 50})
    source, peer = setting(box)
    source.publish("t", b"none", qos=1)
    source.publish("t", b"longer", qos=1, message_expiry=60)
    source.publish("t", b"shorter", qos=1, message_expiry=40)
    box.advance(45 * SECOND)
    peer.resume()
    assert peer.payloads() == [b"none", b"longer"]
    peer.lose()
    source.publish("t", b"none", qos=1)
    box.advance(51 * SECOND)
    peer.resume()
    assert peer.payloads() == []
