"""The packets of load clients, read by the project's codec, which was written apart from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.client import template
from folkmoot.client.template import MessageLayout, MessageRing
from folkmoot.mqtt.decode import decode
from folkmoot.mqtt.framer import Framer
from folkmoot.mqtt.packet import Ack, Connect, Disconnect, Packet, Publish, Subscribe

VERSIONS = pytest.mark.parametrize("version", [4, 5])


def packets(data: bytes, version: int) -> list[Packet]:
    return [decode(first, body, version) for first, body in Framer(1 << 28).feed(data)]


@VERSIONS
def test_connect_says_what_it_was_asked_to(version: int) -> None:
    data = template.connect_packet(
        version, "bench-1", clean=False, keep_alive_s=300, session_expiry_s=3600, username="u", password="p"
    )
    (packet,) = packets(data, version)
    assert isinstance(packet, Connect)
    assert (packet.version, packet.client_id, packet.clean_start, packet.keep_alive_s) == (
        version,
        "bench-1",
        False,
        300,
    )
    assert (packet.username, packet.password) == ("u", b"p")
    assert (packet.properties.session_expiry if packet.properties else None) == (3600 if version == 5 else None)


@VERSIONS
def test_subscribe_and_disconnect(version: int) -> None:
    data = template.subscribe_packet(version, 7, b"bench/+", 2) + template.disconnect_packet()
    subscribe, disconnect = packets(data, version)
    assert isinstance(subscribe, Subscribe)
    assert (subscribe.packet_id, subscribe.entries) == (7, [(b"bench/+", 2)])
    assert isinstance(disconnect, Disconnect)
    assert disconnect.code == 0


@given(
    version=st.sampled_from([4, 5]),
    qos=st.integers(0, 2),
    topic=st.binary(min_size=1, max_size=20).map(lambda raw: raw.hex().encode()),
    payload_bytes=st.integers(template.PAYLOAD_BYTES_MIN, 20_000),
    source=st.integers(0, 65_535),
)
def test_a_message_is_where_its_layout_says(
    version: int, qos: int, topic: bytes, payload_bytes: int, source: int
) -> None:
    layout = MessageLayout(version, len(topic), qos, payload_bytes)
    data = layout.message(topic, 0x1234, 200, source)
    (packet,) = packets(data, version)
    assert isinstance(packet, Publish)
    assert (packet.topic, packet.qos, packet.retain, packet.dup) == (topic, qos, False, False)
    assert len(packet.payload) == payload_bytes
    assert len(data) == layout.stride
    assert packet.packet_id == (0x1234 if qos else 0)
    if qos:
        assert data[layout.id_at : layout.id_at + 2] == b"\x12\x34"
    assert (data[layout.mark_at], data[layout.sequence_at]) == (0, 200)
    assert int.from_bytes(data[layout.source_at : layout.source_at + 2], "big") == source


@given(window=st.integers(1, 300), start=st.integers(0, 100_000), share=st.floats(0, 1))
def test_a_slice_of_the_ring_is_consecutive_messages(window: int, start: int, share: float) -> None:
    ring = MessageRing(MessageLayout(4, 1, 1, 12), b"t", 0, window)
    count = int(share * window)
    found = packets(ring.slice(start, count), 4)
    assert [packet.packet_id for packet in found if isinstance(packet, Publish)] == [
        (start + n) % ring.size + 1 for n in range(count)
    ]
    # Twice the window: no packet id is in use twice while at most a window is outstanding.
    assert ring.size >= 2 * window
    at = start % ring.size
    seen = bytes(packet.payload[1] for packet in found if isinstance(packet, Publish))
    assert seen == ring.expected[at : at + count]


def test_only_the_messages_whose_turn_it_is_carry_the_time() -> None:
    ring = MessageRing(MessageLayout(4, 1, 0, 20), b"t", 0, 50)
    data = ring.stamped(100, 40, 7, 105, 0x0102030405060708)
    layout = ring.layout
    marks = data[layout.mark_at :: layout.stride]
    assert [100 + n for n, mark in enumerate(marks) if mark] == [105, 112, 119, 126, 133]
    start = 5 * layout.stride + layout.stamp_at
    assert data[start : start + 8] == bytes(range(1, 9))
    assert len(data) == 40 * layout.stride
    assert b"\x01" not in ring.slice(100, 40)[layout.mark_at :: layout.stride], "the ring itself stays unmarked"


def test_the_acknowledgements_of_a_ring() -> None:
    acks = packets(template.ack_ring(template.PUBREL, 300), 5)
    assert [ack.packet_id for ack in acks if isinstance(ack, Ack)] == [*range(1, 301), *range(1, 301)]


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("payload_bytes", [12, 64, 500])
def test_retained_messages_and_their_removal_name_the_same_topics(version: int, qos: int, payload_bytes: int) -> None:
    layout = MessageLayout(version, len(b"keep/000000"), qos, payload_bytes, retain=True)
    for empty in (False, True):
        found = packets(b"".join(template.retained_messages(layout, b"keep/", 3, empty=empty)), version)
        publishes = [packet for packet in found if isinstance(packet, Publish)]
        assert [packet.topic for packet in publishes] == [b"keep/000000", b"keep/000001", b"keep/000002"]
        assert all(packet.retain and packet.qos == qos for packet in publishes)
        assert {len(packet.payload) for packet in publishes} == ({0} if empty else {payload_bytes})
