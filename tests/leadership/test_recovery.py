"""After a crash at any moment the node has all that it acknowledged: each kind of state, alone and together."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import PUBCOMP, PUBREC, PUBREL, Ack, Publish, Will
from folkmoot.store.batch import Batch
from folkmoot.store.key import SESSION, kind_of
from folkmoot.store.row import decode_session, encode_session
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import properties
from tests.harness.version import BOTH

HOW = pytest.mark.parametrize("how", ["crash", "restart"])


def again(box: Box, how: str) -> None:
    box.crash() if how == "crash" else box.restart()


@BOTH
@HOW
def test_subscriptions_with_their_options(box: Box, version: int, how: str) -> None:
    peer = box.client("a", version)
    peer.resume()
    peer.subscribe("q/0", qos=0)
    peer.subscribe("q/1", qos=1)
    peer.subscribe("q/+/x", qos=2)
    peer.subscribe("$share/g/shared/#", qos=1)
    if version == 5:
        peer.subscribe("local", qos=1, no_local=True)
        peer.subscribe("kept", qos=1, as_published=True, subscription_id=9)
    peer.unsubscribe("q/0")
    again(box, how)
    assert peer.resume().session_present
    for topic in ("q/0", "q/1", "q/2/x", "shared/1", "local", "kept"):
        peer.publish(topic, b"m", qos=2, retain=topic == "kept")
    got = [(packet.topic, packet.qos, packet.retain) for packet in peer.publishes()]
    expected = [(b"q/1", 1, False), (b"q/2/x", 2, False), (b"shared/1", 1, False)]
    if version == 5:
        expected.append((b"kept", 1, True))
    assert got == expected


@BOTH
@HOW
def test_the_queue_in_its_order(box: Box, version: int, how: str) -> None:
    source, peer = box.client("s"), box.client("a", version)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=2)
    peer.lose()
    for number in range(300):
        source.publish("t", b"%d" % number + bytes(200 if number % 3 == 0 else 0), qos=1 + number % 2)
    again(box, how)
    peer.resume()
    got = peer.publishes()
    assert [int(packet.payload.rstrip(b"\0")) for packet in got] == list(range(300))
    assert [packet.qos for packet in got] == [1 + number % 2 for number in range(300)]
    again(box, how)
    peer.resume()
    assert peer.publishes() == []


@BOTH
def test_large_messages_for_many_sessions(box: Box, version: int) -> None:
    """One stored body that several sessions wait for goes when the last of them has it."""
    peers = [box.client(f"p{number}", version) for number in range(30)]
    for peer in peers:
        peer.resume()
        peer.subscribe("t", qos=1)
        peer.lose()
    source = box.client("s")
    source.connect()
    source.publish("t", b"m" * 5_000, qos=1)
    box.crash()
    for peer in peers[:15]:
        peer.resume()
        assert peer.payloads() == [b"m" * 5_000]
    box.settle()
    box.crash()
    for peer in peers:
        peer.resume()
    assert [peer.payloads() for peer in peers] == [[]] * 15 + [[b"m" * 5_000]] * 15
    box.settle()
    box.crash()
    assert not any(b"m" * 5_000 in value for _, value in box.store.items())


@BOTH
@HOW
def test_retained_messages(box: Box, version: int, how: str) -> None:
    peer = box.client("a", version)
    peer.connect()
    for number in range(100):
        peer.publish(f"r/{number}", b"%d" % number, qos=number % 3, retain=True)
    for number in range(0, 100, 7):
        peer.publish(f"r/{number}", b"", qos=1, retain=True)
    again(box, how)
    peer.connect()
    peer.subscribe("r/#", qos=2)
    got = {packet.topic: packet.qos for packet in peer.publishes()}
    assert got == {b"r/%d" % number: number % 3 for number in range(100) if number % 7}


@BOTH
def test_inbound_qos_2_identifiers(box: Box, version: int) -> None:
    source, peer = box.client("s", version, acks=False), box.client("a", version)
    source.resume()
    peer.resume()
    peer.subscribe("t", qos=2)
    source.send(Publish(b"t", b"once", 2, packet_id=77))
    assert source.expect(Ack).kind == PUBREC
    box.crash()
    source.resume()
    peer.resume()
    source.send(Publish(b"t", b"once", 2, dup=True, packet_id=77))
    assert source.expect(Ack).kind == PUBREC
    source.send(Ack(PUBREL, 77))
    assert source.expect(Ack).kind == PUBCOMP
    box.crash()
    source.resume()
    peer.resume()
    source.send(Publish(b"t", b"new", 2, packet_id=77))
    assert peer.payloads()[-1] == b"new"


@BOTH
@pytest.mark.parametrize("durable", range(4))
def test_outbound_qos_2_is_delivered_once_for_any_crash(box: Box, version: int, durable: int) -> None:
    """The client keeps what it has received by identifier, as the standard tells it to."""
    source, peer = box.client("s"), box.client("a", version, acks=False)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=2)
    source.publish("t", b"m", qos=2)
    (packet,) = peer.publishes()
    box.hold_writes()
    peer.send(Ack(PUBREC, packet.packet_id))
    box.crash(durable)
    peer.resume()
    (after,) = peer.receive()
    assert getattr(after, "packet_id", None) == packet.packet_id
    if isinstance(after, Publish):
        assert after.dup
        peer.send(Ack(PUBREC, packet.packet_id))
        (after,) = peer.receive()
    assert isinstance(after, Ack)
    assert after.kind == PUBREL
    box.hold_writes()
    peer.send(Ack(PUBCOMP, packet.packet_id))
    box.settle()
    box.crash(durable)
    peer.resume()
    left = peer.receive()
    assert [getattr(ack, "kind", None) for ack in left] == ([] if durable else [PUBREL])
    if left:
        peer.send(Ack(PUBCOMP, packet.packet_id))
    source.connect()
    source.publish("t", b"next", qos=2)
    assert peer.payloads() == [b"next"]


@BOTH
def test_a_will_without_delay(box: Box, version: int) -> None:
    watcher = box.client("w", version)
    watcher.resume()
    watcher.subscribe("will/#", qos=1)
    for persistent in (False, True):
        peer = box.client(f"p{persistent}", version)
        peer.connect(
            clean_start=not persistent,
            session_expiry=100 if persistent else None,
            will=Will(b"will/%d" % persistent, b"gone", 1),
        )
    box.crash()
    watcher.resume()
    assert sorted(watcher.messages()) == [("will/0", b"gone"), ("will/1", b"gone")]
    box.settle()
    box.crash()
    watcher.resume()
    assert watcher.messages() == []


def test_a_will_that_a_leader_could_not_publish_any_more(box: Box) -> None:
    watcher = box.client("w")
    watcher.resume()
    watcher.subscribe("will", qos=1)
    box.client("a").connect(session_expiry=1_000, will=Will(b"will", b"gone", 1))
    # A leader has seen the end of the connection, and waited for the subscriptions of other nodes when it died.
    batch = Batch(0)
    for key, value in box.store.items():
        if kind_of(key) == SESSION and key.endswith(b"a"):
            session = decode_session(value[VERSION_BYTES:])
            session.ends_us = box.now + 1_000 * SECOND
            batch.put(key, value[:VERSION_BYTES] + encode_session(session))
    box.store.apply(batch)
    box.crash()
    watcher.resume()
    assert watcher.messages() == [("will", b"gone")]


def test_a_will_with_delay_and_properties(box: Box) -> None:
    peer = box.client("a")
    will = Will(b"will", b"gone", 1, True, properties(will_delay=20, content_type="text/plain", message_expiry=50))
    peer.connect(session_expiry=1_000, will=will)
    box.crash()
    watcher = box.client("w")
    watcher.connect()
    watcher.subscribe("will", qos=1)
    box.advance(19 * SECOND)
    assert watcher.messages() == []
    box.advance(2 * SECOND)
    (packet,) = watcher.publishes()
    assert packet.properties is not None
    assert (packet.properties.content_type, packet.properties.message_expiry) == ("text/plain", 50)
    box.crash()
    watcher.connect()
    watcher.subscribe("will", qos=1)
    assert [packet.retain for packet in watcher.publishes()] == [True]


@HOW
def test_a_stream_keeps_its_records_and_offsets(make: MakeBox, how: str) -> None:
    box = make(streams=[StreamConfig("s", b"t/#", 1)])
    peer = box.client("a")
    peer.connect()
    for number in range(10):
        peer.publish("t/x", b"%d" % number, qos=1)
    again(box, how)
    peer.connect()
    for number in range(10, 20):
        peer.publish("t/x", b"%d" % number, qos=1)
    peer.subscribe("$stream/s/earliest/t/#", qos=1)
    got = peer.publishes()
    assert [packet.payload for packet in got] == [b"%d" % number for number in range(20)]
    offsets = [dict(packet.properties.user_properties)["folkmoot-offset"] for packet in got if packet.properties]
    assert offsets == [str(number) for number in range(20)]


def test_expiry_of_sessions_goes_on_over_crashes(box: Box) -> None:
    peer = box.client("a")
    peer.connect(session_expiry=100)
    peer.subscribe("t", qos=1)
    peer.lose()
    for _ in range(9):
        box.advance(11 * SECOND)
        box.crash()
    box.advance(2 * SECOND)
    assert not peer.connect(clean_start=False).session_present


def test_an_ended_session_leaves_no_rows(box: Box) -> None:
    source, peer = box.client("s"), box.client("a")
    source.connect()
    box.crash()
    before = len(box.store.items())
    source.connect()
    peer.resume(will=Will(b"will", b"gone", 1, False, properties(will_delay=5)))
    peer.subscribe("t", "u/#", "$share/g/v", qos=2)
    peer.send(Publish(b"x", b"m", 2, packet_id=4))
    peer.acks = False
    for topic in ("t", "u/1", "v"):
        source.publish(topic, bytes(1_000), qos=2)
    peer.lose()
    for number in range(50):
        source.publish("t", b"%d" % number, qos=1)
    assert len(box.store.items()) > before + 50
    peer.connect(clean_start=True)
    peer.disconnect()
    box.advance(10 * SECOND)
    box.crash()
    assert len(box.store.items()) <= before


def test_a_second_crash_during_recovery_loses_nothing(box: Box) -> None:
    source, peer = box.client("s"), box.client("a")
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=1)
    peer.lose()
    source.publish("t", b"m", qos=1)
    for _ in range(5):
        box.hold_writes()
        box.crash()
    peer.resume()
    assert peer.payloads() == [b"m"]


@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_a_will_after_a_crash_is_no_repetition(box: Box, name: str) -> None:
    """It is queued while the node opens, behind all that its receiver may have got before, in whatever partition."""
    peer, source = box.client(name), box.client("s")
    peer.resume()
    peer.subscribe("w", qos=1)
    peer.lose()
    source.resume(will=Will(b"w", b"will", 1, False))
    for number in range(3):
        source.publish("w", b"%d" % number, qos=1)
    peer.resume()
    assert len(peer.payloads()) == 3
    peer.lose()
    box.crash()
    peer.resume()
    (will,) = peer.publishes()
    assert (will.payload, will.dup) == (b"will", False)
