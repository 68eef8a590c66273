"""Section 3.1.2.10, keep alive, and 3.12, PINGREQ."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import PUBACK, Ack, Will
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.version import ALL, BOTH


@pytest.mark.spec("MQTT-3.12.4-1", version="5.0")
@pytest.mark.spec("MQTT-3.12.4-1", version="3.1.1")
@ALL
def test_ping_is_answered(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    for _ in range(3):
        before = peer.wire
        peer.raw(b"\xc0\x00")
        assert peer.wire[len(before) :] == b"\xd0\x00"


@pytest.mark.spec("MQTT-3.1.2-20", "MQTT-3.1.2-22", "MQTT-3.2.2-22", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-23", "MQTT-3.1.2-24", version="3.1.1")
@ALL
def test_silence_beyond_one_and_a_half_periods_closes(box: Box, version: int) -> None:
    peer, other = box.client("a", version), box.client("b", version)
    peer.connect(keep_alive_s=10)
    other.connect(keep_alive_s=100)
    box.advance(14_900_000)
    assert not peer.closed
    box.advance(1_100_000)
    peer.expect_close(0x8D)
    assert not other.closed


@pytest.mark.spec("MQTT-3.1.2-22", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-24", version="3.1.1")
@BOTH
def test_every_packet_of_the_client_counts(box: Box, version: int) -> None:
    peer, source = box.client("a", version, acks=False), box.client("s", version)
    source.connect()
    peer.connect(keep_alive_s=10)
    peer.subscribe("t", qos=1)
    source.publish("t", b"m", qos=1)
    packet_id = peer.publishes()[0].packet_id
    says: list[Callable[[], object]] = [
        peer.ping,
        lambda: peer.publish("x"),
        lambda: peer.subscribe("y"),
        lambda: peer.send(Ack(PUBACK, packet_id)),
    ]
    for say in says:
        box.advance(12 * SECOND)
        say()
    box.advance(12 * SECOND)
    assert not peer.closed
    box.advance(4 * SECOND)
    assert peer.closed


@pytest.mark.spec("MQTT-3.1.2-22", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-24", version="3.1.1")
@BOTH
def test_what_the_server_sends_does_not_count(box: Box, version: int) -> None:
    peer, source = box.client("a", version), box.client("s", version)
    source.connect()
    peer.connect(keep_alive_s=10)
    peer.subscribe("t")
    for _ in range(16):
        source.publish("t", b"m")
        box.advance(SECOND)
    assert peer.closed


@pytest.mark.spec("MQTT-3.1.2-22", version="5.0")
@BOTH
def test_half_a_packet_does_not_count(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect(keep_alive_s=10)
    box.advance(14 * SECOND)
    peer.raw(b"\xc0")
    box.advance(2 * SECOND)
    assert peer.closed


@pytest.mark.spec("MQTT-3.2.2-22", version="5.0")
@BOTH
def test_keep_alive_0_never_closes(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect(keep_alive_s=0)
    box.advance(10 * 86_400 * SECOND)
    peer.ping()


@pytest.mark.spec("MQTT-3.1.2-22", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-24", version="3.1.1")
@BOTH
def test_the_timeout_is_a_network_failure(box: Box, version: int) -> None:
    """The will is published and the session stays."""
    watcher, peer = box.client("w"), box.client("a", version)
    watcher.connect()
    watcher.subscribe("will")
    peer.resume(keep_alive_s=10, will=Will(b"will", b"gone"))
    box.advance(16 * SECOND)
    assert watcher.payloads() == [b"gone"]
    assert peer.resume().session_present


@pytest.mark.spec("MQTT-3.1.2-21", "MQTT-3.2.2-21", version="5.0")
def test_server_keep_alive_replaces_a_longer_one(make: MakeBox) -> None:
    box = make(limits={"keep_alive_max_s": 20})
    peer, modest = box.client("a"), box.client("b")
    told = peer.connect(keep_alive_s=1_000).properties
    assert told is not None
    assert told.server_keep_alive == 20
    told = modest.connect(keep_alive_s=15).properties
    assert told is None or told.server_keep_alive is None
    box.advance(29 * SECOND)
    assert (peer.closed, modest.closed) == (False, True)
    box.advance(2 * SECOND)
    peer.expect_close(0x8D)


def test_server_keep_alive_for_clients_that_ask_for_none(make: MakeBox) -> None:
    """Only MQTT 5.0 can tell the client; older ones keep what they asked for."""
    box = make(limits={"keep_alive_default_s": 30})
    peer, old = box.client("a"), box.client("b", 4)
    told = peer.connect(keep_alive_s=0).properties
    assert told is not None
    assert told.server_keep_alive == 30
    old.connect(keep_alive_s=0)
    box.advance(46 * SECOND)
    assert peer.closed
    assert not old.closed
