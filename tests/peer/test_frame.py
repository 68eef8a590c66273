"""Frames: cut out of any chunks, bounded before their bytes have come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.kernel.pack import get_varint
from folkmoot.peer.frame import DATA, MALFORMED, NONE, FrameReader, data_frame, frame, message_head

BODIES = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=50)), max_size=10)


def read(reader: FrameReader, data: bytes) -> list[tuple[int, bytes]]:
    found = []
    reader.feed(data)
    while (pos := reader.next()) >= 0:
        found.append((reader.data[pos], reader.data[pos + 1 : reader.stop]))
    assert pos in (NONE, MALFORMED)
    return found


@given(BODIES, st.lists(st.integers(1, 40), min_size=1, max_size=10))
def test_frames_come_out_as_they_went_in_whatever_the_chunks(bodies: list[tuple[int, bytes]], sizes: list[int]) -> None:
    data = b"".join([frame(kind, body) for kind, body in bodies])
    assert read(FrameReader(51), data) == bodies
    reader = FrameReader(51)
    found: list[tuple[int, bytes]] = []
    start = turn = 0
    while start < len(data):
        size = sizes[turn % len(sizes)]
        found += read(reader, data[start : start + size])
        start += size
        turn += 1
    assert found == bodies
    assert reader.held_bytes() == 0


@pytest.mark.parametrize("chunk", [1, 2, 1000])
def test_a_frame_that_is_too_long_is_known_by_its_length(chunk: int) -> None:
    data = frame(DATA, b"12345")
    reader = FrameReader(5)
    for start in range(0, 4, chunk):
        reader.feed(data[start : min(start + chunk, 4)])
        last = reader.next()
    assert last == MALFORMED
    assert read(FrameReader(6), data) == [(DATA, b"12345")]


def test_a_frame_without_a_kind_is_malformed() -> None:
    reader = FrameReader(100)
    reader.feed(bytes(4))
    assert reader.next() == MALFORMED


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 255, 256, 16_383, 16_384, 70_000, 1 << 21, 1 << 28])
def test_the_head_of_a_message_is_its_kind_and_its_length(size: int) -> None:
    head = message_head(40, size)
    assert head[0] == 40
    assert get_varint(head, 1) == (size, len(head))


def test_a_data_frame_is_laid_out_as_written() -> None:
    made = data_frame(DATA, 7, 9, [b"", b"ab", b"c"], 3)
    assert made == (20).to_bytes(4, "big") + bytes([DATA]) + (7).to_bytes(8, "big") + (9).to_bytes(8, "big") + b"abc"
