"""PUBLISH as it goes out: every variant, read back by the codec as a client would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.mqtt.decode import decode
from folkmoot.mqtt.encode import forward_properties
from folkmoot.mqtt.packet import V5, V31, V311, Properties, Publish
from folkmoot.session.connection import Connection, PeerInfo
from folkmoot.session.subscription import encode_identifier
from folkmoot.session.wire import put_publish
from folkmoot.store.message import Message
from tests.harness.peer import properties
from tests.harness.wire import split

NOW = 1_000_000 * SECOND
TOPICS = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=300).map(str.encode)
FORWARDED = [None, properties(content_type="text/plain", user_properties=[("a", "b"), ("a", "")], payload_format=1)]


def connection(version: int, alias_max: int = 0, packet_max: int = NEVER) -> tuple[Connection, list[Connection]]:
    outputs: list[Connection] = []
    made = Connection(1, None, PeerInfo("tcp", "192.0.2.1:1"), NOW, outputs)
    made.version, made.v5 = version, version == V5
    made.packet_bytes_max = packet_max
    if alias_max:
        made.alias_out, made.alias_out_max = {}, alias_max
    return made, outputs


def message(topic: bytes, payload: bytes, forwarded: Properties | None = None, expires_us: int = 0) -> Message:
    encoded = b"" if forwarded is None else forward_properties(forwarded)
    return Message(topic, payload, 1, False, encoded, "p", NOW, expires_us)


def taken(made: Connection) -> list[Publish]:
    """What a client reads of the output."""
    size = made.out_bytes
    data = made.take_output()
    assert len(data) == size, "the bytes that were counted are the bytes that were put"
    packets, rest = split(data)
    assert rest == b""
    read = [decode(first, body, made.version) for first, body in packets]
    assert all(isinstance(packet, Publish) for packet in read)
    return [packet for packet in read if isinstance(packet, Publish)]


@given(
    version=st.sampled_from([V31, V311, V5]),
    topic=TOPICS,
    payload=st.one_of(
        st.binary(max_size=20), st.sampled_from([bytes(size) for size in (100, 127, 128, 16_300, 20_000)])
    ),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    dup=st.booleans(),
    packet_id=st.integers(1, 65_535),
    identifiers=st.lists(st.integers(1, 268_435_455), max_size=3),
    forwarded=st.sampled_from(FORWARDED),
    left_us=st.one_of(st.just(0), st.integers(1, 10**12)),
    alias_max=st.integers(0, 2),
)
def test_every_variant_is_read_as_it_was_meant(
    version: int,
    topic: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    identifiers: list[int],
    forwarded: Properties | None,
    left_us: int,
    alias_max: int,
) -> None:
    made, outputs = connection(version, alias_max if version == V5 else 0)
    dup = dup and qos > 0
    text = b"".join([encode_identifier(identifier) for identifier in identifiers])
    sent = message(topic, payload, forwarded, NOW + left_us if left_us else 0)
    for _ in range(2):  # the second time from what the message remembers, or by the alias
        assert put_publish(made, sent, qos, retain, dup, packet_id, text, NOW)
    assert outputs == [made]
    first, second = taken(made)
    for packet in (first, second):
        assert (packet.payload, packet.qos, packet.retain, packet.dup) == (payload, qos, retain, dup)
        assert packet.packet_id == (packet_id if qos else 0)
        if version != V5:
            assert packet.topic == topic
            continue
        read = packet.properties if packet.properties is not None else Properties()
        assert read.subscription_ids == identifiers
        assert read.message_expiry == (-(-left_us // SECOND) if left_us else None)
        expected = forwarded if forwarded is not None else Properties()
        assert read.user_properties == expected.user_properties
        assert (read.content_type, read.payload_format) == (expected.content_type, expected.payload_format)
        assert read.topic_alias == (1 if alias_max else None)
    assert first.topic == topic
    assert second.topic == (b"" if alias_max and version == V5 else topic)


@given(
    st.lists(st.tuples(st.sampled_from([V31, V311, V5]), st.integers(0, 2), st.booleans(), st.booleans()), max_size=12)
)
def test_one_message_for_many_connections_is_right_for_each(variants: list[tuple[int, int, bool, bool]]) -> None:
    """The encoding that it remembers is used for the same variant only."""
    sent = message(b"t", b"payload", FORWARDED[1])
    for version, qos, retain, dup in variants:
        made, _ = connection(version)
        put_publish(made, sent, qos, retain, dup and qos > 0, 7, b"", NOW)
        (packet,) = taken(made)
        assert (packet.qos, packet.retain, packet.dup, packet.payload) == (qos, retain, dup and qos > 0, b"payload")
        assert (packet.properties is not None) is (version == V5)


def test_aliases_are_given_to_the_first_topics_and_then_no_more() -> None:
    made, _ = connection(V5, alias_max=2)
    for topic in (b"a", b"b", b"c", b"a", b"c", b"b"):
        put_publish(made, message(topic, b""), 0, False, False, 0, b"", NOW)
    seen = []
    for packet in taken(made):
        alias = packet.properties.topic_alias if packet.properties is not None else None
        seen.append((packet.topic, alias))
    assert seen == [(b"a", 1), (b"b", 2), (b"c", None), (b"", 1), (b"c", None), (b"", 2)]


@pytest.mark.parametrize(
    ("left_us", "seconds"),
    [(1, 1), (SECOND - 1, 1), (SECOND, 1), (SECOND + 1, 2), (10**19, 0xFFFF_FFFF), (0, 1), (-5, 1)],
)
def test_what_is_left_of_the_expiry_is_rounded_up_and_never_0(left_us: int, seconds: int) -> None:
    """An expired message that must be sent again says that its last second runs."""
    made, _ = connection(V5)
    put_publish(made, message(b"t", b"", expires_us=NOW + left_us), 1, False, True, 1, b"", NOW)
    (packet,) = taken(made)
    assert packet.properties is not None
    assert packet.properties.message_expiry == seconds


@given(
    st.sampled_from([V311, V5]),
    st.integers(0, 2),
    st.integers(0, 200),
    st.integers(1, 300),
    st.booleans(),
    st.booleans(),
)
def test_a_packet_beyond_the_clients_maximum_is_not_sent(
    version: int, qos: int, size: int, packet_max: int, identified: bool, aliased: bool
) -> None:
    wide, _ = connection(version, 1 if aliased and version == V5 else 0)
    narrow, outputs = connection(version, 1 if aliased and version == V5 else 0, packet_max)
    text = encode_identifier(70_000) if identified else b""
    sent = message(b"topic", bytes(size))
    put_publish(wide, sent, qos, False, False, 1, text, NOW)
    fits = put_publish(narrow, sent, qos, False, False, 1, text, NOW)
    assert fits is (wide.out_bytes <= packet_max)
    if not fits:
        assert (narrow.out, narrow.out_bytes, outputs, narrow.alias_out or {}) == ([], 0, [], {})


def test_output_is_taken_once_and_counted_while_nobody_reads() -> None:
    made, outputs = connection(V311)
    made.send_bytes_max = 10
    made.put(b"12345")
    made.put(b"67890")
    assert outputs == [made]
    assert not made.can_send()
    made.writable = False
    assert made.take_output() == b"1234567890"
    assert made.unsent_bytes == 10
    assert made.take_output() == b""
    made.writable = True
    assert made.can_send()
    made.put(b"x")
    assert made.take_output() == b"x"
    assert outputs == [made, made]
