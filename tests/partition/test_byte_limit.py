"""Limits that count bytes: of client ids, topic names and filters, whatever the characters are."""

from __future__ import annotations

from folkmoot.mqtt.packet import Disconnect, Publish, Will
from tests.harness.fixture import MakeBox


def test_a_client_id_is_measured_in_bytes(make: MakeBox) -> None:
    box = make(limits={"client_id_bytes_max": 30})
    box.client("\u00fc" * 15).connect()
    box.client("\u00fc" * 16).connect(code=0x85)


def test_a_filter_is_as_long_as_a_topic_may_be(make: MakeBox) -> None:
    box = make(limits={"topic_bytes_max": 10})
    peer = box.client("a")
    peer.connect()
    assert peer.subscribe("123456789/", "1234567890a", "\u00fc/a/b/c/d/e", qos=1) == [1, 0x8F, 0x8F]
    assert peer.publish("123456789/", qos=1) == 0
    assert peer.payloads() == [b""]


def test_a_longer_topic_name_ends_the_connection(make: MakeBox) -> None:
    peer = make(limits={"topic_bytes_max": 10}).client("a")
    peer.connect()
    peer.send(Publish(b"1234567890a", b"")).expect(Disconnect)
    peer.expect_close(0x90)


def test_a_will_has_no_longer_topic_name_than_a_message(make: MakeBox) -> None:
    box = make(limits={"topic_bytes_max": 10})
    box.client("a").connect(will=Will(b"123456789/", b"gone", 0, False))
    box.client("b").connect(will=Will(b"1234567890a", b"gone", 0, False), code=0x90)
