from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.framer import Framer
from folkmoot.mqtt.packet import V5
from tests.mqtt.strategy import packets

LIMIT = 268_435_460


def drain(framer: Framer, chunks: list[bytes]) -> tuple[list[tuple[int, bytes]], int | None]:
    """All packets of the chunks, and the code of the error that ended them."""
    got: list[tuple[int, bytes]] = []
    for chunk in chunks:
        try:
            got += framer.feed(chunk)
        except MalformedPacket as error:
            return got, error.code
        if framer.error is not None:
            return got, framer.error.code
    return got, None


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:stop] for start, stop in pairwise(places)]


def test_packets_are_cut_where_they_end() -> None:
    assert Framer(LIMIT).feed(b"\xc0\x00\x30\x03\x00\x01a\xe0\x00") == [
        (0xC0, b""),
        (0x30, b"\x00\x01a"),
        (0xE0, b""),
    ]


def test_a_packet_may_come_byte_by_byte() -> None:
    framer = Framer(LIMIT)
    data = b"\x30\x80\x01" + bytes(range(128))
    for at in range(len(data) - 1):
        assert framer.feed(data[at : at + 1]) == []
    assert framer.feed(data[-1:]) == [(0x30, bytes(range(128)))]
    assert framer.pending_bytes() == 0


def test_nothing_is_held_for_an_announced_length() -> None:
    framer = Framer(LIMIT)
    assert framer.feed(b"\x30\xff\xff\xff\x7fabc") == []
    assert framer.pending_bytes() == 3


@given(st.lists(packets(V5), max_size=6), st.lists(st.integers(0, 10_000), max_size=12), st.binary(max_size=4))
def test_any_split_gives_the_same_packets_and_the_same_error(sent: list[object], cuts: list[int], tail: bytes) -> None:
    data = b"".join(encode(packet, V5) for packet in sent) + tail  # type: ignore[arg-type]
    whole = drain(Framer(400), [data])
    assert drain(Framer(400), split(data, cuts)) == whole
    assert drain(Framer(400), [data[at : at + 1] for at in range(len(data))]) == whole


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_any_split_of_noise_gives_the_same(data: bytes, cuts: list[int]) -> None:
    assert drain(Framer(100), split(data, cuts)) == drain(Framer(100), [data])


@pytest.mark.parametrize(
    "head", [b"\x30\x80\x00", b"\x30\x80\x80\x00", b"\x30\x80\x80\x80\x80", b"\x30\xff\xff\xff\xff\x7f"]
)
def test_a_remaining_length_must_be_minimal_and_short(head: bytes) -> None:
    with pytest.raises(MalformedPacket) as caught:
        Framer(LIMIT).feed(head)
    assert caught.value.code == 0x81


def test_the_limit_counts_the_whole_packet() -> None:
    assert Framer(10).feed(b"\x30\x0812345678") == [(0x30, b"12345678")]
    with pytest.raises(MalformedPacket) as caught:
        Framer(9).feed(b"\x30\x08")
    assert caught.value.code == 0x95


def test_packets_before_an_error_are_not_lost() -> None:
    framer = Framer(9)
    assert framer.feed(b"\xc0\x00\x30\x7f") == [(0xC0, b"")]
    assert framer.error is not None
    assert framer.error.code == 0x95
    for _ in range(2):
        with pytest.raises(MalformedPacket):
            framer.feed(b"\xc0\x00")


def test_the_limit_may_change_between_packets() -> None:
    framer = Framer(9)
    framer.packet_bytes_max = 100
    assert framer.feed(b"\x30\x0a0123456789") == [(0x30, b"0123456789")]


def test_the_largest_packet_in_small_chunks_costs_linear_memory() -> None:
    framer = Framer(LIMIT)
    size = 4_000_000
    head = encode_head(size)
    chunk = b"x" * 1000
    assert framer.feed(head) == []
    for _ in range(size // len(chunk) - 1):
        assert framer.feed(chunk) == []
    assert framer.pending_bytes() == size - len(chunk)
    assert framer.feed(chunk + b"\xc0\x00") == [(0x30, b"x" * size), (0xC0, b"")]


def encode_head(size: int) -> bytes:
    return bytes([0x30, size % 128 | 128, size // 128 % 128 | 128, size // 16_384 % 128 | 128, size // 2_097_152])
