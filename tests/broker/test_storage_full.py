"""A full disk: what must be kept is refused with 0x97, the rest goes on, and all is well when there is room again."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import V311, Publish, Will
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer
from tests.harness.version import BOTH


@pytest.fixture
def full(make: MakeBox) -> Box:
    """A box whose disk is full; the absent session `z` waits for `t`."""
    box = make(streams=[StreamConfig("s", b"stream/#")])
    peer = box.client("z")
    peer.resume()
    peer.subscribe("t", qos=1)
    peer.lose()
    keeper = box.client("keeper")
    keeper.connect()
    keeper.publish("r", b"kept", qos=1, retain=True)
    keeper.disconnect()
    box.storage(full=True)
    return box


def peer_of(box: Box, client_id: str) -> Peer:
    return next(peer for peer in box.peers if peer.client_id == client_id)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(("topic", "retain"), [("t", False), ("r", True), ("new", True), ("stream/x", False)])
def test_what_must_be_kept_is_refused(full: Box, qos: int, topic: str, retain: bool) -> None:
    peer = full.client("a")
    peer.connect()
    assert peer.publish(topic, b"m", qos=qos, retain=retain) == 0x97
    assert not peer.closed
    full.storage(full=False)
    assert peer.publish(topic, b"m", qos=qos, retain=retain) in (0, 0x10)


def test_what_needs_no_room_goes_on(full: Box) -> None:
    peer, other = full.client("a"), full.client("b")
    peer.connect()
    other.connect()
    assert peer.subscribe("live", qos=2) == [2]
    for qos in (0, 1, 2):
        assert other.publish("live", b"m", qos=qos) == 0
    assert len(peer.payloads()) == 3
    peer.subscribe("r")
    assert peer.payloads() == [b"kept"]


def test_a_stream_takes_no_qos_0_while_there_is_no_room(full: Box) -> None:
    peer = full.client("a")
    peer.connect()
    stream = full.node.streams.get("s")
    assert stream is not None
    peer.publish("stream/x", b"lost", qos=0)
    full.storage(full=False)
    peer.publish("stream/x", b"kept", qos=0)
    full.run()
    assert sum(log.readable_end for log in stream.logs) == 1
    assert full.node.counters.storage_refused == 1


@pytest.mark.parametrize("qos", [0, 1])
def test_clearing_makes_room(full: Box, qos: int) -> None:
    peer = full.client("a")
    peer.connect()
    peer.publish("r", b"", qos=qos, retain=True)
    full.crash()
    peer.connect()
    peer.subscribe("r")
    assert peer.payloads() == []


def test_lasting_sessions_cannot_begin(full: Box) -> None:
    peer, old = full.client("a"), full.client("b", V311)
    peer.connect(clean_start=False, session_expiry=100, code=0x97)
    old.connect(clean_start=False, code=3)
    peer.connect()
    old.connect()


def test_wills_cannot_be_kept(full: Box) -> None:
    full.client("a").connect(will=Will(b"w", b""), code=0x97)


@BOTH
def test_new_lasting_subscriptions_are_refused(make: MakeBox, version: int) -> None:
    box = make()
    peer = box.client("a", version)
    peer.resume()
    peer.subscribe("old", qos=1)
    box.storage(full=True)
    assert peer.subscribe("t", qos=1) == [0x97 if version == 5 else 0x80]
    assert peer.subscribe("old", qos=1) == [1], "many clients say again what they have said"
    box.storage(full=False)
    assert peer.subscribe("t", qos=1) == [1]


def test_nothing_acknowledged_is_lost(full: Box) -> None:
    peer = full.client("a")
    peer.connect()
    assert peer.publish("t", b"no", qos=1) == 0x97
    full.storage(full=False)
    assert peer.publish("t", b"yes", qos=1) == 0
    full.crash()
    sleeper = peer_of(full, "z")
    sleeper.resume()
    assert sleeper.payloads() == [b"yes"]


def test_an_absent_client_can_still_empty_its_queue(make: MakeBox) -> None:
    """Acknowledgements free room: they must go through."""
    box = make()
    source, peer = box.client("s"), box.client("a")
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=2)
    peer.lose()
    for qos in (1, 2):
        source.publish("t", b"%d" % qos, qos=qos)
    box.storage(full=True)
    assert peer.connect(clean_start=False, session_expiry=None).session_present
    assert peer.payloads() == [b"1", b"2"]


@BOTH
@pytest.mark.parametrize("with_will", [False, True])
def test_a_session_goes_on_as_it_was(make: MakeBox, version: int, with_will: bool) -> None:
    """Were it refused, what waits for it would hold the room for ever."""
    box = make()
    source, peer = box.client("s"), box.client("a", version)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=1)
    peer.lose()
    source.publish("t", b"waits", qos=1)
    box.storage(full=True)
    assert peer.resume(will=Will(b"w", b"") if with_will else None).session_present
    assert peer.payloads() == [b"waits"]
    peer.lose()
    assert peer.resume().session_present, "it is as lasting as before"


def test_full_and_room_are_events(full: Box) -> None:
    full.storage(full=False)
    assert [kind for kind in full.kinds() if kind.startswith("storage")] == ["storage_full", "storage_has_room"]


def test_qos_0_for_a_full_disk_is_dropped_silently(full: Box) -> None:
    peer = full.client("a")
    peer.connect()
    peer.send(Publish(b"t", b"m"), Publish(b"new", b"m", 0, True))
    peer.ping()
    full.storage(full=False)
    peer.subscribe("new")
    assert peer.payloads() == []
