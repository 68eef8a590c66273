"""Section 3.2, CONNACK: first and only once, session present, what it announces."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import V5, V311, Connack, Connect, Publish, Will
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER, properties
from tests.harness.version import ALL, BOTH


@pytest.mark.spec("MQTT-3.2.0-1", "MQTT-3.2.0-2", "MQTT-3.1.4-5", version="5.0")
@pytest.mark.spec("MQTT-3.2.0-1", "MQTT-3.1.4-4", version="3.1.1")
@ALL
def test_connack_comes_first_and_once(box: Box, version: int) -> None:
    source, peer = box.client("s", version), box.client("a", version)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=1)
    peer.lose()
    source.publish("t", b"queued", qos=1)
    peer.open().send(
        Connect(version, "a", False, properties=properties(session_expiry=EVER) if version == V5 else None)
    )
    kinds = [type(packet).__name__ for packet in peer.receive()]
    assert kinds == ["Connack", "Publish"]
    box.advance(60_000_000)
    assert [first for first, _ in wire.split(peer.wire)[0]].count(0x20) == 1


@pytest.mark.spec("MQTT-3.2.2-1", "MQTT-3.2.2-2", version="5.0")
@pytest.mark.spec("MQTT-3.2.2-1", version="3.1.1")
@BOTH
def test_clean_start_has_no_session_present(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.resume()
    peer.lose()
    connack = peer.connect(clean_start=True)
    assert not connack.session_present
    assert wire.split(peer.wire)[0][0][1][:2] == b"\x00\x00"


@pytest.mark.spec("MQTT-3.2.2-3", version="5.0")
@pytest.mark.spec("MQTT-3.2.2-2", "MQTT-3.2.2-3", version="3.1.1")
@BOTH
def test_session_present_is_true_only_with_a_session(box: Box, version: int) -> None:
    peer = box.client("a", version)
    assert not peer.resume().session_present
    peer.lose()
    assert peer.resume().session_present
    assert wire.split(peer.wire)[0][0][1][:2] == b"\x01\x00"
    peer.lose()
    assert not box.client("b", version).resume().session_present


@pytest.mark.spec("MQTT-3.2.2-3", version="5.0")
@pytest.mark.spec("MQTT-3.2.2-2", "MQTT-3.2.2-3", version="3.1.1")
@BOTH
def test_session_present_is_true_after_a_crash(box: Box, version: int) -> None:
    kept, transient = box.client("kept", version), box.client("transient", version)
    kept.resume()
    transient.connect()
    box.crash()
    assert kept.resume().session_present
    assert not transient.connect(clean_start=False).session_present


@pytest.mark.spec("MQTT-3.2.2-9", version="5.0")
@pytest.mark.parametrize("qos_max", [0, 1])
def test_maximum_qos_is_announced(make: MakeBox, qos_max: int) -> None:
    peer = make(limits={"qos_max": qos_max}).client("a")
    connack = peer.connect()
    assert connack.properties is not None
    assert connack.properties.max_qos == qos_max


def test_maximum_qos_2_is_not_announced(box: Box) -> None:
    """Section 3.2.2.3.4: only 0 and 1 are values; 2 is the meaning of absence."""
    connack = box.client("a").connect()
    assert connack.properties is None or connack.properties.max_qos is None


@pytest.mark.spec("MQTT-3.2.2-10", version="5.0")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_any_qos_may_be_subscribed_to_where_publishing_has_less(make: MakeBox, qos: int) -> None:
    peer = make(limits={"qos_max": 0}).client("a")
    peer.connect()
    assert peer.subscribe("t", qos=qos)[0] in range(qos + 1)
    peer.publish("t", b"m")
    assert peer.payloads() == [b"m"]


@pytest.mark.spec("MQTT-3.2.2-11", version="5.0")
def test_publishing_above_maximum_qos_closes(make: MakeBox) -> None:
    box = make(limits={"qos_max": 1})
    watcher, peer = box.client("w"), box.client("a")
    watcher.connect()
    watcher.subscribe("t")
    peer.connect()
    peer.publish("t", b"allowed", qos=1)
    peer.send(Publish(b"t", b"too much", 2, packet_id=9))
    peer.expect_close(0x9B)
    assert watcher.payloads() == [b"allowed"]


@pytest.mark.spec("MQTT-3.2.2-12", version="5.0")
def test_will_above_maximum_qos_is_refused(make: MakeBox) -> None:
    peer = make(limits={"qos_max": 1}).client("a")
    peer.connect(will=Will(b"w", b"", 2), code=0x9B)
    assert peer.closed


@pytest.mark.spec("MQTT-3.2.2-13", version="5.0")
def test_retained_will_without_retaining_is_refused(make: MakeBox) -> None:
    box = make(limits={"retain_available": False})
    peer = box.client("a")
    peer.connect(will=Will(b"w", b"", 0, True), code=0x9A)
    assert peer.closed
    assert box.client("b").connect(will=Will(b"w", b"", 0, False)).code == 0


@pytest.mark.spec("MQTT-3.2.2-14", version="5.0")
def test_retaining_where_it_is_not_available_closes(make: MakeBox) -> None:
    peer = make(limits={"retain_available": False}).client("a")
    connack = peer.connect()
    assert connack.properties is not None
    assert connack.properties.retain_available == 0
    peer.send(Publish(b"t", b"m", 0, True))
    peer.expect_close(0x9A)


@pytest.mark.spec("MQTT-3.2.2-15", version="5.0")
@ALL
def test_a_packet_above_the_servers_maximum_closes(make: MakeBox, version: int) -> None:
    box = make(limits={"packet_bytes_max": 1_000})
    peer = box.client("a", version)
    connack = peer.connect()
    if version == V5:
        assert connack.properties is not None
        assert connack.properties.packet_max == 1_000
    peer.subscribe("t")
    body = 1_000 - 3 - 3 - (1 if version == V5 else 0)  # fixed header 3, topic 3, properties
    peer.publish("t", bytes(body))
    assert peer.payloads() == [bytes(body)]
    peer.send(Publish(b"t", bytes(body + 1)))
    peer.expect_close(0x95)


@pytest.mark.spec("MQTT-3.2.2-15", version="5.0")
def test_a_packet_too_large_is_refused_by_its_header_alone(box: Box) -> None:
    peer = box.client("a")
    peer.connect()
    peer.raw(b"\x30\xff\xff\xff\x7f")
    peer.expect_close(0x95)


@pytest.mark.spec("MQTT-3.1.3-6", "MQTT-3.1.3-7", "MQTT-3.2.2-16", version="5.0")
def test_empty_client_id_is_replaced_and_told(box: Box) -> None:
    first, second = box.client(""), box.client("")
    told = first.connect().properties
    assert told is not None
    assert told.assigned_client_id
    second.connect()
    assert first.client_id == told.assigned_client_id != second.client_id
    first.ping()


@pytest.mark.spec("MQTT-3.1.3-7", version="5.0")
def test_assigned_client_id_works_like_a_given_one(box: Box) -> None:
    peer = box.client("")
    peer.resume()
    peer.subscribe("t")
    peer.lose()
    assert peer.resume().session_present
    peer.publish("t", b"m")
    assert peer.payloads() == [b"m"]
    rival = box.client(peer.client_id)
    rival.connect()
    peer.expect_close(0x8E)


@pytest.mark.spec("MQTT-3.2.2-16", version="5.0")
def test_assigned_client_ids_survive_a_crash_as_different_ones(box: Box) -> None:
    names = set()
    for _ in range(3):
        peer = box.client("")
        peer.resume()
        names.add(peer.client_id)
        box.crash()
    assert len(names) == 3


@pytest.mark.spec("MQTT-3.1.3-6", version="3.1.1")
def test_empty_client_ids_of_311_do_not_meet(box: Box) -> None:
    first, second = box.client("", V311), box.client("", V311)
    first.connect()
    second.connect()
    first.subscribe("t")
    second.publish("t", b"m")
    assert first.payloads() == [b"m"]
    assert second.payloads() == []


@pytest.mark.spec("MQTT-3.1.3-7", "MQTT-3.1.3-8", "MQTT-3.1.3-9", "MQTT-3.2.2-5", version="3.1.1")
def test_empty_client_id_with_a_kept_session_is_refused(box: Box) -> None:
    peer = box.client("", V311)
    peer.connect(clean_start=False, code=2)
    assert peer.closed
    assert peer.wire == b"\x20\x02\x00\x02"


@pytest.mark.spec("MQTT-3.1.3-8", "MQTT-3.2.2-6", "MQTT-3.2.2-7", version="5.0")
@pytest.mark.spec("MQTT-3.1.3-9", "MQTT-3.2.2-4", version="3.1.1")
@BOTH
def test_rejected_client_id_is_told_and_closed(make: MakeBox, version: int) -> None:
    box = make(limits={"client_id_bytes_max": 30})
    peer = box.client("x" * 31, version)
    connack = peer.connect(code=0x85 if version == V5 else 2)
    assert not connack.session_present
    assert peer.closed
    assert box.client("x" * 30, version).connect().code == 0


@pytest.mark.spec("MQTT-3.1.3-5", version="5.0")
@pytest.mark.spec("MQTT-3.1.3-5", version="3.1.1")
@ALL
@pytest.mark.parametrize("client_id", ["0", "abcdefghijklmnopqrstuvw", "ABCDEFGHIJKLMNOPQRSTUVW", "0123456789xyzXYZ"])
def test_short_plain_client_ids_are_allowed(box: Box, version: int, client_id: str) -> None:
    peer = box.client(client_id, version)
    peer.connect()
    peer.ping()


@pytest.mark.spec("MQTT-3.2.2-6", "MQTT-3.2.2-7", version="5.0")
@pytest.mark.spec("MQTT-3.2.2-4", "MQTT-3.2.2-5", version="3.1.1")
@BOTH
def test_a_refused_client_with_a_session_hears_of_none(make: MakeBox, version: int) -> None:
    box = make(check=lambda username, password, client_id: password != b"wrong")
    peer = box.client("a", version)
    peer.resume()
    peer.subscribe("t")
    peer.lose()
    connack = peer.connect(clean_start=False, username="u", password=b"wrong", code=None)
    assert connack.code != 0
    assert not connack.session_present
    assert peer.closed
    assert peer.resume().session_present


@pytest.mark.spec("MQTT-3.2.2-6", version="3.1.1")
@BOTH
def test_where_no_return_code_fits_nothing_is_said(box: Box, version: int) -> None:
    """A CONNECT that breaks the protocol has no return code in MQTT 3.1.1, table 3.1."""
    peer = box.client("a", version).open()
    peer.raw(wire.connect(version, wire.text("a"), flags=0x03))
    assert peer.closed
    if version == V311:
        assert peer.wire == b""


def test_limits_are_announced(make: MakeBox) -> None:
    """Every limit that the protocol can tell is told, and those at the protocol's default are left out."""
    box = make(
        limits={
            "receive_max": 7,
            "topic_alias_max": 3,
            "packet_bytes_max": 5_000,
            "wildcard_available": False,
            "shared_available": False,
            "subscription_ids_available": False,
        }
    )
    told = box.client("a").connect().properties
    assert told is not None
    assert (told.receive_max, told.topic_alias_max, told.packet_max) == (7, 3, 5_000)
    assert (told.wildcard_available, told.shared_available, told.subscription_ids_available) == (0, 0, 0)
    assert (told.max_qos, told.retain_available, told.server_keep_alive) == (None, None, None)


def test_unavailable_kinds_of_subscription_are_refused(make: MakeBox) -> None:
    limits = {"wildcard_available": False, "shared_available": False, "subscription_ids_available": False}
    peer = make(limits=limits).client("a")
    peer.connect()
    assert peer.subscribe("a/#") == [0xA2]
    assert peer.subscribe("$share/g/a") == [0x9E]
    assert peer.subscribe("a") == [0x00]
    packet = wire.subscribe(V5, ("b", 0), properties=wire.props(wire.prop(11, b"\x05")))
    peer.raw(packet)
    answer = peer.inbox[-1]
    assert isinstance(answer, Connack) is False
    assert 0xA1 in (getattr(answer, "codes", None) or [peer.close_code])


def test_session_expiry_beyond_the_limit_is_cut_and_told(make: MakeBox) -> None:
    box = make(limits={"session_expiry_max_s": 100})
    peer = box.client("a")
    connack = peer.resume(session_expiry=1_000)
    assert connack.properties is not None
    assert connack.properties.session_expiry == 100
    peer.lose()
    box.advance(101_000_000)
    assert not peer.resume().session_present
