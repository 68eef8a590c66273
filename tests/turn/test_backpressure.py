"""Whoever makes the node keep something is not read while there is too much of it; and nobody else is held up (A13)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import PUBREL, V5, Ack, Packet, Pingreq, Publish, Subscribe, Unsubscribe
from folkmoot.node import Effects
from folkmoot.session.connection import Connection, PeerInfo
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.wire import connect, prop, props, subscribe, text

ANSWERS: dict[str, Callable[[int], Packet]] = {
    "subscribe": lambda number: Subscribe(number, [(b"x/%d" % (number % 50), 1)]),
    "unsubscribe what is not there": lambda number: Unsubscribe(number, [b"nothing"]),
    "release what is not there": lambda number: Ack(PUBREL, number),
}


def drain(box: Box) -> Effects:
    """End a turn and do nothing of what it wants."""
    return box.node.drain(box.now)


@pytest.mark.parametrize("what", ANSWERS)
def test_answers_that_wait_for_the_disk_are_a_backlog_too(make: MakeBox, what: str) -> None:
    box = make(limits={"write_backlog_bytes_max": 20_000})
    peer = box.client("a")
    peer.resume()
    box.hold_writes()
    peer.send(Subscribe(1, [(b"t", 1)]))
    number = 1
    while not peer.paused:
        number += 1
        assert number < 1_000
        peer.send(ANSWERS[what](number))
    box.release_writes()
    assert not peer.paused
    assert len(peer.receive()) == number
    peer.ping()


@pytest.mark.parametrize("how", ["stream", "retained", "offline queue"])
def test_qos_0_that_is_stored_waits_for_the_disk(make: MakeBox, how: str) -> None:
    streams = [StreamConfig("log", b"t/#", 1)] if how == "stream" else []
    box = make(streams=streams, limits={"write_backlog_bytes_max": 20_000, "queue_qos0_offline": True})
    sleeper, peer, other = box.client("z"), box.client("a"), box.client("b")
    if how == "offline queue":
        sleeper.resume()
        sleeper.subscribe("t/#", qos=1)
        sleeper.lose()
    peer.connect()
    other.connect()
    box.hold_writes()
    for number in range(100):
        peer.send(Publish(b"t/%d" % number, bytes(1_000), 0, how == "retained"))
    assert peer.paused
    other.ping()
    box.release_writes()
    box.advance(2 * SECOND)
    assert not peer.paused
    peer.ping()


def test_the_rate_limit_does_not_depend_on_what_others_write(make: MakeBox) -> None:
    """A batch that becomes durable lets those go on who waited for the disk, and no others."""
    box = make(limits={"publish_rate_max": 10})
    watcher, peer, writer = box.client("w"), box.client("a"), box.client("b")
    watcher.connect()
    watcher.subscribe("t")
    peer.connect()
    writer.resume()
    for _ in range(5):
        for _ in range(10):
            assert not peer.paused
            peer.send(Publish(b"t", b"m"))
        assert peer.paused
        writer.subscribe("x")  # a row, and a batch
        assert peer.paused
        box.advance(SECOND)
    assert len(watcher.payloads()) == 50


def test_the_rate_limit_ends_also_on_a_full_disk(make: MakeBox) -> None:
    box = make(limits={"publish_rate_max": 2})
    peer = box.client("a")
    peer.connect()
    box.storage(True)
    for _ in range(4):
        peer.send(Publish(b"t", b"m"))
    assert peer.paused
    box.advance(2 * SECOND)
    assert not peer.paused


def test_a_full_disk_holds_nobody_back_when_nothing_waits_for_it_any_more(make: MakeBox) -> None:
    """docs/operate.md: what would have to be stored is refused, and transient clients publish as usual."""
    box = make(limits={"write_backlog_bytes_max": 20_000})
    sleeper, watcher, peer = box.client("z"), box.client("w"), box.client("a")
    sleeper.resume()
    sleeper.subscribe("t", qos=1)
    sleeper.lose()
    watcher.connect()
    watcher.subscribe("live")
    peer.connect()
    box.hold_writes()
    accepted = 21  # a message more than fits
    peer.send(*[Publish(b"t", bytes(1_000), 1, packet_id=number + 1) for number in range(accepted)])
    box.storage(True)
    box.advance(SECOND)
    assert peer.paused, "what it has sent is not written yet"
    box.release_writes()
    box.advance(SECOND)
    assert not peer.paused
    assert [packet.code for packet in peer.receive() if isinstance(packet, Ack)] == [0] * accepted
    peer.publish("live", b"m")
    assert watcher.payloads() == [b"m"]
    assert [peer.publish("t", bytes(1_000), qos=1) for _ in range(2 * accepted)] == [0x97] * 2 * accepted
    assert box.node.counters.publisher_pauses == 1
    box.storage(False)
    assert peer.publish("t", b"m", qos=1) == 0


def test_the_rate_limit_holds_for_messages_that_come_in_one_piece(make: MakeBox) -> None:
    """What has been read is handled; then nothing is read until the average is right."""
    box = make(limits={"publish_rate_max": 10})
    watcher, peer = box.client("w"), box.client("a")
    watcher.connect()
    watcher.subscribe("t")
    peer.connect()
    peer.send(*[Publish(b"t", b"m")] * 100)
    assert len(watcher.payloads()) == 100
    box.advance(10 * SECOND - 1)
    assert peer.paused
    box.advance(1)
    assert not peer.paused


def test_reasons_to_pause_end_one_by_one(make: MakeBox) -> None:
    box = make(limits={"publish_rate_max": 10, "write_backlog_bytes_max": 10_000})
    sleeper, peer = box.client("z"), box.client("a")
    sleeper.resume()
    sleeper.subscribe("t", qos=1)
    sleeper.lose()
    peer.connect()
    box.hold_writes()
    peer.send(*[Publish(b"t", bytes(1_000), 1, packet_id=number) for number in range(1, 21)])
    assert peer.paused
    box.advance(2 * SECOND)
    assert peer.paused, "the disk is not done"
    box.release_writes()
    box.advance(2 * SECOND)
    assert not peer.paused
    assert box.node.counters.publishers_paused == 0


def drive(box: Box, connection: Connection, written: bool) -> bool:
    """End a turn and do of its effects what the store does; return whether the connection is to be read."""
    effects = drain(box)
    if effects.write is not None:
        box.store.apply(effects.write)
        if written:
            box.node.written(effects.write.token, box.now)
    assert connection not in effects.resumes
    return connection not in effects.pauses


def flood(box: Box, connection: Connection, written: bool) -> int:
    """Send pings while the connection is read, and let somebody else write meanwhile; return their bytes."""
    other = box.node.connect(None, PeerInfo("tcp", "192.0.2.1:1"), box.now)
    box.node.receive(other, connect(V5, text("other"), properties=props(prop(0x11, b"\xff" * 4))), box.now)
    came, read = 0, True
    for number in range(1, 100):
        box.node.receive(other, subscribe(V5, ("x", 1), packet_id=number), box.now)
        if read:
            box.node.receive(connection, b"\xc0\0" * 500, box.now)
            came += 1_000
            read = drive(box, connection, written)
        else:
            drive(box, connection, written)
    assert not read
    return came


def test_a_flood_while_the_password_is_checked_is_not_read(make: MakeBox) -> None:
    """However often the batches of others become durable in the meantime."""
    box = make(bystander=False, limits={"connect_bytes_max": 4_096}, check=lambda *_: True)
    box.config.allow_anonymous = True
    connection = box.node.connect(None, PeerInfo("tcp", "192.0.2.2:1"), box.now)
    box.node.receive(connection, connect(V5, text("a"), text("u"), text("p"), flags=0xC2), box.now)
    assert [check.connection for check in drain(box).checks] == [connection]
    came = flood(box, connection, True)
    assert 1_024 <= came <= 3 * 4_096  # the limit of a client that is being checked, and a read beyond it
    box.node.authenticated(connection, True, box.now)
    effects = drain(box)
    assert effects.resumes == [connection]
    assert connection.take_output().count(b"\xd0\0") == came // 2


def test_a_flood_while_the_session_is_stored_is_not_read(make: MakeBox) -> None:
    box = make(bystander=False, limits={"connect_bytes_max": 4_096})
    connection = box.node.connect(None, PeerInfo("tcp", "192.0.2.2:1"), box.now)
    box.node.receive(connection, connect(V5, text("a"), properties=props(prop(0x11, b"\xff" * 4))), box.now)
    first = drain(box).write
    assert first is not None
    came = flood(box, connection, False)
    assert 4_096 <= came <= 3 * 4_096
    box.node.written(first.token, box.now)
    assert drain(box).resumes == [connection]
    assert connection.take_output().count(b"\xd0\0") == came // 2


def test_who_is_lost_while_paused_is_forgotten(make: MakeBox) -> None:
    box = make(limits={"write_backlog_bytes_max": 2_000})
    sleeper, peer = box.client("z"), box.client("a")
    sleeper.resume()
    sleeper.subscribe("t", qos=1)
    sleeper.lose()
    box.hold_writes()
    for _ in range(5):
        peer.connect()
        peer.send(*[Publish(b"t", bytes(1_000), 1, packet_id=number) for number in range(1, 4)])
        assert peer.paused
        peer.lose()
    assert box.node.counters.publishers_paused == 0
    assert len(box.node._broker.turn.throttle.paused) == 0
    box.release_writes()


def test_who_asks_and_reads_nothing_is_cut_off(make: MakeBox) -> None:
    box = make(limits={"send_buffer_bytes_max": 10_000})
    peer = box.client("a")
    peer.connect()
    assert peer.connection is not None
    box.node.writable(peer.connection, False, box.now)
    for _ in range(30):
        peer.raw(encode(Pingreq(), V5) * 500)
        if peer.closed:
            break
    peer.expect_close(0x97)
    assert len(peer.wire) < 3 * 10_000


def test_who_reads_in_the_end_is_not_cut_off(make: MakeBox) -> None:
    box = make(limits={"send_buffer_bytes_max": 10_000})
    peer = box.client("a")
    peer.connect()
    for _ in range(30):
        assert peer.connection is not None
        box.node.writable(peer.connection, False, box.now)
        peer.raw(encode(Pingreq(), V5) * 500)
        box.node.writable(peer.connection, True, box.now)
    peer.ping()


def test_pausing_and_resuming_in_one_turn_ends_as_it_ends(make: MakeBox) -> None:
    box = make(limits={"write_backlog_bytes_max": 2_000})
    sleeper, peer = box.client("z"), box.client("a")
    sleeper.resume()
    sleeper.subscribe("t", qos=1)
    sleeper.lose()
    peer.connect()
    connection = peer.connection
    assert connection is not None
    chunk = b"".join([encode(Publish(b"t", bytes(1_500), 1, packet_id=number), V5) for number in (1, 2)])
    box.node.receive(connection, chunk, box.now)
    effects = drain(box)
    assert (effects.pauses, effects.resumes) == ([connection], [])
    assert effects.write is not None
    box.store.apply(effects.write)
    box.node.written(effects.write.token, box.now)
    box.node.receive(connection, chunk, box.now)  # what the driver had read before it was told
    effects = drain(box)
    assert (effects.pauses, effects.resumes) == ([connection], [])


def test_nothing_is_written_to_a_connection_that_was_lost_in_the_same_turn(box: Box) -> None:
    source, peer = box.client("s"), box.client("a")
    source.connect()
    peer.connect()
    peer.subscribe("t")
    assert source.connection is not None
    assert peer.connection is not None
    box.node.receive(source.connection, encode(Publish(b"t", b"m"), V5), box.now)
    box.node.lost(peer.connection, "reset", box.now)
    lost, peer.connection = peer.connection, None
    effects = drain(box)
    assert lost not in effects.outputs
    box.node.receive(source.connection, encode(Pingreq(), V5), box.now)
    assert drain(box).outputs == [source.connection]
