"""$SYS topics: what the node says of itself."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import V311
from folkmoot.store.record import RECORD_BYTES
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.version import BOTH


@pytest.fixture
def telling(make: MakeBox) -> Box:
    return make(limits={"sys_interval_us": 10 * SECOND}, version="1.2.3")


@BOTH
def test_a_subscriber_gets_the_present_values_as_retained(telling: Box, version: int) -> None:
    peer = telling.client("a", version)
    peer.connect()
    peer.subscribe("$SYS/broker/version", "$SYS/broker/clients/#")
    got = {packet.topic: (packet.payload, packet.retain) for packet in peer.publishes()}
    assert got[b"$SYS/broker/version"] == (b"folkmoot version 1.2.3", True)
    assert b"$SYS/broker/clients/connected" in got


def test_values_that_change_come_at_the_interval(telling: Box) -> None:
    peer, other = telling.client("a"), telling.client("b")
    peer.connect()
    peer.subscribe("$SYS/broker/clients/connected")
    peer.publishes()
    other.connect()
    telling.advance(11 * SECOND)
    (packet,) = peer.publishes()
    assert (int(packet.payload), packet.retain, packet.qos) == (3, False, 0)  # with the bystander
    telling.advance(60 * SECOND)
    assert peer.publishes() == []


def test_without_an_interval_there_are_none(box: Box) -> None:
    peer = box.client("a")
    peer.connect()
    peer.subscribe("$SYS/#")
    box.advance(600 * SECOND)
    assert peer.publishes() == []


def test_messages_are_counted(telling: Box) -> None:
    peer = telling.client("a")
    peer.connect()
    for _ in range(7):
        peer.publish("t", b"m", qos=1)
    telling.advance(11 * SECOND)
    peer.subscribe("$SYS/broker/messages/received")
    assert [int(payload) for payload in peer.payloads()] == [7]


def test_all_bytes_that_go_out_are_counted(make: MakeBox) -> None:
    box = make(bystander=False)
    peer, other = box.client("a"), box.client("b", V311)
    peer.connect()
    other.connect()
    peer.subscribe("t")
    for qos in (0, 1, 2):
        other.publish("t", b"m", qos=qos)
    assert box.node.counters.bytes_sent == len(peer.wire) + len(other.wire)


def test_the_bytes_of_streams_are_counted_and_what_retention_removes(make: MakeBox) -> None:
    box = make(streams=[StreamConfig("s", b"t/#", 1, retention_us=SECOND)])
    peer = box.client("source")
    peer.connect()
    for _ in range(5):
        peer.publish("t/1", b"payload", qos=1)
    counters = box.node.counters
    assert counters.stream_bytes == 5 * (RECORD_BYTES + len("t/1" + "payload" + "source"))
    assert counters.stream_trimmed_records == 0
    box.advance(60 * SECOND)
    assert counters.stream_trimmed_records == 5
    assert counters.stream_trimmed_bytes >= counters.stream_bytes
