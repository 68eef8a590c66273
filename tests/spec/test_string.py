"""Chapter 1: strings, string pairs and variable byte integers."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import V5, V311, Connect, Publish, Will
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.version import ALL, BOTH

ILL_FORMED = {
    "truncated": b"a\xc3",
    "no continuation": b"a\xc3(",
    "surrogate": b"a\xed\xa0\x80",
    "overlong": b"a\xc0\xaf",
    "beyond U+10FFFF": b"a\xf4\x90\x80\x80",
    "byte that never occurs": b"a\xff",
}
ILL = pytest.mark.parametrize("bad", ILL_FORMED.values(), ids=ILL_FORMED.keys())
USER_PROPERTY, CONTENT_TYPE, RESPONSE_TOPIC = 38, 3, 8


def everywhere(version: int, bad: bytes) -> dict[str, bytes]:
    """Packets of a connected client, each with `bad` in another string."""
    packets = {
        "topic name": wire.publish(version, bad),
        "filter": wire.subscribe(version, (bad, 0)),
        "filter to remove": wire.packet(0xA2, wire.u16(1), b"\0" if version == V5 else b"", wire.text(bad)),
    }
    if version == V5:
        named = {
            "content type": wire.prop(CONTENT_TYPE, wire.text(bad)),
            "response topic": wire.prop(RESPONSE_TOPIC, wire.text(bad)),
            "user property's name": wire.prop(USER_PROPERTY, wire.text(bad) + wire.text("v")),
            "user property's value": wire.prop(USER_PROPERTY, wire.text("n") + wire.text(bad)),
        }
        for name, prop in named.items():
            packets[name] = wire.publish(version, "t", properties=wire.props(prop))
    return packets


def connects(version: int, bad: bytes) -> dict[str, bytes]:
    """CONNECT packets, each with `bad` in another string."""
    will_properties = b"\0" if version == V5 else b""
    return {
        "client id": wire.connect(version, wire.text(bad)),
        "will topic": wire.connect(
            version, wire.text("a"), will_properties, wire.text(bad), wire.binary(b""), flags=0x06
        ),
        "user name": wire.connect(version, wire.text("a"), wire.text(bad), flags=0x82),
    }


@pytest.mark.spec("MQTT-1.5.4-1", "MQTT-1.5.7-1", "MQTT-3.3.2-1", "MQTT-3.3.2-13", "MQTT-3.3.2-19", version="5.0")
@pytest.mark.spec("MQTT-3.8.3-1", "MQTT-3.10.3-1", version="5.0")
@pytest.mark.spec("MQTT-1.5.3-1", "MQTT-3.3.2-1", "MQTT-3.8.3-1", "MQTT-3.10.3-1", version="3.1.1")
@BOTH
@ILL
def test_ill_formed_string_closes(box: Box, version: int, bad: bytes) -> None:
    for where, packet in everywhere(version, bad).items():
        peer = box.client("a", version)
        peer.connect()
        peer.raw(packet)
        assert peer.closed, where
        peer.expect_close(0x81)


@pytest.mark.spec("MQTT-3.1.3-4", "MQTT-3.1.3-11", "MQTT-3.1.3-12", version="5.0")
@pytest.mark.spec("MQTT-3.1.3-4", "MQTT-3.1.3-10", "MQTT-3.1.3-11", version="3.1.1")
@BOTH
@ILL
def test_ill_formed_string_in_connect_closes(box: Box, version: int, bad: bytes) -> None:
    for where, packet in connects(version, bad).items():
        peer = box.client("a", version).open()
        peer.raw(packet)
        assert peer.closed, where
        peer.expect_close(0x81, 0x85)


@pytest.mark.spec("MQTT-1.5.4-2", "MQTT-4.7.3-2", version="5.0")
@pytest.mark.spec("MQTT-1.5.3-2", "MQTT-4.7.3-2", version="3.1.1")
@BOTH
def test_null_character_closes(box: Box, version: int) -> None:
    for where, packet in everywhere(version, b"a\0b").items():
        peer = box.client("a", version)
        peer.connect()
        peer.raw(packet)
        assert peer.closed, where
        peer.expect_close(0x81)
    for where, packet in connects(version, b"a\0b").items():
        peer = box.client("a", version).open()
        peer.raw(packet)
        assert peer.closed, where


@pytest.mark.spec("MQTT-1.5.4-3", version="5.0")
@pytest.mark.spec("MQTT-1.5.3-3", version="3.1.1")
@BOTH
def test_byte_order_mark_stays(box: Box, version: int) -> None:
    marked, plain = box.client("marked", version), box.client("plain", version)
    for peer, topic_filter in ((marked, "\ufefft"), (plain, "t")):
        peer.connect()
        peer.subscribe(topic_filter)
    plain.publish("\ufefft", b"m")
    assert marked.messages() == [("\ufefft", b"m")]
    assert plain.messages() == []
    assert wire.text(b"\xef\xbb\xbft") in marked.wire


@pytest.mark.spec("MQTT-1.5.4-3", version="5.0")
@pytest.mark.spec("MQTT-1.5.3-3", version="3.1.1")
@BOTH
def test_byte_order_mark_makes_another_client_id(box: Box, version: int) -> None:
    marked, plain = box.client("\ufeffa", version), box.client("a", version)
    marked.connect()
    plain.connect()
    marked.ping()
    assert not marked.closed


@pytest.mark.spec("MQTT-1.5.5-1", version="5.0")
@pytest.mark.parametrize(
    "properties",
    [b"\x80\x00", b"\x8b\x00" + wire.prop(USER_PROPERTY, wire.text("n") + wire.text("valu"))],
    ids=["empty in two bytes", "eleven in two bytes"],
)
def test_longer_than_minimal_integer_closes(box: Box, properties: bytes) -> None:
    peer = box.client("a")
    peer.connect()
    peer.raw(wire.publish(V5, "t", properties=properties))
    peer.expect_close(0x81)


@pytest.mark.spec("MQTT-1.5.5-1", version="5.0")
def test_remaining_length_of_five_bytes_closes(box: Box) -> None:
    peer = box.client("a")
    peer.connect()
    peer.raw(b"\x30\x80\x80\x80\x80\x01")
    peer.expect_close(0x81)


@pytest.mark.spec("MQTT-1.5.5-1", version="5.0")
@pytest.mark.parametrize("size", [127, 128, 16_383, 16_384])
def test_sent_integers_are_minimal(box: Box, size: int) -> None:
    peer = box.client("a")
    peer.connect()
    peer.subscribe("t")
    before = len(peer.wire)
    payload = bytes(size - 4)  # topic 3, properties 1
    peer.publish("t", payload)
    assert peer.wire[before:] == wire.packet(0x30, wire.text("t"), b"\0", payload)


@ALL
def test_well_formed_strings_of_every_length_pass(box: Box, version: int) -> None:
    """What must not be refused: characters of one to four bytes, the borders of the surrogates, non-characters."""
    peer = box.client("a", version)
    peer.connect(will=Will("z/\u00fc\u20ac".encode(), b""))
    for topic in ("\u007f", "\u0080", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\ufffd", "\U00010000", "\U0010fffd"):
        peer.subscribe(topic)
        peer.publish(topic, b"m")
        assert peer.messages() == [(topic, b"m")]


@pytest.mark.spec("MQTT-1.5.4-1", version="5.0")
@pytest.mark.spec("MQTT-1.5.3-1", version="3.1.1")
@BOTH
def test_ill_formed_topic_reaches_nobody(box: Box, version: int) -> None:
    watcher, peer = box.client("w", version), box.client("a", version)
    watcher.connect()
    watcher.subscribe("#")
    peer.open().send(Connect(version, "a", True))
    peer.raw(wire.publish(version, b"a\xff", b"m"))
    assert watcher.messages() == []
    assert not watcher.closed


def test_a_packet_in_single_bytes_is_the_same_packet() -> None:
    box = Box(chunk_bytes=1)
    peer = box.client("a", V311)
    peer.connect()
    peer.subscribe("t/#", qos=2)
    peer.send(Publish(b"t/1", b"x" * 200, 1, packet_id=7), Publish(b"t/2", b"", 0))
    assert peer.messages() == [("t/1", b"x" * 200), ("t/2", b"")]
