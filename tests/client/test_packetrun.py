"""Runs of packets in a chunk: the same as a walk from packet to packet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.client.packetrun import MALFORMED, column, find_packet_end, measure_run, reply_to_ids
from folkmoot.client.template import PUBACK, PUBCOMP, PUBREL, MessageLayout

LAYOUT = MessageLayout(4, 3, 1, 12)
LONG = MessageLayout(4, 3, 1, 13)

# Packets that share a first byte, a length or an id byte with those of the run.
PACKETS = st.sampled_from(
    [
        LAYOUT.message(b"t/1", 1, 0, 0),
        LAYOUT.message(b"t/1", 0x3232, 0x32, 0x3232),
        LONG.message(b"t/1", 2, 0, 0),
        PUBACK + b"\x32\x13",
        PUBREL + b"\x62\x02",
        PUBCOMP + b"\x00\x01",
    ]
)


def walked_run(packets: list[bytes], head: bytes, stride: int) -> int:
    run = 0
    for packet in packets:
        if len(packet) != stride or not packet.startswith(head):
            break
        run += 1
    return run


@given(st.lists(PACKETS, max_size=30), st.integers(0, 40))
def test_a_run_ends_where_a_walk_ends(packets: list[bytes], cut: int) -> None:
    """A chunk may end within a packet: that one is no part of the run."""
    data = b"".join(packets)
    data = data[: max(len(data) - cut, 0)]
    whole: list[bytes] = []
    for packet in packets:
        if len(b"".join(whole)) + len(packet) > len(data):
            break
        whole.append(packet)
    assert measure_run(data, 0, LAYOUT.stride, LAYOUT.head) == walked_run(whole, LAYOUT.head, LAYOUT.stride)
    assert measure_run(data, 0, 4, PUBREL) == walked_run(whole, PUBREL, 4)


@given(st.lists(st.integers(1, 65_535), min_size=1, max_size=50), st.binary(max_size=9))
def test_replies_carry_the_ids_of_the_run(ids: list[int], before: bytes) -> None:
    run = b"".join(LAYOUT.message(b"t/1", number, 0, 0) for number in ids)
    expected = b"".join(PUBACK + number.to_bytes(2, "big") for number in ids)
    assert reply_to_ids(PUBACK, before + run, len(before), LAYOUT.id_at, len(ids), LAYOUT.stride) == expected


def test_a_column_is_one_byte_of_each_packet() -> None:
    assert column(b"..abcabcabc", 2, 1, 2, 3) == b"bb"


@given(st.integers(0, 268_435_455))
def test_the_end_of_a_packet_is_found_as_soon_as_its_length_is_there(length: int) -> None:
    head = b"\x30"
    rest = length
    while rest > 127:
        head += bytes([rest & 127 | 128])
        rest >>= 7
    head += bytes([rest])
    body = bytes(min(length, 1000))
    data = b"xx" + head + body
    assert find_packet_end(data, 2) == (len(data) if length <= 1000 else 0)
    assert [find_packet_end(data[:cut], 2) for cut in range(2, 2 + len(head))] == [0] * len(head)


def test_a_length_of_five_bytes_is_malformed() -> None:
    assert find_packet_end(b"\x30\xff\xff\xff\xff\x01", 0) == MALFORMED
