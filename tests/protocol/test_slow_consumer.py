"""A client that does not read: QoS 0 is dropped for it alone, QoS 1 and 2 wait, nothing grows without end."""

from __future__ import annotations

import pytest

from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer
from tests.harness.version import BOTH


def stalled(box: Box, version: int, lasting: bool = False) -> Peer:
    """A subscriber whose network connection takes nothing more."""
    peer = box.client("slow", version)
    peer.resume() if lasting else peer.connect()
    peer.subscribe("t", qos=1)
    assert peer.connection is not None
    box.node.writable(peer.connection, False, box.now)
    return peer


def flow_again(box: Box, peer: Peer) -> None:
    assert peer.connection is not None
    box.node.writable(peer.connection, True, box.now)
    box.run()


@BOTH
def test_qos_0_is_dropped_for_the_slow_one_only(box: Box, version: int) -> None:
    peer, quick, source = stalled(box, version), box.client("quick", version), box.client("s")
    quick.connect()
    quick.subscribe("t")
    source.connect()
    for number in range(10):
        source.publish("t", b"%d" % number)
    assert quick.payloads() == [b"%d" % number for number in range(10)]
    flow_again(box, peer)
    source.publish("t", b"after")
    assert peer.payloads() == [b"after"]
    assert box.node.counters.dropped_qos0_slow == 10


@BOTH
@pytest.mark.parametrize("lasting", [False, True])
def test_qos_1_waits_for_the_slow_one(box: Box, version: int, lasting: bool) -> None:
    peer, source = stalled(box, version, lasting), box.client("s")
    source.connect()
    for number in range(50):
        source.publish("t", b"%d" % number, qos=1)
    assert peer.payloads() == []
    flow_again(box, peer)
    assert peer.payloads() == [b"%d" % number for number in range(50)]


def test_the_output_of_one_turn_is_bounded(make: MakeBox) -> None:
    box = make(limits={"send_buffer_bytes_max": 10_000})
    peer, source = box.client("a"), box.client("s")
    peer.connect()
    source.connect()
    peer.subscribe("t", qos=1)
    assert source.connection is not None
    one = b"\x30\xeb\x07\x00\x01t\x00" + bytes(999)
    for _ in range(30):
        box.node.receive(source.connection, one, box.now)
    box.run()
    got = peer.payloads()
    assert 10 <= len(got) <= 12
    assert box.node.counters.dropped_qos0_slow == 30 - len(got)


@BOTH
def test_pings_are_answered_to_a_slow_client(box: Box, version: int) -> None:
    peer = stalled(box, version)
    peer.ping()
