"""Input of any size costs in proportion to its size: counted in copied bytes, for packets of each type.

A decoder that takes a slice of what is left of its chunk for each packet copies the square of the chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import SupportsIndex

import pytest

from folkmoot.auth.acl import PUBLISH, Rule
from folkmoot.auth.policy import Policy
from folkmoot.cli.version import is_compiled
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, Ack, Packet, Pingreq, Properties, Publish, Subscribe, Unsubscribe
from folkmoot.peer.frame import DATA, FrameReader, data_frame, message_head
from folkmoot.peer.link import Link
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.turn.throttle import FOR_RATE
from tests.harness.fixture import MakeBox
from tests.harness.peer import properties
from tests.harness.version import BOTH

pytestmark = pytest.mark.skipif(is_compiled(), reason="compiled code reads bytes without asking the object")

COUNT = 4_000

COPIES_MAX = 8
"""How often a byte is copied at most: from the chunk to its packet, and from there to topic, property and payload."""


class Counted(bytes):
    """Bytes whose slices are counted, and the slices of slices."""

    copied = 0

    def __getitem__(self, key: SupportsIndex | slice) -> object:  # type: ignore[override]
        part = super().__getitem__(key)  # type: ignore[index]
        if not isinstance(part, bytes):
            return part
        Counted.copied += len(part)
        return Counted(part)

    def __bytes__(self) -> bytes:
        Counted.copied += len(self)
        return self


def user_property() -> Properties:
    return properties(user_properties=[("a", "b")])


def publish(number: int, qos: int, **named: object) -> Packet:
    size = number % 5
    return Publish(b"t/%d" % size, b"x" * size, qos, False, False, number % 60_000 + 1 if qos else 0, **named)  # type: ignore[arg-type]


def aliased(number: int) -> Packet:
    made = properties(topic_alias=1)
    return Publish(b"t" if number == 0 else b"", b"x", 0, False, False, 0, made)


KINDS: dict[str, Callable[[int], Packet]] = {
    "publish": lambda number: publish(number, 0),
    "publish_1": lambda number: publish(number, 1),
    "publish_2": lambda number: publish(number, 2),
    "retained": lambda number: Publish(b"t/%d" % (number % 9), b"x", 0, True),
    "denied": lambda number: Publish(b"denied/%d" % number, b"x", 0),
    "puback": lambda number: Ack(4, number % 60_000 + 1),
    "pubrec": lambda number: Ack(5, number % 60_000 + 1),
    "pubrel": lambda number: Ack(6, number % 60_000 + 1),
    "pingreq": lambda number: Pingreq(),
    "subscribe": lambda number: Subscribe(1, [(b"s/%d" % (number % 7), 0)]),
    "unsubscribe": lambda number: Unsubscribe(1, [b"s/%d" % (number % 7)]),
}
KINDS_V5: dict[str, Callable[[int], Packet]] = {
    "properties": lambda number: publish(number, 0, properties=user_property()),
    "properties_1": lambda number: publish(number, 1, properties=user_property()),
    "properties_2": lambda number: publish(number, 2, properties=user_property()),
    "aliased": aliased,
    "denied_with_properties": lambda number: Publish(b"denied", b"x", 0, False, False, 0, user_property()),
    "subscribe_with_properties": lambda number: Subscribe(1, [(b"s", 0)], user_property()),
    "puback_with_reason": lambda number: Ack(4, number % 60_000 + 1, 0x10),
}
LIMITS = {"receive_max": 65_535, "turn_steps_max": 256}  # a turn takes a small part of the chunk


def copies(make: MakeBox, data: bytes, version: int, *, late: bool) -> float:
    rules = [Rule(False, PUBLISH, "*", "*", [b"denied/#"])] if b"denied" in data else []
    box = make(bystander=False, limits=LIMITS, policy=Policy(rules, True))
    peer, other = box.client("a", version), box.client("b", V5)
    peer.connect()
    other.connect()
    other.subscribe("t/#", qos=2)
    connection = peer.connection
    assert connection is not None
    throttle = box.node._broker.turn.throttle
    if late:
        peer.subscribe("own")
        throttle.pause(connection, FOR_RATE)
        box.run()
    Counted.copied = 0
    box.node.receive(connection, Counted(data), box.now)
    box.run()
    if late:
        throttle.unpause(connection, FOR_RATE)
        box.run()
    assert peer.connection is not None, peer.close_code
    assert not connection.queued
    assert not connection.has_stash()
    return Counted.copied / len(data)


@BOTH
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_packets_are_copied_once(make: MakeBox, version: int, kind: str, late: bool) -> None:
    data = b"".join(encode(KINDS[kind](number), version) for number in range(COUNT))
    assert copies(make, data, version, late=late) < COPIES_MAX


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", KINDS_V5)
def test_packets_with_properties_are_copied_once(make: MakeBox, kind: str, late: bool) -> None:
    data = b"".join(encode(KINDS_V5[kind](number), V5) for number in range(COUNT))
    assert copies(make, data, V5, late=late) < COPIES_MAX


def test_what_waits_for_its_turn_is_not_copied_by_each_turn(make: MakeBox) -> None:
    """Chunks that come in between are joined to what is left of the ones before, once."""
    box = make(bystander=False, limits=LIMITS)
    peer = box.client("a")
    peer.connect()
    connection = peer.connection
    assert connection is not None
    data = b"".join(encode(publish(number, 0, properties=user_property()), V5) for number in range(COUNT))
    Counted.copied = 0
    for at in range(0, len(data), 997):
        box.node.receive(connection, Counted(data[at : at + 997]), box.now)
        box.turn()
    box.run()
    assert box.node.counters.publish_received_qos0 == COUNT
    assert Counted.copied < COPIES_MAX * len(data)


@pytest.mark.parametrize("chunk_bytes", [1000, 1 << 20])
def test_messages_of_other_nodes_are_copied_once(chunk_bytes: int) -> None:
    """Frames of a link, large and small."""
    frames: list[bytes] = []
    for number in range(1, COUNT + 1):
        body = b"m" * (number % 50)
        frames.append(data_frame(DATA, number, 0, [b"", message_head(32, len(body)), body], len(body) + 2))
    data = b"".join(frames)
    reader = FrameReader(1 << 20)
    link = Link(Member("n2", 1, "", "n2", ACTIVE), 1, 1, 0)
    inbox: list[tuple[str, int, bytes]] = []
    Counted.copied = 0
    for at in range(0, len(data), chunk_bytes):
        reader.feed(Counted(data[at : at + chunk_bytes]))
        while (pos := reader.next()) >= 0:
            assert reader.data[pos] == DATA
            assert not link.take(DATA, reader.data, pos, reader.stop, inbox)
    assert len(inbox) == COUNT
    assert Counted.copied < COPIES_MAX * len(data)


def test_frames_that_are_not_read_yet_are_copied_once() -> None:
    """A node that cannot keep up reads one frame after each chunk that comes."""
    one = data_frame(DATA, 1, 0, [b"", message_head(32, 90), b"m" * 90], 92)
    data = one * COUNT
    reader = FrameReader(1 << 20)
    Counted.copied = 0
    read = 0
    for at in range(0, len(data), 4 * len(one) + 7):
        reader.feed(Counted(data[at : at + 4 * len(one) + 7]))
        read += reader.next() >= 0
    while reader.next() >= 0:
        read += 1
    assert read == COUNT
    assert Counted.copied < COPIES_MAX * len(data)
