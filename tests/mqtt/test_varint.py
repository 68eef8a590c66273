from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.mqtt.varint import INCOMPLETE, MALFORMED, VARINT_MAX, decode_varint, encode_varint, varint_size

# Table 1-1 of MQTT 5.0: the borders.
BORDERS = [
    (0, b"\x00"),
    (127, b"\x7f"),
    (128, b"\x80\x01"),
    (16_383, b"\xff\x7f"),
    (16_384, b"\x80\x80\x01"),
    (2_097_151, b"\xff\xff\x7f"),
    (2_097_152, b"\x80\x80\x80\x01"),
    (268_435_455, b"\xff\xff\xff\x7f"),
]


@pytest.mark.parametrize(("value", "data"), BORDERS)
def test_the_borders_of_the_specification(value: int, data: bytes) -> None:
    assert encode_varint(value) == data
    assert decode_varint(data, 0) == (value, len(data))
    assert varint_size(value) == len(data)


@given(st.integers(0, VARINT_MAX), st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_inside_other_bytes(value: int, before: bytes, behind: bytes) -> None:
    data = encode_varint(value)
    assert decode_varint(before + data + behind, len(before)) == (value, len(before) + len(data))


@given(st.integers(128, VARINT_MAX))
def test_a_cut_integer_is_incomplete(value: int) -> None:
    data = encode_varint(value)
    for stop in range(len(data)):
        assert decode_varint(b"x" + data[:stop], 1) == (INCOMPLETE, 1)


@pytest.mark.parametrize("data", [b"\x80\x00", b"\xff\x80\x00", b"\x80\x80\x80\x00", b"\x80\x80\x80\x80", b"\xff" * 5])
def test_padded_and_long_integers_are_malformed(data: bytes) -> None:
    assert decode_varint(data, 0) == (MALFORMED, 0)


def test_too_large_a_value_is_an_assertion() -> None:
    with pytest.raises(AssertionError):
        encode_varint(VARINT_MAX + 1)
