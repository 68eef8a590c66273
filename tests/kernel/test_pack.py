"""Fixed-width integers and varints: known encodings, round trips, what too short bytes do."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.kernel.pack import U16, get_u16, get_u32, get_u64, get_varint, u16, u32, u64, varint

# Unsigned LEB128: figure 22 of the DWARF 4 standard (section 7.6), and the example of Wikipedia's article.
LEB128 = {2: "02", 127: "7f", 128: "8001", 129: "8101", 130: "8201", 12857: "b964", 624485: "e58e26", 0: "00"}


@pytest.mark.parametrize(("value", "encoded"), LEB128.items())
def test_varints_are_leb128(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded
    assert get_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(st.integers(0, 2**70), st.binary(max_size=4), st.binary(max_size=4))
def test_a_varint_is_read_where_it_stands(value: int, before: bytes, after: bytes) -> None:
    encoded = varint(value)
    assert get_varint(before + encoded + after, len(before)) == (value, len(before) + len(encoded))
    assert len(encoded) == max(1, -(-value.bit_length() // 7))


@given(st.integers(0, 2**70))
def test_a_varint_that_ends_too_early_is_an_index_error(value: int) -> None:
    encoded = varint(value)
    for cut in range(len(encoded)):
        with pytest.raises(IndexError):
            get_varint(encoded[:cut], 0)


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF_FFFF), st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_integers_are_big_endian(small: int, middle: int, large: int, before: bytes) -> None:
    assert u16(small) == U16[small] == struct.pack(">H", small)
    assert u32(middle) == struct.pack(">I", middle)
    assert u64(large) == struct.pack(">Q", large)
    data = before + u16(small) + u32(middle) + u64(large)
    at = len(before)
    assert (get_u16(data, at), get_u32(data, at + 2), get_u64(data, at + 6)) == (small, middle, large)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_packed_integers_sort_like_the_integers(values: list[int]) -> None:
    assert sorted(map(u64, values)) == [u64(value) for value in sorted(values)]


def test_the_table_has_every_16_bit_integer() -> None:
    assert len(U16) == 65_536
    assert U16[0] == b"\0\0"
    assert U16[65_535] == b"\xff\xff"
