"""What one turn may take, and what one connection may keep: bounded also when everything comes at once."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, Publish
from folkmoot.protocol.ingress import merge_tail
from tests.harness.fixture import MakeBox


def test_sessions_that_end_in_the_same_second_end_over_several_turns(make: MakeBox) -> None:
    box = make()
    for number in range(1_000):
        peer = box.client(f"p{number}")
        peer.resume(session_expiry=10)
        peer.lose()
    box.now += 11 * SECOND
    turns, before = 0, len(box.node._state.sessions)
    while box.turn():
        turns += 1
        left = len(box.node._state.sessions)
        assert before - left <= 256
        before = left
    assert before == 1, "the bystander's"
    assert turns >= 4


@pytest.mark.parametrize("step", [1, 2, 3, 100, 700])
def test_a_packet_that_comes_in_crumbs_takes_little_more_than_its_bytes(make: MakeBox, step: int) -> None:
    box = make()
    watcher, peer = box.client("w"), box.client("a")
    watcher.connect()
    watcher.subscribe("t")
    peer.connect()
    connection = peer.connection
    assert connection is not None
    data = encode(Publish(b"t", bytes(range(256)) * 200), V5)
    most = 0
    for at in range(0, len(data), step):
        box.node.receive(connection, data[at : at + step], box.now)
        most = max(most, len(connection.parts or []))
    box.run()
    assert watcher.payloads() == [bytes(range(256)) * 200]
    assert most <= len(data) // 256 + 512


def test_merging_keeps_the_bytes_and_leaves_large_pieces_alone() -> None:
    large = bytes(1_000)
    parts = [b"a", large, b"b", b"cd"]
    merge_tail(parts)
    assert parts == [b"a", large, b"bcd"]
    assert parts[1] is large
    parts = [b"", b"x"]
    merge_tail(parts)
    assert parts == [b"x"]
    parts = [large, large]
    merge_tail(parts)
    assert parts == [large, large]
