"""The node as a whole: same calls, same effects; chunks do not matter; nonsense hurts nobody but its sender."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, V31, V311, Ack, Connect, Packet, Publish, Subscribe
from tests.harness.box import Box
from tests.harness.peer import Peer
from tests.harness.wire import split
from tests.mqtt.strategy import packets
from tests.node.script import FLOW, Cut, Player, Step, scripts, whole

ENOUGH = 1 << 20  # bytes: no publication is deferred


def told(script: list[Step], cut: Cut) -> list[str]:
    """Return all effects, except that reading pauses: it does only if more bytes come while a connection waits."""
    return [line for line in Player(ENOUGH).play(script, cut) if not line.startswith(FLOW)]


@settings(max_examples=80)
@given(scripts)
def test_the_same_calls_give_the_same_effects(script: list[Step]) -> None:
    assert Player().play(script, whole) == Player().play(script, whole)


@settings(max_examples=150)
@given(scripts, st.integers(0, 2**32))
def test_how_bytes_are_cut_into_chunks_does_not_matter(script: list[Step], seed: int) -> None:
    random = Random(seed)

    def cut(data: bytes) -> list[bytes]:
        chunks = []
        while data:
            size = random.choice([1, 1, 2, 5, 100, len(data)])
            chunks.append(data[:size])
            data = data[size:]
        return chunks

    assert told(script, cut) == told(script, whole)


@settings(max_examples=40)
@given(scripts)
def test_byte_by_byte_is_the_same_as_well(script: list[Step]) -> None:
    def bytewise(data: bytes) -> list[bytes]:
        return [data[i : i + 1] for i in range(len(data))]

    assert told(script, bytewise) == told(script, whole)


class Neighbours:
    """A box with two clients who talk to each other, whatever a third one does."""

    def __init__(self) -> None:
        self.box = Box(limits={"packet_bytes_max": 2_000, "connect_bytes_max": 1_000})
        self.left, self.right = self.box.client("left"), self.box.client("right", V311)
        self.left.connect()
        self.right.resume()
        self.right.subscribe("private/#", qos=2)

    def check(self) -> None:
        """They can still talk, at all levels, and hear nothing else."""
        for qos in (0, 1, 2):
            assert self.left.publish("private/x", b"%d" % qos, qos=qos) == 0
        assert self.right.messages() == [("private/x", b"%d" % qos) for qos in (0, 1, 2)]
        assert self.left.receive() == []


def hurl(box: Box, chunks: list[bytes]) -> Peer:
    """Send bytes as a stranger; what comes back must be whole packets."""
    peer = box.client("stranger")
    peer.open()
    connection = peer.connection
    assert connection is not None
    peer.connection = None  # the harness looks at what clients get; this one is not one
    out = b""
    for chunk in chunks:
        box.node.receive(connection, chunk, box.now)
        effects = box.node.drain(box.now)
        for other in effects.outputs:
            data = other.take_output()
            if other is connection:
                out += data
        if effects.write is not None:
            box._unwritten.append(effects.write)
            box._commit(1)
        box._closing.extend(effects.closes)
    box.run()
    box.node.lost(connection, "gone", box.now)
    box.run()
    _, rest = split(out)
    assert rest == b""
    return peer


FIRST = [encode(Connect(version, "mallory", True, 0), version) for version in (V31, V311, V5)]


@settings(max_examples=300)
@given(st.sampled_from([b"", *FIRST]), st.lists(st.binary(max_size=40), max_size=5))
def test_noise_is_survived_at_any_point(first: bytes, chunks: list[bytes]) -> None:
    neighbours = Neighbours()
    hurl(neighbours.box, [first, *chunks])
    neighbours.check()


@settings(max_examples=300)
@given(st.data())
def test_bent_packets_are_survived(data: st.DataObject) -> None:
    """Legal packets of any kind and direction, some with a few bytes changed, cut or added, in any order."""
    neighbours = Neighbours()
    version = data.draw(st.sampled_from([V31, V311, V5]))
    stream = bytearray()
    for packet in data.draw(st.lists(packets(version), min_size=1, max_size=5)):
        stream += encode(private(packet), version)
        for _ in range(data.draw(st.integers(0, 2))):
            at = data.draw(st.integers(0, len(stream) - 1))
            stream[at] = data.draw(st.integers(0, 255))
    head = data.draw(st.sampled_from([b"", FIRST[[V31, V311, V5].index(version)]]))
    hurl(neighbours.box, [head, bytes(stream)])
    neighbours.check()


def private(packet: Packet) -> Packet:
    """Keep a stranger's legal messages out of the neighbours' topic, and off the neighbours' names."""
    if isinstance(packet, Publish) and packet.topic.startswith(b"private"):
        packet.topic = b"public"
    return packet


@pytest.mark.parametrize("version", [V31, V311, V5])
@given(
    topics=st.lists(st.binary(min_size=1, max_size=30), max_size=4),
    filters=st.lists(st.binary(max_size=30), max_size=4),
)
@settings(max_examples=100)
def test_any_bytes_as_topics_and_filters(version: int, topics: list[bytes], filters: list[bytes]) -> None:
    neighbours = Neighbours()
    stream = b""
    for number, name in enumerate(filters, 1):
        for prefix in (b"", b"$share/", b"$share/g/", b"$stream/", b"$SYS/"):
            stream += encode(Subscribe(number, [(prefix + name, 1)]), version)
    for number, topic in enumerate(topics, 1):
        if not topic.startswith(b"private"):
            stream += encode(Publish(topic, b"m", 1, True, packet_id=number), version)
    # Each on a connection of its own: the first that is wrong ends it.
    for first, body in split(stream)[0]:
        hurl(neighbours.box, [FIRST[[V31, V311, V5].index(version)], bytes([first, len(body)]) + body])
    neighbours.check()


def test_a_clock_that_jumps_back_is_held_and_one_that_jumps_ahead_is_followed() -> None:
    box = Box()
    peer = box.client("a")
    peer.connect(keep_alive_s=10)
    box.now -= 3_600_000_000
    peer.ping()
    box.run()
    assert not peer.closed
    box.now += 3_600_000_000
    box.advance(14_000_000)
    assert not peer.closed
    box.advance(2_000_000)
    assert peer.closed


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [V311, V5])
def test_what_stood_before_a_fault_is_acknowledged(version: int, qos: int) -> None:
    """Also when it all came in one run of like packets."""
    box = Box()
    other, peer = box.client("b", version), box.client("a", version)
    other.connect()
    other.subscribe("t", qos=qos)
    peer.connect()
    peer.publish("t", b"0", qos=qos)
    made = [encode(Publish(b"t", b"m", qos, packet_id=number), version) for number in (11, 12, 13)]
    peer.raw(made[0] + made[1] + made[2].replace(b"t\0\x0d", b"t\0\0"))
    assert peer.closed
    assert [packet.packet_id for packet in peer.receive() if isinstance(packet, Ack)] == [11, 12]
    assert other.payloads() == [b"0", b"m", b"m"]
