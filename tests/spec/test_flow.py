"""Sections 3.1.2.11.3, 3.3.4 and 4.9: Receive Maximum in both directions."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Publish, Suback, Subscribe
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer


def setting(box: Box, receive_max: int | None, messages: int, qos: int = 1) -> tuple[Peer, Peer]:
    """A source and a subscriber that acknowledges nothing, with messages on their way."""
    source, peer = box.client("s"), box.client("a", acks=False)
    source.connect()
    peer.connect(receive_max=receive_max)
    peer.subscribe("t", qos=2)
    for number in range(messages):
        source.publish("t", b"%d" % number, qos=qos)
    return source, peer


@pytest.mark.spec("MQTT-3.3.4-9", "MQTT-4.9.0-1", "MQTT-4.9.0-2", version="5.0")
@pytest.mark.parametrize("receive_max", [1, 2, 7])
@pytest.mark.parametrize("qos", [1, 2])
def test_the_server_stops_at_receive_maximum(box: Box, receive_max: int, qos: int) -> None:
    _, peer = setting(box, receive_max, 10, qos)
    assert len(peer.publishes()) == receive_max
    box.advance(3_600_000_000)
    assert peer.publishes() == []


@pytest.mark.spec("MQTT-4.9.0-2", version="5.0")
def test_each_acknowledgement_makes_room_for_one(box: Box) -> None:
    _, peer = setting(box, 2, 6)
    got = peer.publishes()
    for number in range(2, 6):
        peer.send(Ack(PUBACK, got[number - 2].packet_id))
        got += peer.publishes()
        assert len(got) == number + 1
    assert [packet.payload for packet in got] == [b"%d" % number for number in range(6)]


@pytest.mark.spec("MQTT-3.3.4-9", version="5.0")
def test_qos_2_holds_its_place_until_pubcomp(box: Box) -> None:
    _, peer = setting(box, 1, 3, 2)
    (first,) = peer.publishes()
    peer.send(Ack(PUBREC, first.packet_id))
    assert peer.expect(Ack).kind == PUBREL
    assert peer.receive() == []
    peer.send(Ack(PUBCOMP, first.packet_id))
    (second,) = peer.publishes()
    peer.send(Ack(PUBREC, second.packet_id, 0x80))  # a refusal frees it at once
    assert [packet.payload for packet in peer.publishes()] == [b"2"]


@pytest.mark.spec("MQTT-3.3.4-9", "MQTT-4.9.0-2", version="5.0")
def test_qos_0_does_not_count(box: Box) -> None:
    source, peer = setting(box, 1, 1)
    assert len(peer.publishes()) == 1
    for _ in range(5):
        source.publish("t", b"m", qos=0)
    assert len(peer.publishes()) == 5


@pytest.mark.spec("MQTT-3.3.4-10", "MQTT-4.9.0-3", version="5.0")
def test_other_packets_flow_while_the_quota_is_used_up(box: Box) -> None:
    _, peer = setting(box, 1, 3)
    peer.publishes()
    peer.ping()
    assert peer.subscribe("other") == [0]
    assert peer.unsubscribe("other") == [0]
    assert peer.publish("x", b"m", qos=1) == 0x10
    assert peer.publish("x", b"m", qos=2) == 0


@pytest.mark.spec("MQTT-4.9.0-1", version="5.0")
def test_the_quota_is_full_again_on_a_new_connection(box: Box) -> None:
    source, peer = box.client("s"), box.client("a", acks=False)
    source.connect()
    peer.resume(receive_max=1)
    peer.subscribe("t", qos=1)
    for number in range(5):
        source.publish("t", b"%d" % number, qos=1)
    assert peer.payloads() == [b"0"]
    peer.lose()
    peer.resume(receive_max=3)
    assert peer.payloads() == [b"0", b"1", b"2"]
    peer.lose()
    peer.resume(receive_max=2)
    assert peer.payloads() == [b"0", b"1"]


@pytest.mark.spec("MQTT-4.9.0-1", version="5.0")
def test_without_receive_maximum_the_server_has_its_own_window(make: MakeBox) -> None:
    box = make(limits={"inflight_max": 4})
    source, peer = setting(box, None, 10)
    assert len(peer.publishes()) == 4
    source, peer = box.client("s4", 4), box.client("a4", 4, acks=False)
    source.connect()
    peer.connect()
    peer.subscribe("u", qos=1)
    for _ in range(10):
        source.publish("u", b"m", qos=1)
    assert len(peer.publishes()) == 4


@pytest.mark.spec("MQTT-3.3.4-7", version="5.0")
def test_a_client_beyond_the_servers_receive_maximum_is_closed(make: MakeBox) -> None:
    box = make(limits={"receive_max": 3})
    peer = box.client("a", acks=False)
    connack = peer.connect()
    assert connack.properties is not None
    assert connack.properties.receive_max == 3
    for packet_id in (1, 2, 3):
        peer.send(Publish(b"t", b"m", 2, packet_id=packet_id))
    assert not peer.closed
    peer.send(Publish(b"t", b"m", 2, packet_id=4))
    peer.expect_close(0x93)


@pytest.mark.spec("MQTT-3.3.4-7", version="5.0")
def test_completed_flows_do_not_count(make: MakeBox) -> None:
    peer = make(limits={"receive_max": 2}).client("a")
    peer.connect()
    for _ in range(10):
        assert peer.publish("t", b"m", qos=2) == 0
        assert peer.publish("t", b"m", qos=1) in (0, 0x10)


@pytest.mark.spec("MQTT-3.3.4-7", version="5.0")
def test_messages_that_wait_for_the_disk_count(make: MakeBox) -> None:
    box = make(limits={"receive_max": 2})
    sleeper, peer = box.client("z"), box.client("a", acks=False)
    sleeper.resume()
    sleeper.subscribe("t", qos=1)
    sleeper.lose()
    peer.connect()
    box.hold_writes()
    peer.send(Publish(b"t", b"m", 1, packet_id=1), Publish(b"t", b"m", 1, packet_id=2))
    assert not peer.closed
    peer.send(Publish(b"t", b"m", 1, packet_id=3))
    peer.expect_close(0x93)
    box.release_writes()


@pytest.mark.spec("MQTT-3.3.4-7", version="5.0")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_may_use_the_whole_receive_maximum_at_once(make: MakeBox, qos: int) -> None:
    """Also with a lasting session, whose acknowledgements wait for the disk."""
    box = make(limits={"receive_max": 4})
    peer = box.client("a", acks=False)
    peer.resume()
    peer.subscribe("t", qos=0)
    box.hold_writes()
    peer.send(*[Publish(b"t", b"m", qos, packet_id=number) for number in (1, 2, 3, 4)])
    assert not peer.closed
    box.release_writes()
    assert [packet.packet_id for packet in peer.receive() if isinstance(packet, Ack)] == [1, 2, 3, 4]


@pytest.mark.spec("MQTT-3.3.4-7", version="5.0")
def test_only_messages_count(make: MakeBox) -> None:
    box = make(limits={"receive_max": 1})
    peer = box.client("a", acks=False)
    peer.resume()
    box.hold_writes()
    peer.send(Subscribe(1, [(b"t", 0)]), Subscribe(2, [(b"u", 0)]), Publish(b"t", b"m", 1, packet_id=3))
    assert not peer.closed
    box.release_writes()
    assert peer.take(Ack).packet_id == 3


@pytest.mark.spec("MQTT-3.3.4-7", "MQTT-4.9.0-1", version="5.0")
def test_flows_of_an_older_connection_do_not_count(make: MakeBox) -> None:
    """The quota of the client begins anew with each connection, and PUBREL takes nothing from it."""
    box = make(limits={"receive_max": 2})
    peer = box.client("a", acks=False)
    peer.resume()
    peer.send(Publish(b"t", b"m", 2, packet_id=1), Publish(b"t", b"m", 2, packet_id=2))
    peer.lose()
    peer.resume()
    peer.send(Publish(b"t", b"m", 2, packet_id=3), Publish(b"t", b"m", 2, packet_id=4))
    assert not peer.closed
    peer.send(Ack(PUBREL, 1), Ack(PUBREL, 2))
    assert [ack.packet_id for ack in peer.receive() if isinstance(ack, Ack)] == [3, 4, 1, 2]
    peer.send(Publish(b"t", b"m", 2, packet_id=5))
    peer.expect_close(0x93)


@pytest.mark.spec("MQTT-4.9.0-3", version="5.0")
def test_the_server_processes_everything_from_a_client_at_its_maximum(make: MakeBox) -> None:
    peer = make(limits={"receive_max": 1}).client("a", acks=False)
    peer.connect()
    peer.send(Publish(b"t", b"m", 2, packet_id=1))
    peer.expect(Ack)
    peer.send(Publish(b"t", b"m", 0), Subscribe(7, [(b"x", 0)]))
    assert peer.expect(Suback).codes == [0]
    peer.ping()
    peer.send(Ack(PUBREL, 1))
    assert peer.expect(Ack).kind == PUBCOMP
    assert not peer.closed
