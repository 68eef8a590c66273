"""Frames of the commit log: what goes in comes out, and nothing else passes for a frame."""

from __future__ import annotations

from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.store.batch import DELETE, DELETE_RANGE, PUT, Batch
from folkmoot.store.segment import HEADER_BYTES, encode_frame, frame_end, is_durable, operations

KEYS = st.binary(min_size=1, max_size=300)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just(PUT), KEYS, st.binary(max_size=300)),
        st.tuples(st.just(DELETE), KEYS, st.just(b"")),
        st.tuples(st.just(DELETE_RANGE), KEYS, KEYS),
    ),
    max_size=5,
)


def batch_of(ops: list[tuple[int, bytes, bytes]]) -> Batch:
    batch = Batch(1)
    batch.ops.extend(ops)
    return batch


def test_the_checksum_is_the_one_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283, "the check value of CRC-32C (RFC 3720, B.4; the Rocksoft model)"


@given(st.lists(OPERATIONS, max_size=4), st.integers(0, 2**63), st.binary(max_size=40))
def test_a_frame_is_read_as_it_was_written(
    groups: list[list[tuple[int, bytes, bytes]]], at: int, before: bytes
) -> None:
    frame = encode_frame([batch_of(ops) for ops in groups], at, at)
    data = before + frame
    end = frame_end(data, len(before), at)
    assert end == len(data)
    assert operations(data, len(before), end) == [one for ops in groups for one in ops]


@given(OPERATIONS, st.data())
def test_no_changed_or_shortened_frame_is_valid(ops: list[tuple[int, bytes, bytes]], data: st.DataObject) -> None:
    frame = encode_frame([batch_of(ops)], 1000, 900)
    at = data.draw(st.integers(0, len(frame) - 1))
    changed = bytearray(frame)
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    assert frame_end(bytes(changed), 0, 1000) == -1
    assert frame_end(frame[:at], 0, 1000) == -1
    assert frame_end(frame, 0, 1001) == -1, "it belongs at another position"


def test_zeros_are_no_frame() -> None:
    assert frame_end(bytes(4096), 0, 0) == -1


def test_a_frame_behind_tells_whether_lost_bytes_had_been_durable() -> None:
    base = 5000
    first = encode_frame([batch_of([(PUT, b"k", b"v" * 50)])], base, base)
    second = base + len(first)
    lost = bytes(first[:HEADER_BYTES]) + bytes(len(first) - HEADER_BYTES)  # its body is a page of zeros
    knows = encode_frame([], second, second)
    assert is_durable(lost + knows, 0, base)
    unaware = encode_frame([], second, base)
    assert not is_durable(lost + unaware, 0, base), "nothing was acknowledged of either"
    assert not is_durable(lost, 0, base)
    elsewhere = encode_frame([], second + 1, second + 1)
    assert not is_durable(lost + elsewhere, 0, base), "an older use of the same blocks"
    assert is_durable(lost + b"\xf1FMl" + knows[:10] + b"\xf1" + bytes(3), 0, base) is False
    shifted = encode_frame([], second + 7, second)
    assert is_durable(lost + b"garbage" + shifted, 0, base)
