"""A turn ends when its steps are spent: who causes work waits for it, and nothing is lost or overtaken (A13)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt import reason
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import (
    PUBACK,
    PUBREL,
    V5,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer
from tests.harness.version import BOTH

STEPS = 256
PACKET_STEPS = 1200
"""Of the most expensive packet in these tests."""


def wire(packets: Sequence[Packet], version: int = V5) -> bytes:
    return b"".join(encode(packet, version) for packet in packets)


def come(box: Box, peer: Peer, data: bytes) -> None:
    """Input arrives; the turn that it belongs to has not ended."""
    assert peer.connection is not None
    box.node.receive(peer.connection, data, box.now)


def steps_of(box: Box) -> int:
    return box.node._state.work.last_served


def turns(box: Box) -> int:
    """Run to rest; return the number of turns. None of them takes more steps than it may."""
    count = 1
    while box.turn():
        assert steps_of(box) <= 2 * STEPS + 2 * PACKET_STEPS
        count += 1
        assert count < 20_000
    return count


@pytest.fixture
def box(make: MakeBox) -> Box:
    return make(limits={"turn_steps_max": STEPS, "receive_max": 65_535})


def listener(box: Box, *filters: str, name: str = "listener", version: int = V5, persistent: bool = False) -> Peer:
    peer = box.client(name, version)
    if persistent:
        peer.resume()
    else:
        peer.connect()
    peer.subscribe(*filters, qos=2)
    return peer


@BOTH
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_burst_takes_many_turns_and_arrives_complete_and_in_order(
    box: Box, version: int, persistent: bool, qos: int
) -> None:
    reader = listener(box, "a/#", persistent=persistent)
    peer = box.client("p", version)
    peer.connect()
    packets: list[Packet] = [
        Publish(b"a/%d" % (number % 3), b"%d" % number, qos, False, False, number + 1 if qos else 0)
        for number in range(600)
    ]
    come(box, peer, wire(packets, version))
    assert turns(box) > 5
    assert [int(payload) for payload in reader.payloads()] == list(range(600))
    if qos == 1:
        acks = [packet.packet_id for packet in peer.receive() if isinstance(packet, Ack) and packet.kind == PUBACK]
        assert acks == list(range(1, 601))


FLOODS: dict[str, list[Packet]] = {
    "pings": [Pingreq()] * 3000,
    "acknowledgements": [Ack(PUBACK, 7)] * 3000,
    "releases": [Ack(PUBREL, 7)] * 3000,
    "two topics": [Publish(b"f/%d" % (number % 2), b"x") for number in range(3000)],
    "many topics": [Publish(b"f/%d" % number, b"x") for number in range(1500)],
    "retained": [Publish(b"f/%d" % number, b"x", 0, True) for number in range(800)],
    "subscriptions": [Subscribe(1, [(b"s/%d/+" % number, 0)]) for number in range(500)],
    "one subscription": [Subscribe(1, [(b"s", 0)])] * 500,
    "removals": [Unsubscribe(1, [b"s"])] * 1500,
    "many filters": [Subscribe(1, [(b"s/%d/+" % number, 0) for number in range(500)])],
    "many removals": [
        Subscribe(1, [(b"s/%d" % number, 0) for number in range(500)]),
        Unsubscribe(2, [b"s/%d" % number for number in range(500)]),
    ],
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_delays_no_other_client_by_more_than_a_turn(box: Box, flood: str) -> None:
    attacker, other = box.client("flood"), box.client("other")
    attacker.connect()
    other.connect()
    come(box, attacker, wire(FLOODS[flood]))
    assert box.turn()
    answered = 0
    waited = 0
    while box.node._state.work.is_waiting():
        come(box, other, wire([Pingreq()]))
        assert box.turn()
        assert steps_of(box) <= 2 * STEPS + 2 * PACKET_STEPS
        answered += sum(isinstance(packet, Pingresp) for packet in other.receive())
        waited += 1
    assert waited > 1
    assert answered == waited


def test_a_filter_costs_by_its_length_although_it_is_refused(box: Box) -> None:
    """What is checked takes time: a client that sends filters in vain waits like any other."""
    count = []
    for number, name in enumerate([b"+a", b"+a" + b"/+" * 120]):
        peer = box.client(f"p{number}")
        peer.connect()
        come(box, peer, wire([Subscribe(1, [(name, 0)] * 500)]))
        count.append(turns(box))
        packet = peer.inbox[-1]
        assert isinstance(packet, Suback)
        assert set(packet.codes) == {reason.TOPIC_FILTER_INVALID}
    assert count[1] > 3 * count[0]


def test_floods_of_many_clients_share_the_turns(box: Box) -> None:
    """Ten clients with the same burst are finished at about the same time; an eleventh with one packet comes first."""
    peers = [box.client(f"p{number}") for number in range(10)]
    late = box.client("late")
    for peer in [*peers, late]:
        peer.connect()
    for peer in peers:
        come(box, peer, wire([Publish(b"a/%d" % number, b"x") for number in range(200)] + [Pingreq()]))
    box.turn()
    come(box, late, wire([Pingreq()]))
    box.turn()
    assert [type(packet) for packet in late.receive()] == [Pingresp]
    ends: list[int] = []
    for turn in itertools.count():
        ends += [turn for peer in peers if any(isinstance(packet, Pingresp) for packet in peer.receive())]
        if not box.turn():
            break
    assert len(ends) == 10
    assert ends[0] > 0.8 * ends[-1]


def test_the_socket_of_a_client_whose_input_waits_is_not_read(box: Box) -> None:
    peer = box.client("p")
    peer.connect()
    connection = peer.connection
    assert connection is not None
    come(box, peer, b"\xc0\x00" * 50_000)
    box.turn()
    assert connection.reading_paused
    turns(box)
    assert not connection.reading_paused
    assert len(peer.receive()) == 50_000


@BOTH
def test_subscribe_with_many_filters_is_answered_once_and_before_what_follows(box: Box, version: int) -> None:
    peer = box.client("p", version)
    peer.connect()
    entries = [(b"s/%d/x" % number, number % 3) for number in range(1000)]
    names = [name for name, _ in entries]
    come(box, peer, wire([Subscribe(1, entries), Pingreq(), Unsubscribe(2, names[:600]), Pingreq()], version))
    assert turns(box) > 20
    answers = peer.receive()
    assert [type(packet) for packet in answers] == [Suback, Pingresp, Unsuback, Pingresp]
    assert isinstance(answers[0], Suback)
    assert answers[0].codes == [number % 3 for number in range(1000)]
    if version == V5:
        assert isinstance(answers[2], Unsuback)
        assert answers[2].codes == [0] * 600
    source = box.client("s")
    source.connect()
    source.publish("s/599/x", b"no")
    source.publish("s/600/x", b"yes")
    assert peer.payloads() == [b"yes"]


def test_a_stored_subscription_that_takes_several_turns_survives(box: Box) -> None:
    peer = box.client("p")
    peer.resume()
    come(box, peer, wire([Subscribe(1, [(b"s/%d" % number, 1) for number in range(300)])]))
    turns(box)
    assert [type(packet) for packet in peer.receive()] == [Suback]
    box.crash()
    peer.resume()
    source = box.client("s")
    source.connect()
    for number in (0, 150, 299):
        source.publish(f"s/{number}", b"%d" % number, qos=1)
    assert peer.payloads() == [b"0", b"150", b"299"]


def test_a_client_that_is_lost_during_its_subscribe_leaves_nothing(box: Box) -> None:
    peer = box.client("p")
    peer.connect()
    come(box, peer, wire([Subscribe(1, [(b"s/%d/+" % number, 0) for number in range(1000)])]))
    box.turn()
    peer.lose()
    box.run()
    state = box.node._state
    assert not [name for name in state.tree.filters if name.startswith(b"s/")]
    assert not state.work.is_waiting()


# -- the end of a connection whose input waits ------------------------------------------------------------------------


@BOTH
def test_what_a_client_sent_before_its_connection_ended_counts(box: Box, version: int) -> None:
    """Its DISCONNECT too: no will."""
    reader = listener(box, "a", "will")
    peer = box.client("p", version)
    peer.connect(will=Will(b"will", b"gone", 0, False))
    packets: list[Packet] = [Publish(b"a", b"%d" % number, number % 2, packet_id=number % 2) for number in range(600)]
    come(box, peer, wire([*packets, Disconnect()], version))
    peer.lose()
    assert [int(payload) for payload in reader.payloads()] == list(range(600))
    assert not box.node._state.connections.keys() - {reader.connection.id, box.peers[0].connection.id}  # type: ignore[union-attr]


@BOTH
@pytest.mark.parametrize("returns", [False, True])
def test_what_a_client_sent_without_waiting_for_connack_counts(box: Box, version: int, returns: bool) -> None:
    """It says all it has to say at once, and is gone before its session is on the disk: no will (3.1.4)."""
    reader = listener(box, "a", "will")
    others = len(box.node.connections())
    peer = box.client("p", version).open()
    box.hold_writes()
    connect = Connect(version, "p", True, 0, None, None, Will(b"will", b"gone", 0, False))
    come(box, peer, wire([connect, Publish(b"a", b"m"), Disconnect()], version))
    peer.lose()
    again = box.client("p", version)
    if returns:
        again.open()
        come(box, again, wire([Connect(version, "p", True)], version))
    box.release_writes()
    assert reader.payloads() == [b"m"]
    assert len(box.node.connections()) == others + returns
    assert [type(packet) for packet in again.receive()] == [Connack] * returns


def test_a_client_that_is_gone_and_cannot_be_let_in_leaves_nothing(box: Box) -> None:
    """Nobody reports the end of its connection a second time."""
    reader = listener(box, "a")
    peer = box.client("p").open()
    box.hold_writes()
    come(box, peer, wire([Connect(V5, "p", True, 0, None, None, Will(b"a", b"gone", 0, False)), Publish(b"a", b"m")]))
    peer.lose()
    box.stop()
    box.release_writes()
    box.run()
    assert reader.closed
    assert not box.node.connections()


def test_a_client_that_returns_is_admitted_when_its_earlier_input_is_handled(box: Box) -> None:
    reader = listener(box, "a", "will")
    peer = box.client("p")
    peer.connect(will=Will(b"will", b"gone", 0, False))
    packets: list[Packet] = [Publish(b"a", b"%d" % number, 1, packet_id=number + 1) for number in range(600)]
    come(box, peer, wire([*packets, Disconnect()]))
    connection = peer.connection
    assert connection is not None
    peer.connection = None
    box.node.lost(connection, "reset", box.now)
    box.turn()
    again = box.client("p")
    again.connect()
    assert [int(payload) for payload in reader.payloads()] == list(range(600))
    again.publish("a", b"last")
    assert reader.payloads() == [b"last"]


def test_without_disconnect_the_will_comes_behind_what_was_sent(box: Box) -> None:
    reader = listener(box, "a", "will")
    peer = box.client("p")
    peer.connect(will=Will(b"will", b"gone", 0, False))
    come(box, peer, wire([Publish(b"a", b"%d" % number) if number % 2 else Pingreq() for number in range(900)]))
    peer.lose()
    assert reader.payloads() == [b"%d" % number for number in range(900) if number % 2] + [b"gone"]


def test_a_fault_behind_much_input_ends_the_connection_after_it(box: Box) -> None:
    reader = listener(box, "a/#")
    peer = box.client("p")
    peer.connect()
    come(box, peer, wire([Publish(b"a/%d" % number, b"x") for number in range(400)]) + b"\xf0\x01\x00\x00")
    turns(box)
    assert len(reader.payloads()) == 400
    peer.expect_close(0x82, 0x81)


def test_a_session_with_many_subscriptions_ends_at_once_and_is_removed_in_steps(box: Box) -> None:
    peer, source = box.client("p"), box.client("s")
    peer.connect()
    source.connect()
    state = box.node._state
    before = len(state.tree)
    for at in range(0, 2000, 500):
        peer.subscribe(*[f"s/{number}/+" for number in range(at, at + 500)])
    source.publish("s/1/x", b"cached route")
    assert peer.payloads() == [b"cached route"]
    connection, peer.connection = peer.connection, None
    assert connection is not None
    box.node.lost(connection, "reset", box.now)
    box.turn()
    assert len(state.tree) > before + 1000
    unmatched = box.node.counters.publish_unmatched
    come(box, source, wire([Publish(b"s/1/x", b"nobody"), Publish(b"s/1999/y", b"nobody")]))
    assert turns(box) > 5
    assert box.node.counters.publish_unmatched == unmatched + 2
    assert len(state.tree) == before
    peer.connect()
    peer.subscribe("s/1/+")
    source.publish("s/1/x", b"again")
    assert peer.payloads() == [b"again"]


def test_many_sessions_that_expire_at_once_do_not_share_a_turn(box: Box) -> None:
    for number in range(40):
        peer = box.client(f"p{number}")
        peer.connect(session_expiry=5)
        peer.subscribe(*[f"e/{number}/{part}/+" for part in range(60)])
        peer.disconnect()
    box.now += 6 * SECOND
    turns_before = box.node.counters.turns
    box.run()
    assert box.node.counters.sessions_expired == 40
    assert box.node.counters.turns - turns_before >= 40  # each has more subscriptions than a turn removes


# -- look-ups ---------------------------------------------------------------------------------------------------------


def wide(levels: int, last: str = "#") -> list[str]:
    return ["/".join(part) + "/" + last for part in itertools.product("a+", repeat=levels)]


def test_filters_of_a_session_have_a_bounded_number_of_patterns(make: MakeBox) -> None:
    box = make(limits={"filter_patterns_max": 100})
    peer = box.client("p")
    peer.connect()
    filters = wide(7)  # 128, of which one has no +
    codes = peer.subscribe(*filters)
    assert codes.count(0) == 101
    assert codes.count(0x97) == 27
    refused = filters[codes.index(0x97)]
    assert peer.subscribe(*[f"b/{number}/+/c" for number in range(50)])[0] == 0x97
    known = [name for name, code in zip(filters, codes, strict=True) if code == 0 and "+" in name]
    peer.unsubscribe(known[0])
    assert peer.subscribe(*[f"b/{number}/+/c" for number in range(300)]) == [0] * 300
    assert peer.subscribe(refused) == [0x97]
    assert peer.subscribe(known[1]) == [0]


def test_a_session_is_in_a_bounded_number_of_groups_that_get_the_same_message(make: MakeBox) -> None:
    box = make(limits={"filter_patterns_max": 5})
    peer = box.client("p")
    peer.connect()
    assert peer.subscribe(*[f"$share/g{number}/#" for number in range(7)]) == [0] * 5 + [0x97] * 2
    assert peer.subscribe(*[f"$share/g1/{number}" for number in range(200)], "plain/#") == [0] * 201, "one group"
    assert peer.subscribe("$share/g1/+") == [0x97]
    peer.unsubscribe("$share/g0/#")
    assert peer.subscribe("$share/g1/+", "$share/g1/+/x", "+") == [0, 0x97, 0x97]


def test_the_sessions_of_a_user_share_what_is_beyond_the_usual(make: MakeBox) -> None:
    """Eight patterns of each session are free; the others count together."""
    box = make(limits={"user_filter_patterns_max": 3})
    filters = ["/".join("+" * count) for count in range(1, 11)]
    first, second = box.client("a"), box.client("b")
    first.connect()
    second.connect()
    assert first.subscribe(*filters) == [0] * 10, "two count"
    assert second.subscribe(*filters) == [0] * 9 + [0x97]
    assert second.subscribe("x/#", "x/y/+/+") == [0, 0x97]
    first.unsubscribe(filters[0])
    assert second.subscribe(filters[9]) == [0]
    second.lose()
    assert first.subscribe(filters[0], "$share/g/#", "$share/h/#") == [0, 0, 0x97]


def test_patterns_of_a_stored_session_are_counted_after_a_restart(make: MakeBox) -> None:
    box = make(limits={"filter_patterns_max": 3})
    peer = box.client("p")
    peer.resume()
    assert peer.subscribe("+/a", "+/b", "a/+", "$share/g/+/+") == [0, 0, 0, 0]
    box.restart()
    peer.resume()
    assert peer.subscribe("+", "+/c", "+/+/#") == [0x97, 0, 0x97]


def crowd(box: Box, count: int) -> list[Peer]:
    peers: list[Peer] = []
    for number in range(count):
        peer = box.client(f"w{number}", acks=True)
        peer.connect()
        peer.subscribe(*wide(8, f"{number % 3}/#"))
        peers.append(peer)
    return peers


def test_a_look_up_takes_as_many_turns_as_it_needs_and_delivers_once(box: Box) -> None:
    peers = crowd(box, 6)
    source = box.client("s")
    source.connect()
    come(
        box,
        source,
        wire(
            [
                Publish(b"a/" * 8 + b"1/x", b"m%d" % number, number % 3, packet_id=number % 3 and number + 1)
                for number in range(3)
            ]
        ),
    )
    assert turns(box) > 5
    for number, peer in enumerate(peers):
        assert peer.payloads() == ([b"m0", b"m1", b"m2"] if number % 3 == 1 else [])


def test_another_publisher_does_not_wait_for_a_look_up(box: Box) -> None:
    crowd(box, 4)
    reader = listener(box, "other")
    slow, quick = box.client("slow"), box.client("quick")
    slow.connect()
    quick.connect()
    come(box, slow, wire([Publish(b"a/" * 8 + b"%d" % number, b"x") for number in range(20)]))
    box.turn()
    come(box, quick, wire([Publish(b"other", b"m")]))
    box.turn()
    assert reader.payloads() == [b"m"]
    turns(box)


def test_subscriptions_that_change_during_a_look_up(box: Box) -> None:
    """Who has left gets nothing; who has come may get the message; later messages go exactly where they should."""
    peers = crowd(box, 4)
    source, new = box.client("s"), box.client("new")
    source.connect()
    new.connect()
    topic = b"a/" * 8 + b"1/x"
    come(box, source, wire([Publish(topic, b"first", 1, packet_id=1)]))
    box.turn()
    assert not source.receive()
    lost = peers[1]
    connection, lost.connection = lost.connection, None
    assert connection is not None
    box.node.lost(connection, "reset", box.now)
    come(box, new, wire([Subscribe(1, [(topic, 0), (b"a/+/#", 0)])]))
    turns(box)
    (ack,) = source.receive()
    assert isinstance(ack, Ack)
    assert new.payloads() in ([], [b"first"])
    source.publish(topic.decode(), b"second")
    assert new.payloads() == [b"second"]
    assert [peer.payloads() for peer in peers if peer is not lost] == [[], [], []]


def test_a_connection_that_ends_during_its_look_up_publishes_first(box: Box) -> None:
    peers = crowd(box, 4)
    source = box.client("s")
    source.connect()
    come(box, source, wire([Publish(b"a/" * 8 + b"1/x", b"m")]))
    source.lose()
    assert peers[1].payloads() == [b"m"]


def test_connack_comes_although_others_flood(box: Box) -> None:
    for number in range(5):
        attacker = box.client(f"f{number}")
        attacker.connect()
        come(box, attacker, wire([Publish(b"f/%d" % part, b"x") for part in range(500)]))
    box.turn()
    late = box.client("late").open()
    come(box, late, wire([Connect(V5, "late")]))
    box.turn()
    box.turn()
    assert [type(packet) for packet in late.receive()] == [Connack]
    box.run()
