"""Section 3.1, the form of CONNECT: first packet, protocol name and version, flags, order of the payload."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import V5, V31, V311, Connack, Connect, Pingreq, Pingresp, Publish, Subscribe, Will
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.version import ALL, BOTH, OLD

WILL, USERNAME, PASSWORD, WILL_RETAIN, CLEAN = 0x04, 0x80, 0x40, 0x20, 0x02


def will_fields(version: int, topic: str = "will", payload: bytes = b"gone") -> bytes:
    """The will part of the payload."""
    return (b"\0" if version == V5 else b"") + wire.text(topic) + wire.binary(payload)


def refused(box: Box, version: int, packet: bytes) -> None:
    """The CONNECT is refused without an effect: in MQTT 3.x silently, in 5.0 with 0x81, 0x82 or silently."""
    watcher, peer = box.client("w"), box.client("x", version).open()
    watcher.connect()
    watcher.subscribe("#")
    peer.raw(packet + wire.publish(version, "after", b"refused"))
    peer.expect_close(None, 0x81, 0x82)
    assert watcher.messages() == []
    watcher.disconnect()


@pytest.mark.spec("MQTT-3.1.0-1", "MQTT-3.14.0-1", version="5.0")
@pytest.mark.spec("MQTT-3.1.0-1", version="3.1.1")
@BOTH
@pytest.mark.parametrize("first", [3, 4, 8, 10, 12, 14, 15])
def test_another_packet_before_connect_closes_silently(box: Box, version: int, first: int) -> None:
    packets = {
        3: wire.publish(version, "t", b"m"),
        8: wire.subscribe(version, ("t", 0)),
        10: wire.packet(0xA2, wire.u16(1), b"\0" if version == V5 else b"", wire.text("t")),
        12: b"\xc0\x00",
    }
    watcher, peer = box.client("w", version), box.client("a", version).open()
    watcher.connect()
    watcher.subscribe("#")
    peer.raw(packets.get(first, bytes([first << 4, 2, 0, 1])))
    assert peer.closed
    assert peer.wire == b""
    assert watcher.messages() == []


@pytest.mark.spec("MQTT-3.1.0-2", version="5.0")
@pytest.mark.spec("MQTT-3.1.0-2", version="3.1.1")
@ALL
def test_second_connect_closes(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.send(Connect(version, "a", True))
    peer.expect_close(0x82)


@pytest.mark.spec("MQTT-3.1.2-1", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-1", version="3.1.1")
@pytest.mark.parametrize("name", ["mqtt", "MQTTX", "", "MQIsdp", "HTTP"])
@BOTH
def test_wrong_protocol_name_is_refused(box: Box, version: int, name: str) -> None:
    peer = box.client("a", version).open()
    peer.raw(wire.connect(version, wire.text("a"), name=name))
    assert peer.closed
    assert peer.close_code in (None, 0x84, 0x01)
    assert not any(packet.code == 0 for packet in peer.receive() if isinstance(packet, Connack))


@pytest.mark.spec("MQTT-3.1.2-2", version="5.0")
@pytest.mark.parametrize("level", [6, 7, 127, 255])
def test_a_later_version_is_refused(box: Box, level: int) -> None:
    peer = box.client("a", V5).open()
    peer.raw(wire.packet(0x10, wire.text("MQTT"), bytes([level, 2, 0, 0, 0]), wire.text("a")))
    assert peer.closed
    (answer,) = wire.split(peer.wire)[0]
    assert (answer[0], answer[1][:2]) in ((0x20, b"\x00\x84"), (0x20, b"\x00\x01"))


@pytest.mark.spec("MQTT-3.1.2-2", version="3.1.1")
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_an_earlier_level_gets_return_code_1(box: Box, level: int) -> None:
    peer = box.client("a", V311).open()
    peer.raw(wire.packet(0x10, wire.text("MQTT"), bytes([level, 2, 0, 0]), wire.text("a")))
    assert peer.wire == b"\x20\x02\x00\x01"
    assert peer.closed


@ALL
def test_all_three_versions_are_served(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.ping()
    assert peer.wire[:1] == b"\x20"


@pytest.mark.spec("MQTT-3.1.2-3", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-3", version="3.1.1")
@BOTH
def test_reserved_connect_flag_is_refused(box: Box, version: int) -> None:
    refused(box, version, wire.connect(version, wire.text("a"), flags=CLEAN | 0x01))


@pytest.mark.parametrize(("flags", "first"), [(CLEAN | 0x01, 0x10), (CLEAN, 0x11), (CLEAN | 0x01, 0x1F)])
def test_flags_that_3_1_does_not_reserve_are_ignored(box: Box, flags: int, first: int) -> None:
    """MQTT 3.1 section 3.1 calls these bits of CONNECT unused, and has no rule about them."""
    peer = box.client("a", 3).open()
    peer.raw(wire.connect(3, wire.text("a"), flags=flags, first=first))
    assert peer.wire == b"\x20\x02\x00\x00"
    assert not peer.closed
    peer.ping()


@pytest.mark.spec("MQTT-3.1.2-9", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-9", version="3.1.1")
@BOTH
def test_will_flag_without_will_is_refused(box: Box, version: int) -> None:
    missing = wire.connect(version, wire.text("a"), flags=CLEAN | WILL)
    only_topic = wire.connect(version, wire.text("a"), will_fields(version)[:-6], flags=CLEAN | WILL)
    refused(box, version, missing)
    refused(box, version, only_topic)


@pytest.mark.spec("MQTT-3.1.2-11", "MQTT-3.1.2-13", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-11", "MQTT-3.1.2-13", "MQTT-3.1.2-15", version="3.1.1")
@BOTH
@pytest.mark.parametrize("flags", [0x08, 0x10, 0x18, WILL_RETAIN])
def test_will_flags_without_will_flag_are_refused(box: Box, version: int, flags: int) -> None:
    refused(box, version, wire.connect(version, wire.text("a"), flags=CLEAN | flags))


@pytest.mark.spec("MQTT-3.1.2-11", version="3.1.1")
@BOTH
def test_will_fields_without_will_flag_are_refused(box: Box, version: int) -> None:
    refused(box, version, wire.connect(version, wire.text("a"), will_fields(version)))


@pytest.mark.spec("MQTT-3.1.2-12", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-14", version="3.1.1")
@BOTH
def test_will_qos_is_0_1_or_2(box: Box, version: int) -> None:
    watcher = box.client("w", version)
    watcher.connect()
    watcher.subscribe("will", qos=2)
    for qos in (0, 1, 2):
        peer = box.client("a", version)
        peer.connect(will=Will(b"will", b"", qos))
        peer.lose()
        assert [packet.qos for packet in watcher.publishes()] == [qos]
    refused(box, version, wire.connect(version, wire.text("a"), will_fields(version), flags=CLEAN | WILL | 0x18))


@pytest.mark.spec("MQTT-3.1.2-16", "MQTT-3.1.2-18", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-18", "MQTT-3.1.2-20", version="3.1.1")
@BOTH
def test_user_name_or_password_without_flag_is_refused(box: Box, version: int) -> None:
    refused(box, version, wire.connect(version, wire.text("a"), wire.text("user")))
    both = wire.text("user") + wire.binary(b"secret")
    refused(box, version, wire.connect(version, wire.text("a"), both, flags=CLEAN | USERNAME))


@pytest.mark.spec("MQTT-3.1.2-17", "MQTT-3.1.2-19", version="5.0")
@pytest.mark.spec("MQTT-3.1.2-19", "MQTT-3.1.2-21", version="3.1.1")
@BOTH
def test_flag_without_user_name_or_password_is_refused(box: Box, version: int) -> None:
    refused(box, version, wire.connect(version, wire.text("a"), flags=CLEAN | USERNAME))
    flags = CLEAN | USERNAME | PASSWORD
    refused(box, version, wire.connect(version, wire.text("a"), wire.text("user"), flags=flags))


@pytest.mark.spec("MQTT-3.1.2-22", version="3.1.1")
@OLD
def test_password_without_user_name_is_refused_before_mqtt_5(box: Box, version: int) -> None:
    refused(box, version, wire.connect(version, wire.text("a"), wire.binary(b"secret"), flags=CLEAN | PASSWORD))


@pytest.mark.spec("MQTT-3.1.2-19", version="5.0")
def test_password_without_user_name_is_read_in_mqtt_5(box: Box) -> None:
    peer = box.client("a").open()
    peer.raw(wire.connect(V5, wire.text("a"), wire.binary(b"secret"), flags=CLEAN | PASSWORD) + b"\xc0\x00")
    assert peer.expect(Connack).code == 0
    assert peer.expect(Pingresp)


@pytest.mark.spec("MQTT-3.1.3-1", "MQTT-3.1.3-3", "MQTT-3.1.2-17", "MQTT-3.1.2-19", version="5.0")
@pytest.mark.spec("MQTT-3.1.3-1", "MQTT-3.1.3-3", "MQTT-3.1.2-19", "MQTT-3.1.2-21", version="3.1.1")
@BOTH
def test_payload_is_read_in_its_order(make: MakeBox, version: int) -> None:
    seen: list[tuple[str | None, bytes | None, str]] = []
    box = make(check=lambda *asked: seen.append(asked) or True)
    watcher, peer = box.client("w", version), box.client("a", version).open()
    watcher.connect()
    watcher.subscribe("will")
    flags = CLEAN | WILL | USERNAME | PASSWORD
    fields = [wire.text("id"), will_fields(version), wire.text("user"), wire.binary(b"se\0cret")]
    peer.raw(wire.connect(version, *fields, flags=flags))
    assert seen[-1] == ("user", b"se\0cret", "id")
    peer.lose()
    assert watcher.messages() == [("will", b"gone")]


@pytest.mark.spec("MQTT-3.1.3-3", version="5.0")
@pytest.mark.spec("MQTT-3.1.3-3", version="3.1.1")
@ALL
def test_missing_client_id_is_refused(box: Box, version: int) -> None:
    refused(box, version, wire.connect(version))


@pytest.mark.spec("MQTT-3.1.4-1", version="5.0")
@pytest.mark.spec("MQTT-3.1.4-1", version="3.1.1")
@ALL
@pytest.mark.parametrize("cut", [1, 6, 8, 9, 11, 12])
def test_truncated_connect_is_refused(box: Box, version: int, cut: int) -> None:
    whole = wire.connect(version, wire.text("a"))
    refused(box, version, wire.packet(0x10, whole[2:-1][: min(cut, len(whole) - 3)]))


@pytest.mark.spec("MQTT-3.1.4-1", version="5.0")
@pytest.mark.parametrize(
    "properties",
    [
        wire.props(wire.prop(33, b"\0\0")),  # Receive Maximum 0
        wire.props(wire.prop(39, b"\0\0\0\0")),  # Maximum Packet Size 0
        wire.props(wire.prop(25, b"\2")),  # Request Response Information 2
        wire.props(wire.prop(23, b"\2")),  # Request Problem Information 2
        wire.props(wire.prop(17, wire.u32(1)), wire.prop(17, wire.u32(1))),  # twice
        wire.props(wire.prop(22, wire.binary(b"x"))),  # Authentication Data without a method
        wire.props(wire.prop(35, wire.u16(1))),  # Topic Alias belongs to PUBLISH
    ],
)
def test_wrong_connect_properties_are_refused(box: Box, properties: bytes) -> None:
    refused(box, V5, wire.connect(V5, wire.text("a"), properties=properties))


@pytest.mark.spec("MQTT-3.1.4-2", "MQTT-3.1.4-6", "MQTT-3.2.2-6", "MQTT-3.2.2-7", "MQTT-3.2.2-8", version="5.0")
@pytest.mark.spec("MQTT-3.1.4-5", "MQTT-3.2.2-4", "MQTT-3.2.2-5", version="3.1.1")
@ALL
def test_refused_password_ends_everything(make: MakeBox, version: int) -> None:
    box = make(check=lambda username, password, client_id: password == b"right")
    watcher, thief = box.client("w"), box.client("thief", version)
    watcher.connect()
    watcher.subscribe("#")
    thief.open().send(
        Connect(version, "thief", True, 0, "user", b"wrong", Will(b"will", b"gone")),
        Publish(b"t", b"m"),
        Subscribe(1, [(b"t", 0)]),
        Pingreq(),
    )
    connack = thief.expect(Connack)
    assert connack.code in ((0x86, 0x87) if version == V5 else (4, 5))
    assert not connack.session_present
    assert thief.closed
    assert thief.receive() == []
    assert watcher.messages() == []


@pytest.mark.spec("MQTT-3.1.4-5", version="5.0")
@pytest.mark.spec("MQTT-3.1.4-4", version="3.1.1")
@ALL
def test_packets_may_follow_connect_at_once(box: Box, version: int) -> None:
    peer = box.client("a", version).open()
    peer.send(Connect(version, "a", True), Subscribe(1, [(b"t", 0)]), Publish(b"t", b"m"), Pingreq())
    kinds = [type(packet).__name__ for packet in peer.receive()]
    assert kinds[0] == "Connack"
    assert sorted(kinds[1:]) == ["Pingresp", "Publish", "Suback"]


def test_slow_handshake_is_closed(box: Box) -> None:
    silent, half = box.client("a").open(), box.client("b").open()
    half.raw(wire.connect(V5, wire.text("b"))[:-1])
    box.advance(box.config.limits.connect_timeout_us - SECOND)
    assert not silent.closed
    box.advance(2 * SECOND)
    assert (silent.closed, half.closed) == (True, True)
    assert silent.wire == half.wire == b""


def test_nobody_makes_the_node_buffer_before_connect(make: MakeBox) -> None:
    box = make(limits={"connect_bytes_max": 1_000})
    peer = box.client("a").open()
    peer.raw(wire.connect(V5, wire.text("a" * 2_000))[:1_500])
    assert peer.closed


def test_version_31_is_not_331(box: Box) -> None:
    """MQTT 3.1 keeps its own name; the name of 3.1.1 with level 3 is neither."""
    peer = box.client("a", V31)
    peer.connect()
    peer.send(Pingreq())
    assert peer.take(Pingresp)
