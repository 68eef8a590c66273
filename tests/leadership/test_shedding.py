"""A node short of memory: publishers wait, clients are refused, then those for which most waits go; the others stay."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.leadership.shedding import held_by
from folkmoot.mqtt.packet import Connect, Publish
from folkmoot.turn.memory import CALM, REFUSING, Memory
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer

BUDGET = 4_000_000
PIECE = 40_000  # bytes of a message


def memory(box: Box) -> Memory:
    return box.node._state.memory


def tight(make: MakeBox, **limits: int | bool) -> Box:
    return make(limits={"memory_bytes_max": BUDGET, **limits})


def deaf(box: Box, name: str, topic: str, *, stored: bool = False) -> Peer:
    """A client that subscribes and then reads no more."""
    peer = box.client(name)
    if stored:
        peer.resume()
    else:
        peer.connect()
    peer.subscribe(topic, qos=1)
    assert peer.connection is not None
    box.node.writable(peer.connection, False, box.now)
    return peer


def flood(box: Box, publisher: Peer, topic: str, size: int) -> None:
    """Publish so many bytes, waiting as long as the node wants."""
    for _ in range(size // PIECE):
        publisher.publish(topic, bytes(PIECE), qos=1)
        box.advance(2 * SECOND if publisher.paused else 1000)


def test_it_refuses_clients_and_subscriptions_until_there_is_room(make: MakeBox) -> None:
    box = tight(make)
    here, publisher = box.client("here"), box.client("publisher")
    here.connect()
    publisher.connect()
    slow = deaf(box, "slow", "t")
    flood(box, publisher, "t", BUDGET * 80 // 100)
    assert box.node.counters.overload > 0
    assert box.node._state.overload_why == "memory"
    assert memory(box).stage == CALM
    flood(box, publisher, "t", BUDGET * 6 // 100)
    assert memory(box).stage == REFUSING
    assert box.kinds().count("memory_short") == 1
    box.client("late").connect(code=0x89)
    assert here.subscribe("more") == [0x97]
    here.publish("bystander/else", b"")
    assert (box.node.counters.memory_refused_connections, box.node.counters.memory_refused_subscriptions) == (1, 1)
    assert slow.connection is not None, "nobody who is connected has to go"
    slow.lose()
    box.advance(20 * SECOND)
    assert memory(box).stage == CALM
    assert box.kinds().count("memory_has_room") == 1
    box.client("late").connect()
    assert here.subscribe("more") == [0]
    assert memory(box).ready_bytes == memory(box).ready_count == memory(box).unsent_bytes == 0


def test_no_password_is_checked_of_a_client_that_would_be_refused(make: MakeBox) -> None:
    """Until its check it would be in memory with its CONNECT, and checks wait."""
    asked: list[str | None] = []

    def check(username: str | None, _password: bytes | None, _client_id: str) -> bool:
        asked.append(username)
        return True

    box = make(limits={"memory_bytes_max": BUDGET}, check=check)
    publisher = box.client("publisher")
    publisher.connect(username="ann", password=b"secret")
    slow = box.client("slow")
    slow.connect(username="ann", password=b"secret")
    slow.subscribe("t", qos=1)
    assert slow.connection is not None
    box.node.writable(slow.connection, False, box.now)
    flood(box, publisher, "t", BUDGET * 87 // 100)
    assert memory(box).stage == REFUSING
    asked.clear()
    box.client("late").connect(username="bob", password=b"secret", code=0x89)
    box.client("old", version=4).connect(username="bob", password=b"secret", code=3)
    assert asked == []
    assert box.node.counters.memory_refused_connections == 2


def test_who_waits_for_a_check_with_much_is_found_by_what_its_packets_take(make: MakeBox) -> None:
    box = tight(make)
    peer = box.client("waits")
    peer.connect()
    connection = peer.connection
    assert connection is not None
    assert held_by(connection) < 1000, "nothing is kept of a CONNECT that was answered"
    connection.connect = Connect(5, "waits", True, 0, None, None, None, None)
    connection.connect_bytes = 60_000
    connection.connect_body = bytes(50_000)
    assert held_by(connection) >= 110_000


def test_a_client_that_reads_nothing_keeps_others_out_for_ten_seconds_only(make: MakeBox) -> None:
    box = tight(make)
    publisher = box.client("publisher")
    publisher.connect()
    slow = deaf(box, "slow", "t")
    for _ in range(BUDGET * 86 // 100 // PIECE):
        publisher.publish("t", bytes(PIECE), qos=1)
        box.advance(SECOND // 4 if publisher.paused else 1000)
    assert memory(box).stage == REFUSING
    box.client("late").connect(code=0x89)
    box.advance(10 * SECOND)
    publisher.ping()
    assert slow.closed
    box.advance(SECOND)
    box.client("late").connect()


def test_the_client_for_which_most_waits_goes_and_no_other(make: MakeBox) -> None:
    box = tight(make)
    publisher, reader = box.client("publisher"), box.client("reader")
    publisher.connect()
    reader.connect()
    reader.subscribe("#", qos=1)
    little, much = deaf(box, "little", "little"), deaf(box, "much", "much")
    flood(box, publisher, "little", 10 * PIECE)
    flood(box, publisher, "much", BUDGET)
    assert much.closed
    assert much.close_code == 0x97
    assert little.connection is not None
    assert len(reader.payloads()) == 10 + BUDGET // PIECE, "whoever reads gets everything meanwhile"
    assert box.node.counters.memory_dropped_clients == 1
    assert box.node.counters.memory_dropped_bytes > BUDGET // 2
    assert "memory_full" in box.kinds()
    assert [event.fields["client"] for event in box.events if event.kind == "client_shed"] == ["much"]
    box.advance(20 * SECOND)
    assert memory(box).stage == CALM
    much.connect()


def test_a_stored_session_loses_nothing_of_qos_1(make: MakeBox) -> None:
    """Its queue is on disk; what is in memory of it is a part of that."""
    box = tight(make, send_buffer_bytes_max=BUDGET * 2, inflight_max=1000)
    publisher = box.client("publisher")
    publisher.connect()
    stored = box.client("stored")
    stored.acks = False
    stored.resume()
    stored.subscribe("t", qos=1)
    assert stored.connection is not None
    box.node.writable(stored.connection, False, box.now)
    count = 0
    while stored.connection is not None:
        publisher.publish("t", b"%06d" % count + bytes(PIECE), qos=1)
        count += 1
        box.advance(2 * SECOND if publisher.paused else 1000)
        assert count < 1000
    assert stored.close_code == 0x97
    stored.inbox.clear()
    stored.acks = True
    box.advance(20 * SECOND)
    stored.resume()
    assert [int(payload[:6]) for payload in stored.payloads()] == list(range(count))


def test_incomplete_packets_and_aliases_are_memory_too(make: MakeBox) -> None:
    box = tight(make, topic_alias_max=64)
    greedy = box.client("greedy")
    greedy.connect()
    for alias in range(1, 60):
        greedy.publish("t" * 60_000, b"", topic_alias=alias)
        box.advance(2 * SECOND)
    assert memory(box).alias_bytes == 59 * 60_000
    assert memory(box).stage == REFUSING
    greedy.raw(b"\x30\xc0\x84\x3d" + bytes(900_000))
    box.advance(2000)
    greedy.raw(bytes(1000))
    assert greedy.closed
    assert greedy.close_code == 0x97
    assert (memory(box).alias_bytes, memory(box).parts_bytes) == (0, 0)


def test_only_as_many_go_as_are_necessary(make: MakeBox) -> None:
    box = tight(make, connections_max=200)
    walk = box.node._broker.shedding
    publisher = box.client("publisher")
    publisher.connect()
    deaf_ones = [deaf(box, f"deaf{number}", "t") for number in range(10)]
    flood(box, publisher, "t", BUDGET // 10 + 100_000)
    gone = [peer for peer in deaf_ones if peer.closed]
    assert 1 <= len(gone) < 10
    box.advance(20 * SECOND)
    assert not walk.busy()


def test_nothing_is_left_of_clients_that_have_gone(make: MakeBox) -> None:
    box = tight(make)
    publisher = box.client("publisher")
    publisher.connect()
    for number in range(5):
        peer = deaf(box, f"d{number}", "t", stored=number % 2 == 0)
        publisher.publish("t", bytes(1000), qos=1)
        assert peer.connection is not None
        peer.send(Publish(b"x", b"", 1, packet_id=1))
        peer.raw(b"\x30\xff\x3f" + bytes(500))
        if number % 2:
            peer.lose()
        else:
            box.node.writable(peer.connection, True, box.now)
            box.run()
            peer.lose()
    counts = memory(box)
    found = (counts.ready_bytes, counts.ready_count, counts.unsent_bytes, counts.parts_bytes, counts.relay_bytes)
    assert found == (0, 0, 0, 0, 0)
