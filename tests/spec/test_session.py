"""Sections 3.1.2.4, 3.1.2.11, 3.1.4 and 4.1: clean start, session state, expiry, takeover."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import V31, Connect, Disconnect, Publish
from tests.harness.box import Box
from tests.harness.peer import EVER, Peer, properties
from tests.harness.version import ALL, BOTH

DAY = 86_400 * SECOND


def away(box: Box, version: int, client_id: str = "a") -> Peer:
    """A client with a lasting session, a QoS 1 subscription to `t` and no connection."""
    peer = box.client(client_id, version)
    peer.resume()
    peer.subscribe("t", qos=1)
    peer.lose()
    return peer


@pytest.mark.spec("MQTT-3.1.2-4", "MQTT-3.1.4-4", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-6", "MQTT-3.1.4-3", version="3.1.1")
@ALL
def test_clean_start_discards_the_session(box: Box, version: int) -> None:
    source, peer = box.client("s"), away(box, version)
    source.connect()
    source.publish("t", b"queued", qos=1)
    peer.connect(clean_start=True)
    source.publish("t", b"live", qos=1)
    assert peer.messages() == []
    peer.lose()
    assert not peer.resume().session_present
    assert peer.messages() == []


@pytest.mark.spec("MQTT-3.1.2-4", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-6", version="3.1.1")
@BOTH
def test_a_discarded_session_stays_discarded_after_a_crash(box: Box, version: int) -> None:
    source, peer = box.client("s"), away(box, version)
    source.connect()
    source.publish("t", b"queued", qos=1)
    peer.connect(clean_start=True)
    box.crash()
    peer.resume()
    assert peer.messages() == []


@pytest.mark.spec("MQTT-3.1.2-6", version="3.1.1")
@BOTH
def test_state_of_a_clean_session_is_not_reused(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect(clean_start=True)
    peer.subscribe("t", qos=1)
    peer.lose()
    assert not peer.resume().session_present
    peer.publish("t", b"m")
    assert peer.messages() == []


@pytest.mark.spec("MQTT-3.1.2-5", "MQTT-3.1.2-23", "MQTT-3.1.3-2", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-4", "MQTT-3.1.3-2", "MQTT-4.1.0-1", version="3.1.1")
@ALL
def test_a_session_is_resumed_with_all_its_state(box: Box, version: int) -> None:
    source, peer, other = box.client("s"), away(box, version), box.client("b", version)
    source.connect()
    source.publish("t", b"queued", qos=1)
    other.resume()
    assert other.messages() == []  # another client id, another session
    peer.resume()
    assert peer.messages() == [("t", b"queued")]
    source.publish("t", b"live", qos=1)
    assert peer.messages() == [("t", b"live")]


@pytest.mark.spec("MQTT-3.1.2-6", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-4", version="3.1.1")
@BOTH
def test_without_a_session_a_new_one_is_made(box: Box, version: int) -> None:
    peer = box.client("a", version)
    assert not peer.resume().session_present
    peer.subscribe("t", qos=1)
    peer.lose()
    assert peer.resume().session_present


@pytest.mark.spec("MQTT-3.1.2-5", "MQTT-4.5.0-1", version="3.1.1")
@pytest.mark.spec("MQTT-3.1.2-23", "MQTT-4.5.0-1", version="5.0")
@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_messages_are_stored_for_an_absent_session(box: Box, version: int, qos: int) -> None:
    source, peer = box.client("s", version), box.client("a", version)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=2)
    peer.disconnect()
    for number in range(5):
        source.publish("t", b"%d" % number, qos=qos)
    box.crash()
    peer.resume()
    got = peer.publishes()
    assert [packet.payload for packet in got] == [b"0", b"1", b"2", b"3", b"4"]
    assert {packet.qos for packet in got} == {qos}


@pytest.mark.spec("MQTT-4.1.0-2", version="5.0")
@pytest.mark.parametrize("how", ["lose", "disconnect", "crash"])
def test_a_session_ends_when_its_expiry_interval_has_passed(box: Box, how: str) -> None:
    source, peer = box.client("s"), box.client("a")
    source.connect()
    for seconds, present in ((99, True), (101, False)):
        peer.connect(clean_start=True, session_expiry=100)
        peer.subscribe("t", qos=1)
        {"lose": peer.lose, "disconnect": peer.disconnect, "crash": box.crash}[how]()
        box.advance(seconds * SECOND)
        assert peer.connect(clean_start=False).session_present is present
        peer.disconnect()


@pytest.mark.spec("MQTT-4.1.0-2", version="5.0")
def test_an_expired_session_gets_nothing(box: Box) -> None:
    source, peer = box.client("s"), box.client("a")
    source.connect()
    peer.connect(session_expiry=10)
    peer.subscribe("t", qos=1)
    peer.lose()
    source.publish("t", b"queued", qos=1)
    box.advance(11 * SECOND)
    assert source.publish("t", b"late", qos=1) == 0x10
    assert not peer.resume().session_present
    assert peer.messages() == []


@pytest.mark.spec("MQTT-4.1.0-2", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-6", version="3.1.1")
@BOTH
def test_a_session_without_expiry_ends_with_its_connection(box: Box, version: int) -> None:
    peer, source = box.client("a", version), box.client("s")
    source.connect()
    peer.connect()
    peer.subscribe("t", qos=1)
    peer.lose()
    assert source.publish("t", b"m", qos=1) == 0x10
    assert not peer.connect(clean_start=False).session_present


@pytest.mark.spec("MQTT-4.1.0-1", version="5.0")
@pytest.mark.spec("MQTT-4.1.0-1", "MQTT-4.1.0-2", version="3.1.1")
@BOTH
def test_a_session_lasts_while_it_is_connected(box: Box, version: int) -> None:
    source, peer = box.client("s"), box.client("a", version)
    source.connect()
    peer.connect(session_expiry=5)
    peer.subscribe("t", qos=1)
    box.advance(400 * DAY)
    source.publish("t", b"m", qos=1)
    assert peer.payloads() == [b"m"]


def test_a_session_of_331_has_the_configured_expiry(box: Box) -> None:
    assert box.config.limits.session_expiry_v3_s == EVER
    peer = away(box, 4)
    box.advance(5_000 * DAY)
    assert peer.resume().session_present


@pytest.mark.spec("MQTT-3.1.4-3", version="5.0")
@pytest.mark.spec("MQTT-3.1.4-2", version="3.1.1")
@ALL
@pytest.mark.parametrize("clean_start", [True, False])
def test_takeover_disconnects_the_existing_client(box: Box, version: int, clean_start: bool) -> None:
    old, new = box.client("a", version), box.client("a", version)
    old.resume()
    old.subscribe("t", qos=1)
    connack = new.resume(clean_start=clean_start)
    old.expect_close(0x8E)
    assert connack.session_present is not clean_start or version == V31  # which has no such flag
    new.publish("t", b"m")
    assert new.payloads() == ([] if clean_start else [b"m"])


@pytest.mark.spec("MQTT-3.1.4-3", version="5.0")
@pytest.mark.spec("MQTT-3.1.4-2", version="3.1.1")
def test_takeover_between_versions(box: Box) -> None:
    for first, second in ((4, 5), (5, 4)):
        old, new = box.client("a", first), box.client("a", second)
        old.resume()
        old.subscribe("t", qos=1)
        assert new.resume().session_present
        old.expect_close(0x8E)
        new.publish("t", b"m", qos=1)
        assert new.payloads() == [b"m"]
        new.disconnect()


@pytest.mark.spec("MQTT-3.1.3-2", version="5.0")
@pytest.mark.spec("MQTT-3.1.3-2", version="3.1.1")
@BOTH
def test_client_ids_differ_by_case(box: Box, version: int) -> None:
    lower, upper = box.client("a", version), box.client("A", version)
    lower.connect()
    upper.connect()
    lower.ping()


@pytest.mark.spec("MQTT-4.1.0-2", version="5.0")
def test_session_expiry_changed_at_disconnect(box: Box) -> None:
    peer = box.client("a")
    peer.connect(session_expiry=1_000)
    peer.disconnect(session_expiry=10)
    box.advance(11 * SECOND)
    assert not peer.connect(clean_start=False, session_expiry=10).session_present
    peer.disconnect(session_expiry=1_000)
    box.advance(999 * SECOND)
    assert peer.connect(clean_start=False, session_expiry=10).session_present
    peer.disconnect(session_expiry=0)
    assert not peer.connect(clean_start=False).session_present


@pytest.mark.spec("MQTT-4.13.1-1", version="5.0")
def test_session_expiry_0_cannot_be_raised_at_disconnect(box: Box) -> None:
    """Section 3.14.2.2.2: a protocol error."""
    peer = box.client("a")
    peer.connect()
    peer.send(Disconnect(0, properties(session_expiry=10)))
    peer.expect_close(0x82)
    assert not peer.connect(clean_start=False).session_present


@pytest.mark.spec("MQTT-3.1.2-7", version="3.1.1")
@BOTH
def test_retained_messages_outlive_the_session(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect(clean_start=True)
    peer.publish("t", b"kept", qos=1, retain=True)
    peer.disconnect()
    peer.connect(clean_start=True)
    peer.subscribe("t")
    assert peer.payloads() == [b"kept"]


@pytest.mark.spec("MQTT-3.14.4-1", "MQTT-3.14.4-2", version="3.1.1")
@BOTH
def test_what_follows_disconnect_is_not_processed(box: Box, version: int) -> None:
    watcher, peer = box.client("w", version), box.client("a", version)
    watcher.connect()
    watcher.subscribe("t")
    peer.open().send(Connect(version, "a", True), Disconnect(), Publish(b"t", b"after"))
    assert peer.closed
    assert watcher.messages() == []


@BOTH
def test_expiry_begins_anew_at_each_close(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect(clean_start=False, session_expiry=100)
    for _ in range(3):
        peer.lose()
        box.advance(60 * SECOND)
        assert peer.connect(clean_start=False, session_expiry=100).session_present
        box.advance(60 * SECOND)
