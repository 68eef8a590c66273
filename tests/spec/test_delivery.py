"""Sections 4.4 to 4.6: sending again, adding to sessions, order."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import PUBACK, PUBREC, PUBREL, V5, Ack, Publish
from tests.harness.box import Box
from tests.harness.peer import Peer
from tests.harness.version import ALL, BOTH


def setting(box: Box, version: int, qos: int = 2) -> tuple[Peer, Peer]:
    """A source and a subscriber with a lasting session that acknowledges nothing by itself."""
    source, peer = box.client("s", version), box.client("a", version, acks=False)
    source.connect()
    peer.resume()
    peer.subscribe("t/#", qos=qos)
    return source, peer


@pytest.mark.spec("MQTT-4.4.0-1", version="5.0")
@pytest.mark.spec("MQTT-4.4.0-1", "MQTT-2.3.1-4", "MQTT-4.6.0-1", version="3.1.1")
@BOTH
@pytest.mark.parametrize("how", ["lose", "disconnect", "crash", "restart", "takeover"])
def test_unacknowledged_packets_are_sent_again_on_reconnect(box: Box, version: int, how: str) -> None:
    """PUBLISH and PUBREL, with their identifiers, in their order, and before what waited behind them."""
    source, peer = setting(box, version)
    for number in range(6):
        source.publish("t/1", b"%d" % number, qos=1 + number % 2)
    sent = peer.publishes()
    peer.send(Ack(PUBREC, sent[3].packet_id))
    assert peer.expect(Ack).kind == PUBREL
    peer.send(Ack(PUBACK, sent[2].packet_id))
    if how == "takeover":
        rival = box.client("a", version, acks=False)
        rival.resume()
        peer = rival
    else:
        box.settle()
        {"lose": peer.lose, "disconnect": peer.disconnect, "crash": box.crash, "restart": box.restart}[how]()
        peer.resume()
    got = peer.receive()
    again = [(packet.packet_id, packet.payload) for packet in got if isinstance(packet, Publish)]
    assert again == [(sent[number].packet_id, b"%d" % number) for number in (0, 1, 4, 5)]
    released = [packet.packet_id for packet in got if isinstance(packet, Ack)]
    assert released == [sent[3].packet_id]


@pytest.mark.spec("MQTT-4.4.0-1", version="5.0")
@BOTH
def test_nothing_is_sent_again_at_any_other_time(box: Box, version: int) -> None:
    source, peer = setting(box, version)
    source.publish("t/1", b"m", qos=1)
    source.publish("t/1", b"m", qos=2)
    assert len(peer.publishes()) == 2
    box.advance(86_400_000_000)
    source.publish("t/1", b"other")
    assert [packet.payload for packet in peer.publishes()] == [b"other"]


@pytest.mark.spec("MQTT-4.4.0-1", version="5.0")
@pytest.mark.spec("MQTT-4.4.0-1", version="3.1.1")
@BOTH
def test_a_new_session_gets_nothing_again(box: Box, version: int) -> None:
    source, peer = setting(box, version)
    source.publish("t/1", b"m", qos=2)
    peer.lose()
    peer.connect(clean_start=True)
    assert peer.receive() == []


@pytest.mark.spec("MQTT-4.4.0-2", version="5.0")
@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
@pytest.mark.parametrize("code", [0x80, 0x83, 0x87, 0x97])
def test_a_refused_message_is_not_sent_again(box: Box, qos: int, kind: int, code: int) -> None:
    source, peer = setting(box, V5)
    source.publish("t/1", b"m", qos=qos)
    (packet,) = peer.publishes()
    peer.send(Ack(kind, packet.packet_id, code))
    peer.lose()
    peer.resume()
    assert peer.receive() == []
    source.publish("t/1", b"next", qos=qos)
    assert peer.payloads() == [b"next"]


@pytest.mark.spec("MQTT-4.5.0-1", version="5.0")
@pytest.mark.spec("MQTT-4.5.0-1", version="3.1.1")
@ALL
def test_a_message_reaches_every_matching_session(box: Box, version: int) -> None:
    present, absent, other = [[box.client(f"{kind}{n}", version) for n in range(20)] for kind in "pao"]
    for peer in present + absent + other:
        peer.resume()
        peer.subscribe("u" if peer in other else "t", qos=1)
    for peer in absent:
        peer.lose()
    source = box.client("s", version)
    source.connect()
    source.publish("t", b"m", qos=1)
    box.crash()
    for peer in absent:
        peer.resume()
    assert all(peer.payloads() == [b"m"] for peer in present + absent)
    assert all(peer.payloads() == [] for peer in other)


@pytest.mark.spec("MQTT-4.6.0-2", "MQTT-4.6.0-3", version="3.1.1")
@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledgements_come_in_the_order_of_the_messages(box: Box, version: int, qos: int) -> None:
    """Also where one message must wait for the disk and the next need not."""
    source, sleeper = box.client("s", version, acks=False), box.client("z", version)
    sleeper.resume()
    sleeper.subscribe("kept", qos=2)
    source.connect()
    topics = [b"kept", b"nobody", b"kept", b"nobody", b"nobody"]
    packets = [Publish(topic, b"m", qos, packet_id=50 - number) for number, topic in enumerate(topics)]
    box.hold_writes()
    source.send(*packets)
    box.release_writes()
    assert [ack.packet_id for ack in source.receive() if isinstance(ack, Ack)] == [50, 49, 48, 47, 46]


@pytest.mark.spec("MQTT-4.6.0-4", version="3.1.1")
@BOTH
def test_pubrel_in_the_order_of_pubrec(box: Box, version: int) -> None:
    source, peer = setting(box, version)
    for number in range(5):
        source.publish("t/1", b"%d" % number, qos=2)
    order = [packet.packet_id for packet in peer.publishes()]
    order = [order[number] for number in (3, 0, 4, 1, 2)]
    peer.send(*[Ack(PUBREC, packet_id) for packet_id in order])
    assert [ack.packet_id for ack in peer.receive() if isinstance(ack, Ack)] == order


@pytest.mark.spec("MQTT-4.6.0-5", "MQTT-4.6.0-6", version="5.0")
@pytest.mark.spec("MQTT-4.6.0-5", "MQTT-4.6.0-6", version="3.1.1")
@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_a_topic_stay_in_order(box: Box, version: int, qos: int) -> None:
    """Live, through the window of one and through the queue of an absent session, from two publishers."""
    first, second = box.client("s1", version), box.client("s2", version)
    live, slow, late = box.client("live", version), box.client("slow"), box.client("late", version)
    first.connect()
    second.connect()
    live.connect()
    slow.connect(receive_max=1)
    late.resume()
    for peer in (live, slow, late):
        peer.subscribe("t", qos=2)
    late.lose()
    for number in range(30):
        first.publish("t", b"a%02d" % number, qos=qos)
        second.publish("t", b"b%02d" % number, qos=qos)
    late.resume()
    for peer in (live, slow, late) if qos else (live, slow):
        payloads = peer.payloads()
        for name in (b"a", b"b"):
            assert [payload for payload in payloads if payload[:1] == name] == [
                b"%s%02d" % (name, n) for n in range(30)
            ]


@pytest.mark.spec("MQTT-4.6.0-5", version="5.0")
@BOTH
def test_order_holds_across_reconnect_while_messages_keep_coming(box: Box, version: int) -> None:
    source, peer = setting(box, version, 1)
    peer.acks = True
    numbers = iter(range(100))
    got: list[bytes] = []
    for _ in range(5):
        for _ in range(3):
            source.publish("t/1", b"%02d" % next(numbers), qos=1)
        got += peer.payloads()
        peer.lose()
        for _ in range(3):
            source.publish("t/1", b"%02d" % next(numbers), qos=1)
        peer.resume()
        got += peer.payloads()
    assert got == sorted(got)
    assert len(set(got)) == 30


@BOTH
def test_a_retained_message_does_not_overtake_live_ones(box: Box, version: int) -> None:
    """After SUBACK the newest state of a topic is never followed by an older one."""
    source, peer = box.client("s", version), box.client("a", version)
    source.connect()
    source.publish("t", b"1", qos=1, retain=True)
    peer.connect()
    peer.subscribe("t", qos=1)
    source.publish("t", b"2", qos=1, retain=True)
    assert peer.payloads() == [b"1", b"2"]
