from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.mqtt.connect import without_password
from folkmoot.mqtt.decode import connect_level, decode
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.packet import V5, V311, Connect, Packet, Publish
from tests.mqtt.cases import INVALID, VALID, Invalid, Valid, field, packet
from tests.mqtt.strategy import connects, garbage, packets, versions


def case_id(case: Valid | Invalid) -> str:
    return f"{case.name} ({case.version})"


def outcome(first: int, body: bytes, version: int) -> Packet | int:
    """The packet, or the code of the error; any other exception is a failure."""
    try:
        return decode(first, body, version)
    except MalformedPacket as error:
        return error.code


@pytest.mark.parametrize("case", VALID, ids=case_id)
def test_a_legal_packet_says_what_it_means(case: Valid) -> None:
    got = decode(case.data[0], case.data[2:], case.version)
    assert got == case.packet
    assert repr(got) == repr(case.packet)


@pytest.mark.parametrize("case", INVALID, ids=case_id)
def test_an_illegal_packet_is_refused_with_its_code(case: Invalid) -> None:
    with pytest.raises(MalformedPacket) as caught:
        decode(case.data[0], case.data[2:], case.version)
    assert (caught.value.code, caught.value.text != "") == (case.code, True)


def test_names_of_cases_are_unique() -> None:
    names = [case_id(case) for case in VALID] + [case_id(case) for case in INVALID]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", [case for case in VALID if case.version == V5], ids=case_id)
def test_every_cut_of_a_packet_is_refused_or_a_shorter_packet(case: Valid) -> None:
    for stop in range(2, len(case.data)):
        got = outcome(case.data[0], case.data[2:stop], case.version)
        assert got in (0x81, 0x82) if isinstance(got, int) else got != case.packet or not case.canonical


def test_a_connect_brings_its_own_version() -> None:
    body = b"\x00\x04MQTT\x05\x02\x00\x00\x00" + field(b"c")
    for version in (0, V311, V5):
        got = decode(0x10, body, version)
        assert isinstance(got, Connect)
        assert got.version == V5


@pytest.mark.parametrize(
    ("body", "level"),
    [
        (b"\x00\x04MQTT\x05garbage", 5),
        (b"\x00\x04MQTT\x04", 4),
        (b"\x00\x04MQTT\x09", 9),
        (b"\x00\x04MQTT\x00", 1),
        (b"\x00\x06MQIsdp\x03", 3),
        (b"\x00\x04MQTT", 0),
        (b"\x00\x06MQIsdp", 0),
        (b"\x00\x04HTTP\x05", 0),
        (b"", 0),
    ],
)
def test_the_level_that_a_refused_connect_claims(body: bytes, level: int) -> None:
    assert connect_level(body) == level


def test_the_longest_topic() -> None:
    topic = b"a" * 65_535
    got = decode(0x30, field(topic) + b"x", V311)
    assert got == Publish(topic, b"x")


@given(versions.flatmap(lambda version: st.tuples(st.just(version), packets(version))))
@settings(max_examples=300)
def test_what_is_encoded_decodes_to_the_same_packet(pair: tuple[int, Packet]) -> None:
    version, sent = pair
    data = encode(sent, version)
    start = 2
    while data[start - 1] >= 128:
        start += 1
    assert decode(data[0], data[start:], version) == sent


@given(garbage())
@settings(max_examples=500)
def test_garbage_is_refused_or_understood_the_same_again(noise: tuple[int, bytes, int]) -> None:
    first, body, version = noise
    got = outcome(first, body, version)
    if isinstance(got, int):
        assert got in (0x81, 0x82, 0x84, 0x90, 0x94)
        return
    if isinstance(got, Connect):
        version = got.version
    again = encode(got, version)
    start = 2
    while again[start - 1] >= 128:
        start += 1
    assert decode(again[0], again[start:], version) == got


def test_a_password_is_not_shown() -> None:
    got = decode(0x10, packet(0, b"\x00\x04MQTT\x04\xc2\x00\x00", field(b"c"), field(b"u"), field(b"secret"))[2:], V311)
    assert "secret" not in repr(got)
    assert "username='u'" in repr(got)


@given(connects())
def test_a_connect_without_its_password_is_the_same_otherwise(connect: Connect) -> None:
    data = encode(connect, connect.version)
    start = 2
    while data[start - 1] >= 128:
        start += 1
    bare = decode(0x10, without_password(data[start:], connect), connect.version)
    connect.password = None
    assert bare == connect
