"""Stored queues against a model: order, limits and counts for any mix of messages, acknowledgements and crashes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import PUBACK, V5, Ack, Publish
from folkmoot.session.session import Session
from folkmoot.store.key import BODY, QUEUE, kind_of
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER, Peer, properties
from tests.harness.wire import connect, prop, props, text

SIZES = st.sampled_from([1, 50, 200, 900])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), SIZES),
        st.tuples(st.just("publish"), SIZES),
        st.tuples(st.just("publish"), SIZES),
        st.tuples(st.just("fleeting"), SIZES),
        st.tuples(st.just("ack"), st.integers(1, 5)),
        st.tuples(st.just("pass"), st.just(0)),
        st.tuples(st.just("lose"), st.just(0)),
        st.tuples(st.just("resume"), st.just(0)),
        st.tuples(st.just("crash"), st.just(0)),
        st.tuples(st.just("hold"), st.just(0)),
        st.tuples(st.just("release"), st.just(0)),
    ),
    max_size=60,
)


def session_of(box: Box, client_id: str) -> Session:
    return box.node._state.sessions[client_id]


def rows(box: Box, kind: int) -> int:
    return sum([kind_of(key) == kind for key, _ in box.store.items()])


class Story:
    """A publisher, a lasting subscriber that acknowledges when told to, and what has come to it."""

    def __init__(self, oldest: bool) -> None:
        limits: dict[str, int | bool] = {
            "queue_messages_max": 12,
            "queue_bytes_max": 3_000,
            "queue_full_drops_oldest": oldest,
            "page_rows": 4,
            "inflight_max": 3,
        }
        self.box = Box(limits=limits)
        self.source, self.peer = self.box.client("s"), self.box.client("a", acks=False)
        self.source.connect()
        self.peer.resume()
        self.peer.subscribe("t", qos=1)
        self.number = 0
        self.got: list[int] = []
        self.unacked: list[int] = []
        self.acknowledged: set[int] = set()  # by the broker, to the publisher

    def step(self, what: str, number: int) -> None:
        box, peer = self.box, self.peer
        if what in ("publish", "fleeting"):
            self.number += 1
            expiry = properties(message_expiry=60) if what == "fleeting" else None
            payload = b"%d;" % self.number + bytes(number)
            self.source.send(Publish(b"t", payload, 1, packet_id=self.number, properties=expiry))
        elif what == "pass":
            box.advance(61 * SECOND)
        elif what == "ack" and peer.connection is not None:
            for packet_id in self.unacked[:number]:
                peer.send(Ack(PUBACK, packet_id))
            self.unacked = self.unacked[number:]
        elif what == "lose":
            peer.lose()
        elif what == "resume":
            self.come_back()
        elif what == "crash":
            box.crash()
            self.source.connect()
        elif what == "hold":
            box.hold_writes()
        elif what == "release":
            box.release_writes()
        self.note()

    def come_back(self) -> None:
        if self.peer.connection is None:
            self.box.release_writes()
            self.peer.resume()
            self.unacked = []

    def dropped(self) -> int:
        counters = self.box.node.counters
        return counters.dropped_queue_full + counters.dropped_expired

    def note(self) -> None:
        for ack in [packet for packet in self.source.receive() if isinstance(packet, Ack)]:
            self.acknowledged.add(ack.packet_id)
        for packet in self.peer.publishes():
            number = int(packet.payload.split(b";")[0])
            assert packet.dup or number not in self.got, "a second sending is marked as one"
            assert packet.dup or not self.got or number > max(self.got), "first deliveries keep the order"
            self.got.append(number)
            self.unacked.append(packet.packet_id)

    def check(self) -> None:
        """What is counted is what there is, and within the limits."""
        session, counters = session_of(self.box, "a"), self.box.node.counters
        in_flight = session.window if session.connection is not None else 0
        assert 0 <= session.queue_count <= 12 + max(in_flight, 3)
        assert 0 <= session.queue_bytes <= 3_000
        assert (counters.queue_messages, counters.queue_bytes) == (session.queue_count, session.queue_bytes)
        assert len(session.inflight) <= session.window
        assert session.ready_bytes == sum([entry.size for entry in session.ready[session.ready_head :]])

    def end(self) -> None:
        """Everything is acknowledged in the end: nothing that was promised and not counted as dropped is missing."""
        self.box.release_writes()
        self.come_back()
        self.note()
        while self.unacked:
            self.step("ack", 100)
        self.box.settle()
        assert rows(self.box, QUEUE) == 0
        assert rows(self.box, BODY) == 0
        session = session_of(self.box, "a")
        assert (session.queue_count, session.queue_bytes, session.special_rows) == (0, 0, 0)
        assert session.inflight == {}


@pytest.mark.parametrize("oldest", [False, True])
@settings(max_examples=60)
@given(steps=STEPS)
def test_a_queue_keeps_its_order_its_limits_and_its_counts(oldest: bool, steps: list[tuple[str, int]]) -> None:
    story = Story(oldest)
    for what, number in steps:
        story.step(what, number)
        story.check()
    story.end()


@settings(max_examples=60)
@given(steps=STEPS)
def test_what_was_acknowledged_arrives_unless_its_loss_is_counted(steps: list[tuple[str, int]]) -> None:
    story = Story(False)
    dropped = 0
    for what, number in steps:
        before = story.dropped()
        story.step(what, number)
        dropped += story.dropped() - (0 if what == "crash" else before)
    before = story.dropped()
    story.end()
    dropped += story.dropped() - before
    missing = story.acknowledged - set(story.got)
    assert len(missing) <= dropped
    if not dropped:
        assert not missing


def fill(source: Peer, sizes: list[int]) -> None:
    for size in sizes:
        source.publish("t", bytes(size), qos=1)


@pytest.mark.parametrize("lasting", [False, True])
def test_one_large_message_takes_the_room_of_many_small_ones(make: MakeBox, lasting: bool) -> None:
    box = make(limits={"queue_bytes_max": 10_000, "queue_full_drops_oldest": True, "inflight_max": 1})
    source, peer = box.client("s"), box.client("a", acks=False)
    source.connect()
    peer.connect(session_expiry=EVER if lasting else None)
    peer.subscribe("t", qos=1)
    fill(source, [10] * 300 + [5_000, 5_000, 9_000])
    session = session_of(box, "a")
    assert max(session.queue_bytes, session.ready_bytes) <= 10_000
    first = peer.publishes()
    peer.acks = True
    peer.send(Ack(PUBACK, first[0].packet_id))
    assert [len(payload) for payload in peer.payloads()] == [9_000]


@pytest.mark.parametrize("lasting", [False, True])
def test_a_message_larger_than_the_whole_queue_drops_nobody(make: MakeBox, lasting: bool) -> None:
    box = make(limits={"queue_bytes_max": 1_000, "queue_full_drops_oldest": True, "inflight_max": 1})
    source, peer = box.client("s"), box.client("a", acks=False)
    source.connect()
    peer.connect(session_expiry=EVER if lasting else None)
    peer.subscribe("t", qos=1)
    fill(source, [10, 10, 10, 2_000])
    first = peer.publishes()
    peer.acks = True
    peer.send(Ack(PUBACK, first[0].packet_id))
    assert [len(payload) for payload in peer.payloads()] == [10, 10]


def test_large_messages_are_read_a_few_at_a_time(box: Box) -> None:
    source, peer = box.client("s"), box.client("a", acks=False)
    peer.resume()
    peer.subscribe("t", qos=1)
    peer.lose()
    source.connect()
    fill(source, [200_000] * 60)
    peer.resume(receive_max=1)
    assert session_of(box, "a").ready_bytes <= 1_048_576
    assert len(peer.payloads()) == 1


def test_a_slow_client_has_little_in_memory(make: MakeBox) -> None:
    """Its messages are on disk: what it may be sent next is bounded by bytes, not only by its window."""
    box = make(limits={"send_buffer_bytes_max": 100_000})
    source, peer = box.client("s"), box.client("a", acks=False)
    peer.resume()
    peer.subscribe("t", qos=1)
    source.connect()
    assert peer.connection is not None
    box.node.writable(peer.connection, False, box.now)
    fill(source, [50_000] * 100)
    assert session_of(box, "a").ready_bytes <= 150_000 + 100
    peer.acks = True
    box.node.writable(peer.connection, True, box.now)
    box.run()
    assert len(peer.payloads()) == 100


def test_a_queue_of_expired_messages_is_emptied_over_many_turns(make: MakeBox) -> None:
    box = make(limits={"page_rows": 16})
    source, peer = box.client("s"), box.client("a")
    peer.resume()
    peer.subscribe("t", qos=1)
    peer.lose()
    source.connect()
    made = properties(message_expiry=1)
    for number in range(1, 1_001):
        source.send(Publish(b"t", b"m", 1, packet_id=number, properties=made))
    source.publish("t", b"fresh", qos=1)
    box.advance(2 * SECOND)
    connection_turns = 0
    peer.open()
    assert peer.connection is not None
    login = connect(V5, text("a"), flags=0, properties=props(prop(0x11, b"\xff" * 4)))
    box.node.receive(peer.connection, login, box.now)
    while box.turn():
        connection_turns += 1
        assert box.node.counters.dropped_expired <= connection_turns * 16 * 9
    assert peer.payloads() == [b"fresh"]
    assert box.node.counters.dropped_expired == 1_000
    assert connection_turns > 1_000 // (16 * 9)
    box.settle()
    assert rows(box, QUEUE) == 0


def test_what_was_sent_comes_again_with_dup_though_another_message_of_its_page_had_expired(box: Box) -> None:
    """[MQTT-3.3.1-1]: the row that says what was sent never goes back."""
    source, peer = box.client("s"), box.client("a", acks=False)
    peer.resume()
    peer.subscribe("t", qos=1)
    peer.lose()
    source.connect()
    source.send(Publish(b"t", b"old", 1, packet_id=1, properties=properties(message_expiry=1)))
    source.publish("t", b"m", qos=1)
    box.advance(2 * SECOND)
    peer.resume()
    assert [(one.payload, one.dup) for one in peer.publishes()] == [(b"m", False)]
    peer.lose()
    box.settle()
    box.crash()
    peer.resume()
    assert [(one.payload, one.dup) for one in peer.publishes()] == [(b"m", True)]
