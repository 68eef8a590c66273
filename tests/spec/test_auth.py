"""Sections 3.15 and 4.12: AUTH and enhanced authentication, of which this server supports no method yet."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import Auth, Connect, Publish
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.peer import properties


@pytest.mark.spec("MQTT-4.12.0-1", "MQTT-4.12.0-4", version="5.0")
@pytest.mark.parametrize("method", ["SCRAM-SHA-1", "GSSAPI", ""])
def test_an_unknown_method_is_refused(box: Box, method: str) -> None:
    peer = box.client("a")
    peer.connect(auth_method=method, auth_data=b"\x01", code=0x8C)
    assert peer.closed
    assert peer.receive() == []


@pytest.mark.spec("MQTT-3.1.2-30", version="5.0")
def test_nothing_is_processed_before_an_authentication_ends(box: Box) -> None:
    watcher, peer = box.client("w"), box.client("a")
    watcher.connect()
    watcher.subscribe("#")
    peer.open().send(Connect(5, "a", True, properties=properties(auth_method="x")), Publish(b"t", b"m"))
    peer.expect_close(0x8C)
    assert watcher.messages() == []


@pytest.mark.spec("MQTT-4.12.0-6", version="5.0")
def test_without_a_method_the_server_speaks_of_none(box: Box) -> None:
    peer = box.client("a")
    told = peer.connect(username="u", password=b"p").properties
    assert told is None or (told.auth_method, told.auth_data) == (None, None)
    box.advance(3_600_000_000)
    assert 0xF0 not in [first for first, _ in wire.split(peer.wire)[0]]


@pytest.mark.spec("MQTT-4.12.0-7", "MQTT-4.12.1-1", version="5.0")
@pytest.mark.parametrize("code", [0x18, 0x19])
def test_auth_without_a_method_closes(box: Box, code: int) -> None:
    """Nobody authenticated with a method, so nobody may continue or repeat it."""
    for named in ({}, {"auth_method": "SCRAM-SHA-1"}):
        peer = box.client("a")
        peer.connect()
        peer.send(Auth(code, properties(**named)))
        peer.expect_close(0x82)


@pytest.mark.spec("MQTT-3.15.1-1", version="5.0")
@pytest.mark.parametrize("first", [0xF1, 0xF2, 0xF8, 0xFF])
def test_auth_with_wrong_flags_closes(box: Box, first: int) -> None:
    peer = box.client("a")
    peer.connect()
    peer.raw(wire.packet(first, b"\x18", wire.props(wire.prop(21, wire.text("x")))))
    peer.expect_close(0x81)


@pytest.mark.spec("MQTT-3.15.2-1", version="5.0")
@pytest.mark.parametrize("code", [0x01, 0x10, 0x80])
def test_auth_with_another_packets_code_closes(box: Box, code: int) -> None:
    peer = box.client("a")
    peer.connect()
    peer.raw(wire.packet(0xF0, bytes([code]), wire.props(wire.prop(21, wire.text("x")))))
    peer.expect_close(0x81, 0x82)


def test_auth_in_311_closes(box: Box) -> None:
    peer = box.client("a", 4)
    peer.connect()
    peer.raw(b"\xf0\x00")
    assert peer.closed
