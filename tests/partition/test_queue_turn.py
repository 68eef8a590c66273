"""What a queue cannot send in one turn, it sends in the next ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, Connect, Packet, Publish, Subscribe
from folkmoot.session.connection import PeerInfo
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster

STEPS = 4_096
RETURNING = 40


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_behind_a_burst_that_fills_the_output_comes_in_the_next_turn(
    make: MakeBox, lasting: bool, qos: int
) -> None:
    """The transport takes all of it, so that it never says that it has room again."""
    box = make(limits={"send_buffer_bytes_max": 65_536}, bystander=False)
    peer, source = box.client("a"), box.client("s")
    peer.connect(session_expiry=100 if lasting else None)
    peer.subscribe("#", qos=qos)
    source.connect()
    burst = [Publish(b"video", bytes(10_000), 0) for _ in range(8)]
    packets = [*burst, Publish(b"alarm", b"1", qos, packet_id=100)]
    source.raw(b"".join([encode(packet, V5) for packet in packets]))
    assert [topic for topic, _ in peer.messages()].count("alarm") == 1
    source.publish("alarm", b"2", qos=qos)
    assert peer.messages() == [("alarm", b"2")]


def test_a_message_behind_a_burst_to_another_node_comes() -> None:
    cluster = SimulatedCluster(2, limits={"send_buffer_bytes_max": 65_536})
    peer = cluster["n1"].client(cluster["n1"].names_led("c")[0])
    source = cluster["n2"].client("s")
    peer.connect()
    peer.subscribe("#", qos=1)
    source.connect()
    burst = [Publish(b"video", bytes(10_000), 0) for _ in range(8)]
    packets = [*burst, Publish(b"alarm", b"1", 1, packet_id=1)]
    source.raw(b"".join([encode(packet, V5) for packet in packets]))
    cluster.advance(SECOND)
    assert ("alarm", b"1") in peer.messages()


def let_expire(box: Box, messages: int) -> list[str]:
    """Absent sessions, each with many expired messages and a fresh one behind them."""
    source = box.client("s")
    source.connect()
    peers = [box.client(f"a{number}") for number in range(RETURNING)]
    for peer in peers:
        peer.resume()
        peer.subscribe("t", qos=1)
        peer.lose()
    for _ in range(messages):
        source.publish("t", b"old", qos=1, message_expiry=60)
    source.publish("t", b"fresh", qos=1)
    source.lose()
    box.advance(61 * SECOND)
    return [peer.client_id for peer in peers]


def return_at_once(box: Box, names: list[str], clean_start: bool = False) -> list[Peer]:
    """Let clients return in one turn."""
    peers = [box.client(name) for name in names]
    made = properties(session_expiry=EVER)
    for peer in peers:
        packet = Connect(V5, peer.client_id, clean_start, 0, None, None, None, made)
        peer._rules.sent_connect(packet)
        peer.connection = box.node.connect(peer, PeerInfo("tcp", "192.0.2.1:1"), box.now)
        box.node.receive(peer.connection, encode(packet, V5), box.now)
    return peers


def steps_per_turn(box: Box) -> Iterator[int]:
    """Run turns until there is nothing left to do, and yield the steps of each."""
    counters = box.node.counters
    before = counters.turn_steps
    while box.turn():
        yield counters.turn_steps - before
        before = counters.turn_steps


def test_clients_that_return_to_expired_messages_make_no_long_turn(make: MakeBox) -> None:
    box = make(limits={"turn_steps_max": STEPS, "page_rows": 16})
    peers = return_at_once(box, let_expire(box, 200))
    assert max(steps_per_turn(box)) < 3 * STEPS
    assert [peer.payloads() for peer in peers] == [[b"fresh"]] * RETURNING


def test_sessions_go_on_in_their_order(make: MakeBox) -> None:
    """However much each of them has to do, none waits until all before it are through with it."""
    box = make(limits={"turn_steps_max": STEPS, "page_rows": 16})
    names = let_expire(box, 400)
    return_at_once(box, names)
    sessions = [box.node._state.sessions[name] for name in names]
    spread = 0
    for _ in steps_per_turn(box):
        left = [session.queue_count for session in sessions]
        if min(left) > 1:
            spread = max(spread, max(left) - min(left))
    assert 0 < spread <= 2 * 8 * 16, "a round lets each of them read eight pages at most"


def test_a_new_session_does_not_wait_for_the_turn_of_the_one_that_it_replaces(make: MakeBox) -> None:
    box = make(limits={"turn_steps_max": STEPS, "page_rows": 16})
    names = let_expire(box, 400)
    peers = return_at_once(box, names)
    box.turn()
    (new,) = return_at_once(box, names[-1:], clean_start=True)
    unfinished = box.node._broker.partition.queue.unfinished
    assert new.connection is not None
    while new.connection.session is None or not new.inbox:
        box.turn()
    packets: list[Packet] = [Subscribe(1, [(b"u", 1)]), Publish(b"u", b"mine", 1, packet_id=2)]
    box.node.receive(new.connection, b"".join([encode(packet, V5) for packet in packets]), box.now)
    assert unfinished[new.client_id] is not new.connection.session
    box.run()
    assert new.payloads() == [b"mine"]
    assert [peer.payloads() for peer in peers[:-1]] == [[b"fresh"]] * (RETURNING - 1)
