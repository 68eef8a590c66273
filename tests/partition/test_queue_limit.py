"""What happens when a session's queue is full, and what of QoS 0 is kept for absent clients."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import HOUR, SECOND
from folkmoot.mqtt.packet import PUBACK, Ack
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer
from tests.harness.version import BOTH

WINDOW = 2


def full(box: Box, messages: int, size: int = 10) -> Peer:
    """An absent session with a window of two messages, and more messages than its queue takes."""
    source, peer = box.client("s"), box.client("a")
    source.connect()
    peer.resume(receive_max=WINDOW)
    peer.subscribe("t", qos=1)
    peer.lose()
    for number in range(messages):
        source.publish("t", b"%03d" % number + bytes(size), qos=1)
    return peer


def numbers(peer: Peer) -> list[int]:
    peer.resume()
    return [int(payload[:3]) for payload in peer.payloads()]


def test_by_default_the_newest_go(make: MakeBox) -> None:
    box = make(limits={"queue_messages_max": 10})
    got = numbers(full(box, 30))
    assert got == list(range(len(got)))
    assert len(got) == 10


def test_the_oldest_go_if_asked(make: MakeBox) -> None:
    box = make(limits={"queue_messages_max": 10, "queue_full_drops_oldest": True})
    got = numbers(full(box, 30))
    assert got == list(range(30 - len(got), 30))
    assert len(got) == 10


@pytest.mark.parametrize("oldest", [False, True])
def test_bytes_are_limited_too(make: MakeBox, oldest: bool) -> None:
    box = make(limits={"queue_bytes_max": 2_000, "queue_full_drops_oldest": oldest})
    got = numbers(full(box, 20, 400))
    assert 3 <= len(got) <= 5
    assert got == (list(range(20 - len(got), 20)) if oldest else list(range(len(got))))


@pytest.mark.parametrize("oldest", [False, True])
def test_the_limit_holds_after_a_crash(make: MakeBox, oldest: bool) -> None:
    box = make(limits={"queue_messages_max": 10, "queue_full_drops_oldest": oldest})
    peer = full(box, 30)
    box.crash()
    source = box.client("s2")
    source.connect()
    for number in range(30, 40):
        source.publish("t", b"%03d" % number, qos=1)
    got = numbers(peer)
    assert len(got) == 10
    assert got == sorted(got)
    assert (got[-1] == 39) is oldest


def test_there_is_room_again_when_messages_are_acknowledged(make: MakeBox) -> None:
    box = make(limits={"queue_messages_max": 5})
    peer = full(box, 20)
    first = numbers(peer)
    source = box.client("s2")
    source.connect()
    peer.lose()
    source.publish("t", b"100", qos=1)
    assert [*first, *numbers(peer)] == [*range(len(first)), 100]


def test_a_full_queue_is_counted_and_disturbs_nobody(make: MakeBox) -> None:
    box = make(limits={"queue_messages_max": 5})
    other = box.client("other")
    other.connect()
    other.subscribe("t", qos=1)
    full(box, 30)
    assert [int(payload[:3]) for payload in other.payloads()] == list(range(30))
    assert box.node.counters.dropped_queue_full >= 30 - 5


@pytest.mark.parametrize("oldest", [False, True])
def test_a_connected_client_that_does_not_acknowledge_has_a_limit_too(make: MakeBox, oldest: bool) -> None:
    box = make(limits={"queue_messages_max": 5, "queue_full_drops_oldest": oldest})
    for persistent in (False, True):
        name = "p" if persistent else "t"
        source, peer = box.client("s"), box.client(name, acks=False)
        source.connect()
        peer.connect(receive_max=WINDOW, session_expiry=100 if persistent else None)
        peer.subscribe("t", qos=1)
        for number in range(20):
            source.publish("t", b"%03d" % number, qos=1)
        sent = peer.publishes()
        assert [packet.payload for packet in sent] == [b"000", b"001"]
        peer.acks = True
        peer.send(*[Ack(PUBACK, packet.packet_id) for packet in sent])
        rest = [int(payload) for payload in peer.payloads()]
        assert 5 <= len(rest) <= 5 + WINDOW
        assert rest == (list(range(20 - len(rest), 20)) if oldest else list(range(2, 2 + len(rest))))
        source.disconnect()


@BOTH
def test_qos_0_is_not_kept_for_absent_clients(box: Box, version: int) -> None:
    source, peer = box.client("s", version), box.client("a", version)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=1)
    peer.lose()
    source.publish("t", b"zero", qos=0)
    source.publish("t", b"one", qos=1)
    peer.resume()
    assert peer.payloads() == [b"one"]


@BOTH
@pytest.mark.parametrize("crash", [False, True])
def test_qos_0_is_kept_if_asked(make: MakeBox, version: int, crash: bool) -> None:
    box = make(limits={"queue_qos0_offline": True})
    source, peer = box.client("s", version), box.client("a", version)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=1)
    peer.lose()
    for number in range(6):
        source.publish("t", b"%d" % number, qos=number % 2)
    if crash:
        box.crash()
    peer.resume()
    got = peer.publishes()
    assert [(packet.payload, packet.qos, packet.dup) for packet in got] == [
        (b"%d" % number, number % 2, False) for number in range(6)
    ]
    peer.lose()
    peer.resume()
    assert peer.payloads() == []


def test_a_queue_far_larger_than_a_page_comes_whole_and_in_order(make: MakeBox) -> None:
    box = make(limits={"page_rows": 16})
    peer = full(box, 500)
    assert numbers(peer) == list(range(500))
    assert numbers(full(box, 500)) == list(range(500))


def test_a_large_queue_waits_on_disk_not_in_memory(make: MakeBox) -> None:
    """Messages of an absent session are rows; a connected one holds its window and a page."""
    box = make(limits={"page_rows": 16})
    peer = full(box, 300)
    peer.acks = False
    peer.resume(receive_max=WINDOW)
    assert len(peer.publishes()) == WINDOW
    assert box.node.counters.queue_messages == 300


def test_the_log_names_the_session_once_in_an_hour(make: MakeBox) -> None:
    box = make(limits={"queue_messages_max": 10})
    full(box, 30)
    told = [event.fields for event in box.events if event.kind == "queue_full"]
    assert told == [{"client": "a", "messages": 10, "bytes": told[0]["bytes"], "drops": "the newest"}]
    box.advance(HOUR + SECOND)
    source = box.client("again")
    source.connect()
    source.publish("t", b"x", qos=1)
    assert box.kinds().count("queue_full") == 2


def expired(box: Box, messages: int, name: str = "a", topic: str = "t", qos: int = 1) -> Peer:
    """An absent session whose messages, all of them never sent, have expired."""
    source, peer = box.client("s"), box.client(name)
    source.connect()
    peer.resume()
    peer.subscribe(topic, qos=qos)
    peer.lose()
    for _ in range(messages):
        source.publish("t", b"old", qos=qos, message_expiry=60)
    box.advance(61 * SECOND)
    return peer


@pytest.mark.parametrize("oldest", [False, True])
@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_expired_messages_take_no_room(make: MakeBox, oldest: bool, crash: bool, qos: int) -> None:
    box = make(limits={"queue_messages_max": 10, "queue_full_drops_oldest": oldest})
    peer = expired(box, 10, qos=qos)
    if crash:
        box.crash()
    source = box.client("s2")
    source.connect()
    for number in range(10):
        source.publish("t", b"%d" % number, qos=qos)
    counters = box.node.counters
    assert (counters.dropped_expired, counters.dropped_queue_full) == (10, 0)
    source.publish("t", b"10", qos=qos)
    assert counters.dropped_queue_full == 1
    assert "queue_full" in box.kinds()
    peer.resume()
    assert peer.payloads() == [b"%d" % number for number in (range(1, 11) if oldest else range(10))]


def test_a_large_message_takes_the_room_of_several_expired_ones(make: MakeBox) -> None:
    box = make(limits={"queue_bytes_max": 2_000})
    source, peer = box.client("s"), box.client("a")
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=1)
    peer.lose()
    for _ in range(20):
        source.publish("t", bytes(50), qos=1, message_expiry=60)
    box.advance(61 * SECOND)
    source.publish("t", bytes(1_500), qos=1)
    assert box.node.counters.dropped_expired > 10
    peer.resume()
    assert peer.payloads() == [bytes(1_500)]


def test_what_expires_behind_a_message_that_does_not_keeps_its_room(make: MakeBox) -> None:
    box = make(limits={"queue_messages_max": 4})
    peer = full(box, 1)
    source = box.client("s")
    source.connect()
    for number in range(1, 5):
        source.publish("t", b"%03d" % number, qos=1, message_expiry=60)
    box.advance(61 * SECOND)
    source.publish("t", b"005", qos=1)
    assert box.node.counters.dropped_queue_full == 2
    assert numbers(peer) == [0]


def test_one_that_was_sent_does_not_expire_in_a_full_queue(make: MakeBox) -> None:
    box = make(limits={"queue_messages_max": 4})
    source, peer = box.client("s"), box.client("a", acks=False)
    source.connect()
    peer.resume(receive_max=2)
    peer.subscribe("t", qos=1)
    for number in range(6):
        source.publish("t", b"%03d" % number, qos=1, message_expiry=60)
    peer.lose()
    box.advance(61 * SECOND)
    for number in range(6, 9):
        source.publish("t", b"%03d" % number, qos=1)
    peer.acks = True
    assert numbers(peer) == [0, 1, 6, 7]


@pytest.mark.parametrize("lasting", [False, True])
def test_expired_messages_of_a_client_that_does_not_acknowledge_take_no_room(make: MakeBox, lasting: bool) -> None:
    box = make(limits={"queue_messages_max": 5})
    source, peer = box.client("s"), box.client("a", acks=False)
    source.connect()
    peer.connect(receive_max=WINDOW, session_expiry=100 if lasting else None)
    peer.subscribe("t", qos=1)
    for number in range(5 + WINDOW):
        source.publish("t", b"%d" % number, qos=1, message_expiry=60)
    sent = peer.publishes()
    assert len(sent) == WINDOW
    box.advance(61 * SECOND)
    for number in range(10, 15):
        source.publish("t", b"%d" % number, qos=1)
    assert box.node.counters.dropped_queue_full == 0
    peer.acks = True
    peer.send(*[Ack(PUBACK, packet.packet_id) for packet in sent])
    assert peer.payloads() == [b"%d" % number for number in range(10, 15)]
    assert box.node.counters.dropped_expired == 5


def test_expired_messages_take_no_room_of_a_shared_subscription(make: MakeBox) -> None:
    box = make(limits={"queue_messages_max": 5})
    peers = [expired(box, 0, name, "$share/g/t") for name in ("a", "b")]
    source = box.client("s")
    source.connect()
    for _ in range(10):
        source.publish("t", b"old", qos=1, message_expiry=60)
    box.advance(61 * SECOND)
    for number in range(10):
        source.publish("t", b"%d" % number, qos=1)
    assert box.node.counters.dropped_queue_full == 0
    got = []
    for peer in peers:
        peer.resume()
        got += peer.payloads()
    assert sorted(got) == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("connected", [False, True])
def test_the_oldest_go_after_a_crash_but_those_that_were_sent(make: MakeBox, connected: bool) -> None:
    """What an earlier leader may have sent with QoS 1 is in doubt, and goes; what it certainly sent stays."""
    box = make(limits={"queue_messages_max": 10, "queue_full_drops_oldest": True})
    source, peer = box.client("s"), box.client("a", acks=False)
    source.connect()
    peer.resume(receive_max=WINDOW)
    peer.subscribe("t", qos=1)
    for number in range(10 + WINDOW):
        source.publish("t", b"%03d" % number, qos=1)
    box.crash()
    source.connect()
    if connected:
        peer.resume(receive_max=WINDOW)
    for number in range(100, 105):
        source.publish("t", b"%03d" % number, qos=1)
    peer.lose()
    peer.acks = True
    kept = range(WINDOW + 5, 10 + WINDOW) if connected else range(WINDOW + 7, 10 + WINDOW)
    assert numbers(peer) == [0, 1, *kept, *range(100, 105)]


def test_what_may_have_been_sent_with_qos_2_stays_in_a_full_queue(make: MakeBox) -> None:
    box = make(limits={"queue_messages_max": 6, "queue_full_drops_oldest": True})
    source, peer = box.client("s"), box.client("a", acks=False)
    source.connect()
    peer.resume(receive_max=1)
    peer.subscribe("t", qos=2)
    for number in range(6):
        source.publish("t", b"%03d" % number, qos=1 + number % 2)
    box.crash()
    source.connect()
    for number in range(100, 104):
        source.publish("t", b"%03d" % number, qos=1)
    peer.acks = True
    assert numbers(peer) == [0, 1, 3, 5, 102, 103]
