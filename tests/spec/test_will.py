"""Sections 3.1.2.5 and 3.1.3.2: wills, their delay, what cancels them."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import V5, Will
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.peer import EVER, Peer, properties
from tests.harness.version import ALL, BOTH


def watch(box: Box, topic_filter: str = "will", qos: int = 2) -> Peer:
    """A client that waits for wills."""
    watcher = box.client("watcher")
    watcher.connect()
    watcher.subscribe(topic_filter, qos=qos)
    return watcher


def delayed(seconds: int, payload: bytes = b"gone") -> Will:
    return Will(b"will", payload, 1, False, properties(will_delay=seconds))


@pytest.mark.spec("MQTT-3.1.2-7", "MQTT-3.1.2-8", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-8", version="3.1.1")
@ALL
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_will_is_published_when_the_connection_breaks(box: Box, version: int, qos: int) -> None:
    watcher, peer = watch(box), box.client("a", version)
    peer.connect(will=Will(b"will", b"gone", qos))
    assert watcher.messages() == []
    peer.lose()
    (packet,) = watcher.publishes()
    assert (packet.topic, packet.payload, packet.qos, packet.retain) == (b"will", b"gone", qos, False)


@pytest.mark.spec("MQTT-3.1.2-8", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-8", version="3.1.1")
@BOTH
def test_will_is_published_when_the_server_closes(box: Box, version: int) -> None:
    """After a protocol error, a keep alive timeout and a takeover: closes that no DISCONNECT announced."""
    watcher, peer = watch(box), box.client("a", version)
    peer.connect(will=Will(b"will", b"error"))
    peer.raw(b"\x00\x00")
    assert watcher.payloads() == [b"error"]
    peer.connect(will=Will(b"will", b"silence"), keep_alive_s=10)
    box.advance(16 * SECOND)
    assert watcher.payloads() == [b"silence"]
    peer.connect(will=Will(b"will", b"takeover"))
    rival = box.client("a", version)
    rival.connect()
    assert watcher.payloads() == [b"takeover"]


@pytest.mark.spec("MQTT-3.1.2-8", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-8", version="3.1.1")
@BOTH
def test_will_is_published_after_a_crash_of_the_server(box: Box, version: int) -> None:
    peer, watcher = box.client("a", version), box.client("w", version)
    watcher.resume()
    watcher.subscribe("will", qos=1)
    peer.resume(will=Will(b"will", b"gone", 1))
    box.crash()
    box.advance(SECOND)
    watcher.resume()
    assert watcher.payloads() == [b"gone"]
    box.settle()
    box.crash()
    box.advance(SECOND)
    watcher.resume()
    assert watcher.payloads() == []


@pytest.mark.spec("MQTT-3.14.4-3", "MQTT-3.1.2-8", "MQTT-3.1.2-10", version="5.0")
@pytest.mark.spec("MQTT-3.14.4-3", "MQTT-3.1.2-8", "MQTT-3.1.2-10", version="3.1.1")
@ALL
def test_disconnect_discards_the_will(box: Box, version: int) -> None:
    watcher, peer = watch(box), box.client("a", version)
    peer.resume(will=Will(b"will", b"gone", 1))
    peer.disconnect()
    box.advance(100 * SECOND)
    assert watcher.messages() == []
    box.crash()
    watcher = watch(box)
    box.advance(100 * SECOND)
    assert watcher.messages() == []


@pytest.mark.spec("MQTT-3.1.2-10", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-10", version="3.1.1")
@BOTH
def test_a_published_will_is_not_published_again(box: Box, version: int) -> None:
    watcher, peer = watch(box), box.client("a", version)
    peer.resume(will=Will(b"will", b"gone", 1))
    peer.lose()
    assert watcher.payloads() == [b"gone"]
    peer.resume()
    peer.lose()
    box.advance(100 * SECOND)
    assert watcher.payloads() == []


@pytest.mark.spec("MQTT-3.1.2-12", version="3.1.1")
@BOTH
def test_without_a_will_nothing_is_published(box: Box, version: int) -> None:
    watcher, peer = watch(box, "#"), box.client("a", version)
    peer.connect()
    peer.lose()
    box.advance(100 * SECOND)
    assert watcher.messages() == []


@pytest.mark.spec("MQTT-3.1.2-8", version="5.0")
def test_disconnect_with_will_publishes_it(box: Box) -> None:
    """Reason code 0x04, section 3.14.2.1; so does every code but 0x00."""
    watcher, peer = watch(box), box.client("a")
    for code in (0x04, 0x80, 0x98):
        peer.connect(will=Will(b"will", b"%d" % code))
        peer.disconnect(code)
        assert watcher.payloads() == [b"%d" % code]


@pytest.mark.spec("MQTT-3.1.2-14", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-16", version="3.1.1")
@BOTH
def test_will_without_retain_is_not_retained(box: Box, version: int) -> None:
    watcher, peer = watch(box), box.client("a", version)
    peer.connect(will=Will(b"will", b"gone", 1, False))
    peer.lose()
    assert [packet.retain for packet in watcher.publishes()] == [False]
    peer.connect()
    peer.subscribe("will")
    assert peer.messages() == []


@pytest.mark.spec("MQTT-3.1.2-15", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-17", version="3.1.1")
@BOTH
def test_will_with_retain_is_retained(box: Box, version: int) -> None:
    watcher, peer = watch(box), box.client("a", version)
    peer.connect(will=Will(b"will", b"gone", 1, True))
    peer.lose()
    assert watcher.payloads() == [b"gone"]
    box.crash()
    peer.connect()
    peer.subscribe("will", qos=2)
    (packet,) = peer.publishes()
    assert (packet.payload, packet.retain, packet.qos) == (b"gone", True, 1)


@pytest.mark.spec("MQTT-3.1.2-8", version="5.0")
def test_will_waits_for_its_delay(box: Box) -> None:
    watcher, peer = watch(box), box.client("a")
    peer.connect(session_expiry=100, will=delayed(10))
    peer.lose()
    box.advance(9 * SECOND)
    assert watcher.messages() == []
    box.advance(2 * SECOND)
    assert watcher.payloads() == [b"gone"]
    box.advance(200 * SECOND)
    assert watcher.payloads() == []


@pytest.mark.spec("MQTT-3.1.2-8", version="5.0")
def test_will_does_not_wait_beyond_the_end_of_the_session(box: Box) -> None:
    watcher, peer = watch(box), box.client("a")
    peer.connect(session_expiry=5, will=delayed(100))
    peer.lose()
    box.advance(4 * SECOND)
    assert watcher.messages() == []
    box.advance(2 * SECOND)
    assert watcher.payloads() == [b"gone"]


@pytest.mark.spec("MQTT-3.1.2-8", version="5.0")
def test_a_clean_start_ends_the_session_and_sends_its_will(box: Box) -> None:
    watcher, peer = watch(box), box.client("a")
    peer.connect(session_expiry=EVER, will=delayed(100))
    peer.lose()
    peer.connect(clean_start=True)
    assert watcher.payloads() == [b"gone"]


@pytest.mark.spec("MQTT-3.1.2-8", "MQTT-3.1.3-9", version="5.0")
@pytest.mark.parametrize("crash", [False, True])
def test_a_reconnect_within_the_delay_cancels_the_will(box: Box, crash: bool) -> None:
    peer = box.client("a")
    peer.connect(session_expiry=EVER, will=delayed(10))
    peer.lose()
    box.advance(5 * SECOND)
    if crash:
        box.crash()
    watcher = watch(box)
    peer.resume()
    box.advance(100 * SECOND)
    assert watcher.messages() == []


@pytest.mark.spec("MQTT-3.1.3-9", version="5.0")
def test_a_takeover_within_the_delay_cancels_the_will(box: Box) -> None:
    watcher, old, new = watch(box), box.client("a"), box.client("a")
    old.connect(session_expiry=EVER, will=delayed(10))
    new.resume(will=delayed(10, b"new"))
    box.advance(100 * SECOND)
    assert watcher.messages() == []
    new.lose()
    box.advance(11 * SECOND)
    assert watcher.payloads() == [b"new"]


@pytest.mark.spec("MQTT-3.1.2-7", "MQTT-3.1.2-8", version="5.0")
def test_a_waiting_will_survives_a_crash(box: Box) -> None:
    peer = box.client("a")
    peer.connect(session_expiry=EVER, will=delayed(30))
    peer.lose()
    box.advance(10 * SECOND)
    box.crash()
    watcher = watch(box)
    box.advance(19 * SECOND)
    assert watcher.messages() == []
    box.advance(32 * SECOND)
    assert watcher.payloads() == [b"gone"]


@pytest.mark.spec("MQTT-3.1.3-10", version="5.0")
def test_will_properties_arrive(box: Box) -> None:
    pairs = [("b", "1"), ("a", "2"), ("b", "1")]
    watcher, peer = watch(box), box.client("a")
    will = Will(b"will", b"gone", 1)
    will.properties = properties(
        payload_format=1,
        content_type="text/plain",
        response_topic=b"answer/here",
        correlation_data=b"\x00\xff",
        message_expiry=60,
        user_properties=pairs,
    )
    peer.connect(will=will)
    peer.lose()
    (packet,) = watcher.publishes()
    got = packet.properties
    assert got is not None
    assert got.user_properties == pairs
    assert (got.payload_format, got.content_type, got.message_expiry) == (1, "text/plain", 60)
    assert (got.response_topic, got.correlation_data, got.will_delay) == (b"answer/here", b"\x00\xff", None)


@pytest.mark.spec("MQTT-3.1.2-9", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-9", version="3.1.1")
@BOTH
def test_will_payload_may_be_empty(box: Box, version: int) -> None:
    watcher, peer = watch(box), box.client("a", version)
    peer.connect(will=Will(b"will", b""))
    peer.lose()
    assert watcher.messages() == [("will", b"")]


@pytest.mark.spec("MQTT-3.1.4-1", version="5.0")
@pytest.mark.spec("MQTT-3.1.4-1", version="3.1.1")
@BOTH
@pytest.mark.parametrize("topic", ["will/+", "#", ""])
def test_will_topic_is_a_topic_name(box: Box, version: int, topic: str) -> None:
    peer = box.client("a", version).open()
    properties_part = b"\0" if version == V5 else b""
    fields = [wire.text("a"), properties_part, wire.text(topic), wire.binary(b"")]
    peer.raw(wire.connect(version, *fields, flags=0x06))
    assert peer.closed
    assert peer.close_code in ((0x81, 0x82, 0x90, None) if version == V5 else (5, None))


def test_wills_of_refused_clients_are_not_published(box: Box) -> None:
    watcher, peer = watch(box), box.client("a")
    peer.connect(will=Will(b"will", b"gone"), auth_method="unknown", code=0x8C)
    box.advance(SECOND)
    assert watcher.messages() == []
