"""Section 3.3.4: overlapping subscriptions of one client."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import V5
from tests.harness.box import Box
from tests.harness.peer import Peer
from tests.harness.version import ALL


def identifiers(peer: Peer) -> list[list[int]]:
    """Subscription identifiers of each message, in increasing order."""
    return [sorted(packet.properties.subscription_ids) if packet.properties else [] for packet in peer.publishes()]


@pytest.mark.spec("MQTT-3.3.4-2", version="5.0")
@pytest.mark.spec("MQTT-3.3.5-1", version="3.1.1")
@ALL
def test_the_greatest_qos_of_all_matching_subscriptions_counts(box: Box, version: int) -> None:
    peer, source = box.client("a", version), box.client("s", version)
    peer.connect()
    source.connect()
    peer.subscribe("t/1", qos=0)
    peer.subscribe("t/+", qos=2)
    peer.subscribe("#", qos=1)
    for qos in (0, 1, 2):
        source.publish("t/1", b"m", qos=qos)
        assert max(packet.qos for packet in peer.publishes()) == qos


def test_one_copy_is_sent(box: Box) -> None:
    """The choice of this server where section 3.3.4 leaves one."""
    peer = box.client("a")
    peer.connect()
    peer.subscribe("t/1", "t/+", "t/#", qos=1)
    peer.publish("t/1", b"m", qos=1)
    assert peer.payloads() == [b"m"]


@pytest.mark.spec("MQTT-3.3.4-3", "MQTT-3.3.4-4", "MQTT-3.3.4-5", version="5.0")
@pytest.mark.parametrize("how", ["live", "queued", "crash"])
def test_all_subscription_identifiers_are_sent(box: Box, how: str) -> None:
    peer, source = box.client("a"), box.client("s")
    peer.resume()
    source.connect()
    peer.subscribe("t/1", qos=1, subscription_id=10)
    peer.subscribe("t/+", qos=0, subscription_id=20)
    peer.subscribe("#", qos=2)
    peer.subscribe("other", qos=2, subscription_id=30)
    if how != "live":
        peer.lose()
    source.publish("t/1", b"m", qos=1)
    if how == "crash":
        box.crash()
    if how != "live":
        peer.resume()
    got = peer.publishes()
    every = sorted(number for packet in got if packet.properties for number in packet.properties.subscription_ids)
    assert every == [10, 20]
    if len(got) == 1:
        assert got[0].qos == 1


@pytest.mark.spec("MQTT-3.3.4-4", version="5.0")
def test_identifiers_change_with_the_subscriptions(box: Box) -> None:
    peer = box.client("a")
    peer.connect()
    peer.subscribe("t/+", subscription_id=1)
    peer.subscribe("t/#", subscription_id=2)
    peer.publish("t/1", b"m")
    assert [number for numbers in identifiers(peer) for number in numbers] == [1, 2]
    peer.subscribe("t/#", subscription_id=3)
    peer.unsubscribe("t/+")
    peer.publish("t/1", b"m")
    assert identifiers(peer) == [[3]]


def test_identifiers_of_others_are_not_sent(box: Box) -> None:
    peer, other, old = box.client("a"), box.client("b"), box.client("c", 4)
    for each in (peer, other, old):
        each.connect()
    peer.subscribe("t", subscription_id=1)
    other.subscribe("t", subscription_id=2)
    old.subscribe("t")
    peer.publish("t", b"m")
    assert identifiers(peer) == [[1]]
    assert identifiers(other) == [[2]]
    assert old.messages() == [("t", b"m")]


def test_no_local_of_one_subscription_leaves_the_other(box: Box) -> None:
    peer = box.client("a", V5)
    peer.connect()
    peer.subscribe("t/+", no_local=True, subscription_id=1)
    peer.subscribe("t/1", subscription_id=2)
    peer.publish("t/1", b"m")
    assert identifiers(peer) == [[2]]


def test_retain_as_published_of_one_subscription(box: Box) -> None:
    """One copy for several subscriptions keeps RETAIN if one of them asks for it."""
    peer = box.client("a")
    peer.connect()
    peer.subscribe("t/+", as_published=True)
    peer.subscribe("t/1")
    peer.publish("t/1", b"m", retain=True)
    assert True in [packet.retain for packet in peer.publishes()]
