"""Bodies: one row for all sessions of a partition that wait for a message, for as long as one of them does."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.kernel.pack import get_u16
from folkmoot.mqtt.packet import PUBACK, Ack
from folkmoot.store.key import BODY, QUEUE, kind_of, sequence_of
from folkmoot.store.row import decode_queue
from folkmoot.store.writer import VERSION_BYTES
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer

CLIENTS = 4
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from([10, 500])),
        st.tuples(st.just("publish"), st.sampled_from([10, 500])),
        st.tuples(st.just("ack"), st.integers(0, CLIENTS - 1)),
        st.tuples(st.just("lose"), st.integers(0, CLIENTS - 1)),
        st.tuples(st.just("resume"), st.integers(0, CLIENTS - 1)),
        st.tuples(st.just("end"), st.integers(0, CLIENTS - 1)),
        st.tuples(st.just("crash"), st.just(0)),
    ),
    max_size=30,
)


def join(box: Box, number: int) -> Peer:
    peer = box.client(f"c{number}", acks=False)
    peer.resume()
    peer.subscribe("t/#", qos=1)
    return peer


def check(box: Box) -> None:
    """Every row that names a body finds it, every body is named, and the counts say how often."""
    box.settle()
    named: dict[tuple[int, int], int] = {}
    bodies: list[tuple[int, int]] = []
    for key, value in box.store.items():
        if kind_of(key) == BODY:
            bodies.append((get_u16(key, 0), sequence_of(key)))
        elif kind_of(key) == QUEUE and (body := decode_queue(value[VERSION_BYTES:]).body):
            name = get_u16(key, 0), body
            named[name] = named.get(name, 0) + 1
    assert sorted(named) == sorted(bodies)
    led = box.node._broker.partition.led
    assert {(one.number, body): count for one in led for body, count in one.bodies.items()} == named
    assert len(box.node._broker.partition.bodies) == len(named)


@settings(max_examples=80)
@given(STEPS)
def test_each_body_lives_as_long_as_a_row_names_it(steps: list[tuple[str, int]]) -> None:
    box = Box(partitions=1, limits={"page_rows": 2, "inflight_max": 2})
    source = box.client("s")
    source.connect()
    peers = [join(box, number) for number in range(CLIENTS)]
    published = 0
    for what, number in steps:
        peer = peers[number % CLIENTS]
        if what == "publish":
            published += 1
            source.publish("t/1", b"%d;" % published + bytes(number), qos=1)
        elif what == "ack" and peer.connection is not None:
            for packet in peer.publishes():
                peer.send(Ack(PUBACK, packet.packet_id))
        elif what == "lose":
            peer.lose()
        elif what == "resume" and peer.connection is None:
            peer.resume()
        elif what == "end":
            if peer.connection is None:
                peer.resume()
            peer.disconnect(session_expiry=0)
        elif what == "crash":
            box.crash()
            source.connect()
        check(box)
    for peer in peers:
        peer.acks = True
        if peer.connection is not None:
            peer.lose()
        peer.resume()
        numbers = [int(packet.payload.split(b";")[0]) for packet in peer.publishes()]
        assert numbers == sorted(numbers), "each has its own messages, whole and in order"
    check(box)
    assert len(box.node._broker.partition.bodies) == 0


def test_small_messages_and_single_sessions_have_no_bodies(make: MakeBox) -> None:
    box = make(bystander=False, partitions=1)
    source, peers = box.client("s"), [join(box, number) for number in range(2)]
    source.connect()
    source.publish("t/1", bytes(10), qos=1)
    peers[1].unsubscribe("t/#")
    source.publish("t/1", bytes(1_000), qos=1)
    assert not any(kind_of(row[0]) == BODY for row in box.store.items())


def test_bodies_are_limited_and_then_each_has_its_own(make: MakeBox) -> None:
    box = make(bystander=False, partitions=1, limits={"shared_bodies_max": 3, "inflight_max": 1})
    source, peers = box.client("s"), [join(box, number) for number in range(3)]
    source.connect()
    for number in range(10):
        source.publish("t/1", b"%d;" % number + bytes(500), qos=1)
    assert sum([kind_of(row[0]) == BODY for row in box.store.items()]) == 3
    check(box)
    for peer in peers:
        (first,) = peer.publishes()
        peer.acks = True
        peer.send(Ack(PUBACK, first.packet_id))
        assert len(peer.payloads()) == 9
    check(box)


def test_a_body_that_nobody_has_room_for_is_not_kept(make: MakeBox) -> None:
    box = make(bystander=False, partitions=1, limits={"queue_bytes_max": 300})
    source = box.client("s")
    source.connect()
    for number in range(2):
        join(box, number)
    source.publish("t/1", bytes(500), qos=1)
    check(box)
    assert box.node.counters.dropped_queue_full == 2
