from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.mqtt.encode import encode, encode_ack, forward_properties, property_section, publish_head
from folkmoot.mqtt.packet import V5, V31, V311, Ack, Auth, Connack, Connect, Disconnect, Packet, Publish, Unsuback
from tests.mqtt.cases import VALID, Valid, properties
from tests.mqtt.strategy import publishes


@pytest.mark.parametrize("case", [case for case in VALID if case.canonical], ids=lambda case: case.name)
def test_the_encoder_writes_the_shortest_form(case: Valid) -> None:
    assert encode(case.packet, case.version) == case.data


@pytest.mark.parametrize("case", [case for case in VALID if not case.canonical], ids=lambda case: case.name)
def test_other_forms_are_not_written(case: Valid) -> None:
    data = encode(case.packet, case.version)
    assert data != case.data
    assert len(data) <= len(case.data)


@pytest.mark.parametrize("size", [0, 122, 123, 16_378, 16_379, 2_097_146, 2_097_147])
def test_remaining_lengths_of_all_sizes(size: int) -> None:
    data = encode(Publish(b"abc", bytes(size)), V311)
    remaining = size + 5
    length = b""
    while remaining > 127:
        length += bytes([remaining % 128 + 128])
        remaining //= 128
    assert data[: 1 + len(length) + 1] == b"\x30" + length + bytes([remaining])
    assert len(data) == 2 + len(length) + 5 + size


@pytest.mark.parametrize(
    ("packet", "data"),
    [
        (Ack(4, 1, 0x10, properties(reason="no")), b"\x40\x02\x00\x01"),
        (Unsuback(1, [0x11]), b"\xb0\x02\x00\x01"),
        (Disconnect(0x8B), b"\xe0\x00"),
        (Connack(False, 0, properties(max_qos=1)), b"\x20\x02\x00\x00"),
        (Publish(b"a", b"", properties=properties(content_type="t")), b"\x30\x03\x00\x01a"),
    ],
    ids=repr,
)
def test_before_version_5_codes_and_properties_are_left_out(packet: Packet, data: bytes) -> None:
    assert encode(packet, V311) == data


def test_version_31_has_no_session_present() -> None:
    assert encode(Connack(True, 0), V31) == b"\x20\x02\x00\x00"


def test_empty_properties_are_one_zero_byte() -> None:
    assert encode(Publish(b"a", b"", properties=properties()), V5) == b"\x30\x04\x00\x01a\x00"


@given(publishes(V5), st.sampled_from([V311, V5]))
def test_a_publish_head_and_its_payload_are_the_packet(packet: Publish, version: int) -> None:
    held = packet.properties
    encoded = b""
    if held is not None:
        encoded = forward_properties(held)
        # The rest is not forwarded, and not part of the comparison.
        held.message_expiry = held.topic_alias = None
        held.subscription_ids = []
    head = publish_head(
        packet.topic, packet.qos, packet.retain, packet.dup, packet.packet_id, encoded, len(packet.payload), version
    )
    assert head + packet.payload == encode(packet, version)


def test_forwarded_are_only_the_properties_that_stay_unaltered() -> None:
    held = properties(
        payload_format=1,
        message_expiry=9,
        content_type="t",
        response_topic=b"r",
        correlation_data=b"c",
        subscription_ids=[5],
        topic_alias=3,
        user_properties=[("b", "1"), ("a", "2")],
    )
    expected = b"\x01\x01\x03\x00\x01t\x08\x00\x01r\x09\x00\x01c\x26\x00\x01b\x00\x011\x26\x00\x01a\x00\x012"
    assert forward_properties(held) == expected
    assert property_section(expected) == bytes([len(expected)]) + expected


@pytest.mark.parametrize(("kind", "first"), [(4, 0x40), (5, 0x50), (6, 0x62), (7, 0x70)])
def test_a_plain_ack_is_four_bytes_in_every_version(kind: int, first: int) -> None:
    assert encode_ack(kind, 65_535) == bytes([first, 2, 255, 255])
    for version in (V31, V311, V5):
        assert encode(Ack(kind, 65_535), version) == encode_ack(kind, 65_535)


@pytest.mark.parametrize(
    ("packet", "version"),
    [
        (Auth(), V311),
        (Ack(4, 0), V311),
        (Ack(4, 65_536), V5),
        (Publish(b"a", b"", 1), V311),
        (Publish(b"a", b"", 0, dup=True), V311),
        (Publish(b"a" * 65_536, b""), V311),
        (Connack(True, 0x87), V5),
        (Connack(False, -1), V311),
        (Connect(V311, "c", password=b"p"), V311),
        (Connect(6, "c"), V5),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_nonsense_of_the_caller_is_an_assertion(packet: Packet, version: int) -> None:
    with pytest.raises(AssertionError):
        encode(packet, version)
