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
