"""Idempotent producers in the store are limited: those who were not heard of for the longest time are forgotten."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import Publish
from folkmoot.store.key import PRODUCER, kind_of
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer, properties

LIMIT = 40


def rows(box: Box) -> list[str]:
    return [key[20:].decode() for key, _ in box.store.items() if kind_of(key) == PRODUCER]


def message(producer: str, sequence: int, packet_id: int) -> Publish:
    pairs = [("folkmoot-producer", producer), ("folkmoot-seq", str(sequence))]
    made = properties(user_properties=pairs)
    return Publish(b"t", f"{producer} {sequence}".encode(), 1, packet_id=packet_id, properties=made)


def produce(peer: Peer, producer: str, sequence: int) -> None:
    peer.send(message(producer, sequence, peer.packet_id()))


@pytest.fixture
def crowd(make: MakeBox) -> tuple[Box, Peer, Peer]:
    box = make(bystander=False, limits={"producers_max": LIMIT, "user_share_max": 100, "page_rows": 8})
    sleeper, peer = box.client("z"), box.client("a")
    sleeper.resume()
    sleeper.subscribe("t", qos=1)
    peer.connect()
    return box, sleeper, peer


def test_any_number_of_names_leaves_a_limited_number_of_rows(crowd: tuple[Box, Peer, Peer]) -> None:
    box, sleeper, peer = crowd
    for number in range(400):
        produce(peer, f"p{number}", 1)
        assert len(rows(box)) <= LIMIT + 1
    assert sum(one.producers for one in box.node._broker.partition.led) == len(rows(box))
    assert len(rows(box)) >= LIMIT // 2
    assert len(sleeper.payloads()) == 400


def test_the_oldest_go_and_the_newest_stay(crowd: tuple[Box, Peer, Peer]) -> None:
    box, sleeper, peer = crowd
    for number in range(LIMIT + 20):
        produce(peer, "busy", number)
        produce(peer, f"p{number:03}", 1)
    left = rows(box)
    assert "busy" in left
    assert sorted(left)[1:] == [f"p{number:03}" for number in range(LIMIT + 21 - len(left), LIMIT + 20)]
    produce(peer, "busy", LIMIT + 19)
    produce(peer, f"p{LIMIT + 19:03}", 1)
    assert len(sleeper.payloads()) == 2 * (LIMIT + 20)


def test_the_limit_holds_after_a_crash(crowd: tuple[Box, Peer, Peer]) -> None:
    box, _, peer = crowd
    for number in range(LIMIT):
        produce(peer, f"p{number}", 1)
    box.crash()
    assert sum(one.producers for one in box.node._broker.partition.led) == LIMIT
    peer.connect()
    for number in range(30):
        produce(peer, f"q{number}", 1)
        assert len(rows(box)) <= LIMIT + 1


def test_who_is_heard_of_during_the_walk_stays(crowd: tuple[Box, Peer, Peer]) -> None:
    """The walk has seen its old row, and its new one is on its way to the disk."""
    box, sleeper, peer = crowd
    for number in range(LIMIT):
        produce(peer, f"p{number:03}", 1)
    box.hold_writes()
    peer.send(message("one too many", 1, 901), message("p000", 2, 902))
    assert box.node._broker.partition.producers._eviction is None, "the walk is over"
    box.release_writes()
    assert "p001" not in rows(box)
    assert "p000" in rows(box)
    produce(peer, "p000", 2)
    assert sleeper.payloads().count(b"p000 2") == 1
