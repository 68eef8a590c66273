from __future__ import annotations

import pytest

from folkmoot.mqtt.decode import decode_properties
from folkmoot.mqtt.encode import (
    encode_message_expiry,
    encode_properties,
    encode_subscription_id,
    encode_topic_alias,
)
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.packet import Properties
from folkmoot.mqtt.property import allowed_in, property_name
from tests.mqtt.cases import field, properties, section

TEXT = field(b"t")
# Table 2-4 of MQTT 5.0 once more, from the page: identifier, a value, the packets (0 is the will).
TABLE: list[tuple[int, bytes, set[int]]] = [
    (1, b"\x01", {0, 3}),
    (2, b"\x00\x00\x00\x01", {0, 3}),
    (3, TEXT, {0, 3}),
    (8, TEXT, {0, 3}),
    (9, TEXT, {0, 3}),
    (11, b"\x01", {3, 8}),
    (17, b"\x00\x00\x00\x01", {1, 2, 14}),
    (18, TEXT, {2}),
    (19, b"\x00\x01", {2}),
    (21, TEXT, {1, 2, 15}),
    (22, TEXT, {1, 2, 15}),
    (23, b"\x01", {1}),
    (24, b"\x00\x00\x00\x01", {0}),
    (25, b"\x01", {1}),
    (26, TEXT, {2}),
    (28, TEXT, {2, 14}),
    (31, TEXT, {2, 4, 5, 6, 7, 9, 11, 14, 15}),
    (33, b"\x00\x01", {1, 2}),
    (34, b"\x00\x01", {1, 2}),
    (35, b"\x00\x01", {3}),
    (36, b"\x01", {2}),
    (37, b"\x01", {2}),
    (38, TEXT + TEXT, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15}),
    (39, b"\x00\x00\x00\x01", {1, 2}),
    (40, b"\x01", {2}),
    (41, b"\x01", {2}),
    (42, b"\x01", {2}),
]
IDENTIFIERS = {row[0] for row in TABLE}


def code_of(data: bytes, kind: int) -> int:
    with pytest.raises(MalformedPacket) as caught:
        decode_properties(data, 0, kind)
    return caught.value.code


def test_the_specification_has_27_properties() -> None:
    assert len(TABLE) == len(IDENTIFIERS) == 27
    assert all(not property_name(identifier).startswith("property") for identifier in IDENTIFIERS)


@pytest.mark.parametrize(("identifier", "value", "kinds"), TABLE)
def test_each_property_in_each_packet(identifier: int, value: bytes, kinds: set[int]) -> None:
    data = section(bytes([identifier]), value)
    for kind in range(16):
        assert allowed_in(identifier, kind) == (kind in kinds)
        if kind in kinds:
            held, stop = decode_properties(data, 0, kind)
            assert held is not None
            assert len(held.fields()) == 1
            assert stop == len(data)
            assert encode_properties(held) == data
        else:
            assert code_of(data, kind) == 0x81


@pytest.mark.parametrize(("identifier", "value", "kinds"), TABLE)
def test_each_property_twice(identifier: int, value: bytes, kinds: set[int]) -> None:
    data = section((bytes([identifier]) + value) * 2)
    for kind in sorted(kinds):
        if identifier == 38 or (identifier, kind) == (11, 3):
            assert decode_properties(data, 0, kind)[1] == len(data)
        else:
            assert code_of(data, kind) == 0x82


@pytest.mark.parametrize(("identifier", "value", "kinds"), TABLE)
def test_each_property_cut(identifier: int, value: bytes, kinds: set[int]) -> None:
    for size in range(len(value)):
        # The rest of the value follows, but outside the section.
        data = section(bytes([identifier]), value[:size]) + value[size:]
        assert code_of(data, min(kinds)) == 0x81


@pytest.mark.parametrize("identifier", sorted(set(range(256)) - IDENTIFIERS))
def test_unknown_identifiers(identifier: int) -> None:
    for kind in range(16):
        assert code_of(section(bytes([identifier]), b"\x00"), kind) == 0x81


@pytest.mark.parametrize("identifier", [1, 23, 25, 36, 37, 40, 41, 42])
def test_one_byte_values_are_0_or_1(identifier: int) -> None:
    kind = 3 if identifier == 1 else 1 if identifier in (23, 25) else 2
    for value in (0, 1):
        assert decode_properties(section(bytes([identifier, value])), 0, kind)[1] == 3
    for value in (2, 255):
        assert code_of(section(bytes([identifier, value])), kind) == 0x82


def test_the_section_is_read_inside_a_packet() -> None:
    held, stop = decode_properties(b"xx" + section(b"\x1f" + TEXT) + b"yy", 2, 4)
    assert held == properties(reason="t")
    assert stop == 7


def test_no_properties() -> None:
    assert decode_properties(b"\x00rest", 0, 3) == (None, 1)
    assert encode_properties(None) == encode_properties(Properties()) == b"\x00"


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x00", b"\x05\x01\x00", b"\xff\xff\xff\xff"])
def test_a_bad_section_length(data: bytes) -> None:
    assert code_of(data, 3) == 0x81


def test_user_properties_keep_their_order() -> None:
    pairs = [("b", "1"), ("a", "2"), ("b", "1"), ("", "")]
    data = encode_properties(properties(user_properties=pairs))
    held, _ = decode_properties(data, 0, 3)
    assert held is not None
    assert held.user_properties == pairs


def test_the_properties_that_differ_by_receiver() -> None:
    data = encode_message_expiry(7) + encode_topic_alias(9) + encode_subscription_id(300) + encode_subscription_id(1)
    held, _ = decode_properties(section(data), 0, 3)
    assert held == properties(message_expiry=7, topic_alias=9, subscription_ids=[300, 1])


def test_shown_are_only_the_properties_that_are_there() -> None:
    assert repr(properties(topic_alias=1, reason="x")) == "Properties(reason='x', topic_alias=1)"
