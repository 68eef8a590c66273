"""$SYS topics: what the node says of itself."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
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
