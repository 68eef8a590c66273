"""Without a lease nothing leaves that a client may observe; the lease of a node without a cluster is set by hand."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.kernel.lease import PAUSE_US, UNTOLD_US
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.kind import PUBACK, PUBCOMP, PUBREC, PUBREL
from folkmoot.mqtt.packet import (
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
from folkmoot.streams.config import StreamConfig
from folkmoot.turn.message import OUTPUT
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site
from tests.harness.version import ALL

FAR_NS = NEVER - 1  # under leases, and far away


def test_clients_of_a_lost_node_are_told_before_their_sessions_begin_to_expire() -> None:
    assert PAUSE_US < UNTOLD_US


def grant(box: Box) -> None:
    """Give the node a lease that lasts."""
    box.node.lease(FAR_NS)
    box.run()


def end(box: Box) -> None:
    """End the lease of the node now."""
    box.node.lease(box.steady_ns())
    box.run()


@pytest.fixture
def box(make: MakeBox) -> Box:
    made = make(streams=[StreamConfig("s", b"s/#", 1)])
    grant(made)
    return made


def kinds(packets: list[Packet]) -> list[type[Packet]]:
    return [type(packet) for packet in packets]


EFFECTS: dict[str, tuple[Packet, list[type[Packet]]]] = {
    "PUBACK of what nobody wants": (Publish(b"nobody", b"m", 1, packet_id=1), [Ack]),
    "PUBREC": (Publish(b"nobody", b"m", 2, packet_id=1), [Ack]),
    "PUBCOMP": (Ack(PUBREL, 9), [Ack]),
    "SUBACK": (Subscribe(1, [(b"t", 0)]), [Suback]),
    "a retained message": (Subscribe(1, [(b"kept", 0)]), [Suback, Publish]),
    "a record of a stream": (Subscribe(1, [(b"$stream/s/earliest/s/#", 0)]), [Suback, Publish]),
    "UNSUBACK": (Unsubscribe(1, [b"t"]), [Unsuback]),
    "PINGRESP": (Pingreq(), [Pingresp]),
    "a delivery of QoS 0": (Publish(b"mine", b"m"), [Publish]),
}


@pytest.mark.parametrize("what", EFFECTS)
def test_each_effect_waits_for_the_lease(box: Box, what: str) -> None:
    request, answers = EFFECTS[what]
    peer = box.client("a", acks=False)
    peer.connect()
    peer.publish("kept", b"k", qos=1, retain=True)
    peer.publish("s/1", b"r", qos=1)
    peer.subscribe("mine")
    end(box)
    peer.send(request)
    box.advance(PAUSE_US // 2)
    assert peer.receive() == []
    grant(box)
    assert kinds(peer.receive()) == answers
    peer.ping()


@ALL
def test_connack_of_a_transient_session_waits(box: Box, version: int) -> None:
    end(box)
    peer = box.client("a", version).open()
    peer.send(Connect(version, "a", True, 0))
    assert peer.receive() == []
    grant(box)
    assert peer.expect(Connack).code == 0


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_delivery_waits(box: Box, qos: int) -> None:
    reader, writer = box.client("r"), box.client("w", acks=False)
    reader.resume()
    reader.subscribe("t", qos=qos)
    writer.connect()
    end(box)
    writer.send(Publish(b"t", b"m", qos, packet_id=7 if qos else 0))
    assert (reader.payloads(), writer.receive()) == ([], [])
    grant(box)
    assert reader.payloads() == [b"m"]
    assert len(writer.receive()) == (1 if qos else 0)


def test_what_was_withheld_leaves_in_order_and_before_what_is_new(box: Box) -> None:
    peer = box.client("a", acks=False)
    peer.connect()
    end(box)
    peer.send(Publish(b"x", b"", 1, packet_id=1), Pingreq(), Publish(b"x", b"", 2, packet_id=2), Pingreq())
    box.advance(PAUSE_US // 4)
    box.node.lease(FAR_NS)
    peer.send(Publish(b"x", b"", 1, packet_id=3))
    acks = [(one.kind, one.packet_id) if isinstance(one, Ack) else "ping" for one in peer.receive()]
    assert acks == [(PUBACK, 1), "ping", (PUBREC, 2), "ping", (PUBACK, 3)]


def test_rows_are_written_without_a_lease_and_qos_2_goes_on_after_it(box: Box) -> None:
    reader, peer = box.client("r"), box.client("a", acks=False)
    reader.resume()
    reader.subscribe("t", qos=2)
    peer.resume()
    end(box)
    peer.send(Publish(b"t", b"m", 2, packet_id=2))
    box.crash()
    grant(box)
    reader.resume()
    peer.resume()
    peer.send(Publish(b"t", b"m", 2, dup=True, packet_id=2))
    assert peer.expect(Ack).kind == PUBREC
    peer.send(Ack(PUBREL, 2))
    assert peer.expect(Ack).kind == PUBCOMP
    assert reader.payloads() == [b"m"]


def test_the_driver_looks_again_before_it_writes(box: Box) -> None:
    peer = box.client("a", acks=False)
    peer.connect()
    sent = box.node.counters.bytes_sent
    box.node.lease(box.steady_ns() + SECOND * 1000)
    box.stop_before_write_ns = 2 * SECOND * 1000
    peer.send(Publish(b"x", b"", 1, packet_id=1))
    assert peer.receive() == []
    assert box.stop_before_write_ns == 0, "it was stopped between the end of the turn and the write"
    assert box.node.counters.bytes_sent == sent
    grant(box)
    assert kinds(peer.receive()) == [Ack]
    assert box.node.counters.bytes_sent > sent


class AtTheBeginning(Box):
    """A planted bug: the lease is compared with the time at which the first bytes of the turn came."""

    began_ns = 0

    def decided_ns(self) -> int:
        return self.began_ns or self.steady_ns()


@pytest.mark.parametrize("planted", [False, True])
def test_what_is_decided_after_the_end_of_the_lease_does_not_leave(planted: bool) -> None:
    box = AtTheBeginning()
    peer = box.client("a", acks=False)
    peer.connect()
    assert peer.connection is not None
    until_ns = box.steady_ns() + SECOND * 1000
    box.node.lease(until_ns)
    if planted:
        box.began_ns = box.steady_ns()
    # The turn has begun; the process is stopped before it reads from this client's socket, and goes on.
    box.stopped_ns += 2 * SECOND * 1000
    box.node.receive(peer.connection, encode(Publish(b"x", b"", 1, packet_id=1), 5), box.now)
    box.node.seal(box.now)
    effects = box.node.drain(box.now, box.decided_ns())
    assert bool(effects.outputs) == planted
    peer.receive()


# The pause ends


@ALL
@pytest.mark.parametrize("reference", ["", "other:1883"])
def test_after_the_pause_clients_are_sent_elsewhere_without_what_was_withheld(
    make: MakeBox, version: int, reference: str
) -> None:
    box = make(server_reference=reference)
    grant(box)
    peer, silent = box.client("a", version, acks=False), box.client("b", version)
    peer.connect()
    silent.connect()
    code = 0x9C if reference else 0x89
    end(box)
    peer.send(Publish(b"x", b"", 1, packet_id=1), Pingreq())
    before = peer.wire
    box.advance(PAUSE_US - SECOND // 100)
    assert not peer.closed
    box.advance(SECOND // 50)
    peer.expect_close(code)
    silent.expect_close(code)
    assert not [packet for packet in peer.receive() if isinstance(packet, Ack | Pingresp)]
    if version < 5:
        assert peer.wire == before, "it is just closed"
    assert "lease_over" in box.kinds()


@ALL
def test_a_client_whose_connack_was_withheld_is_refused(box: Box, version: int) -> None:
    end(box)
    will = Will(b"will", b"gone", 1)
    peer = box.client("a", version).open()
    peer.send(Connect(version, "a", True, 0, None, None, will))
    box.advance(2 * PAUSE_US)
    assert peer.expect(Connack).code == (0x89 if version == 5 else 3)
    assert peer.receive() == []
    assert peer.closed
    grant(box)
    assert box.node.counters.wills_published == 0, "it was never let in"


@ALL
def test_new_clients_are_refused_after_the_pause_until_there_is_a_lease(box: Box, version: int) -> None:
    end(box)
    box.advance(2 * PAUSE_US)
    peer = box.client("a", version)
    peer.open().send(Connect(version, "a", True, 0))
    assert peer.expect(Connack).code == (0x89 if version == 5 else 3)
    assert peer.closed
    grant(box)
    again = box.client("b", version)
    again.connect()
    again.publish("x", b"", qos=1)


def test_the_end_of_a_close_in_order_waits_with_its_disconnect(box: Box) -> None:
    first, second = box.client("same"), box.client("same")
    first.connect()
    end(box)
    second.open()
    second.send(Connect(5, "same", True, 0))
    box.advance(PAUSE_US // 2)
    assert (first.closed, first.receive(), second.receive()) == (False, [], [])
    grant(box)
    first.expect_close(0x8E)
    assert second.expect(Connack).code == 0


def test_connections_are_handed_over_for_an_abort_of_what_the_transport_holds(box: Box) -> None:
    peer = box.client("a")
    peer.connect()
    connection = peer.connection
    end(box)
    assert box.drops == []
    box.advance(2 * PAUSE_US)
    assert connection in box.drops


# Bounds


def test_a_client_that_keeps_sending_is_not_read(box: Box) -> None:
    peer = box.client("a", acks=False)
    peer.connect()
    end(box)
    peer.send(Pingreq())
    assert peer.paused
    grant(box)
    assert not peer.paused
    assert kinds(peer.receive()) == [Pingresp]


def test_keep_alive_does_not_run_while_a_client_is_not_read(box: Box) -> None:
    peer = box.client("a", acks=False)
    peer.connect(keep_alive_s=1)
    box.advance(SECOND)
    end(box)
    peer.send(Pingreq())
    box.advance(PAUSE_US - SECOND // 100)
    peer.send(Pingreq())
    grant(box)
    box.advance(SECOND)
    assert not peer.closed
    assert kinds(peer.receive()) == [Pingresp, Pingresp]


@pytest.mark.parametrize("qos", [0, 1])
def test_deliveries_are_bounded_and_go_on_after_the_pause(make: MakeBox, qos: int) -> None:
    box = make(limits={"send_buffer_bytes_max": 10_000})
    grant(box)
    reader, writer = box.client("r"), box.client("w")
    reader.connect(receive_max=1000)
    reader.subscribe("t", qos=qos)
    writer.connect()
    assert reader.connection is not None
    end(box)
    for _ in range(100):
        writer.publish("t", bytes(1000))
    assert reader.connection.out_bytes < 12_000
    for number in range(50 if qos else 0):
        assert writer.connection is not None
        box.node.receive(writer.connection, encode(Publish(b"t", b"%d" % number, 1, packet_id=number + 1), 5), box.now)
    grant(box)
    box.run()
    payloads = reader.payloads()
    assert len([payload for payload in payloads if len(payload) == 1000]) >= 9, "the others were too many for QoS 0"
    assert [payload for payload in payloads if len(payload) < 1000] == [b"%d" % n for n in range(50 if qos else 0)]
    writer.publish("t", b"last")
    assert reader.payloads() == [b"last"]


def test_a_replay_waits_without_keeping_the_node_busy(make: MakeBox) -> None:
    box = make(streams=[StreamConfig("s", b"s/#", 1)], limits={"send_buffer_bytes_max": 5000})
    writer, reader = box.client("w"), box.client("r")
    writer.connect()
    for number in range(100):
        writer.publish("s/1", b"%03d" % number + bytes(500), qos=1)
    reader.connect()
    grant(box)
    end(box)
    reader.send(Subscribe(1, [(b"$stream/s/earliest/s/#", 0)]))  # `Box.run` would not return
    grant(box)
    reader.take(Suback)
    assert [int(payload[:3]) for payload in reader.payloads()] == list(range(100))


def test_a_client_that_goes_meanwhile_is_forgotten(box: Box) -> None:
    peer, other = box.client("a", acks=False), box.client("b")
    peer.connect()
    other.connect()
    end(box)
    peer.send(Pingreq())
    peer.lose()
    grant(box)
    other.ping()
    assert "a" not in [connection.client_id for connection in box.node.connections()]


def test_without_leases_there_is_nothing_to_look_at(make: MakeBox) -> None:
    box = make()
    assert box.node.speaks_until_ns == NEVER
    assert box.node.drain(box.now).until_ns == NEVER
    assert box.node.silence(NEVER - 1) == ""


def test_a_lease_needs_the_monotonic_clock(box: Box) -> None:
    with pytest.raises(AssertionError, match="monotonic"):
        box.node.drain(box.now)


# A cluster


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(3)


def led_client(at: Site, leader: Site, **named: object) -> Peer:
    peer = at.client(leader.names_led(f"c{at.name}")[0], acks=False)
    peer.connect(**named)  # type: ignore[arg-type]
    return peer


def test_answers_for_clients_of_another_node_wait_at_the_leader(cluster: SimulatedCluster) -> None:
    peer = led_client(cluster["n1"], cluster["n2"], session_expiry=EVER)
    cluster["n2"].end_lease()
    peer.send(Subscribe(1, [(b"t", 1)]))
    cluster.advance(PAUSE_US // 2)
    assert peer.receive() == [], "the node of the client has a lease, the leader of its session has none"
    cluster["n2"].grant_lease()
    assert kinds(peer.receive()) == [Suback]


def test_answers_of_another_node_wait_at_the_node_of_the_client(cluster: SimulatedCluster) -> None:
    peer = led_client(cluster["n1"], cluster["n2"], session_expiry=EVER)
    cluster["n1"].end_lease()
    peer.send(Subscribe(1, [(b"t", 1)]))
    cluster.advance(PAUSE_US // 2)
    assert peer.receive() == []
    cluster["n1"].grant_lease()
    assert kinds(peer.receive()) == [Suback]


def test_a_follower_without_a_lease_still_confirms_what_it_has_on_disk(cluster: SimulatedCluster) -> None:
    peer = led_client(cluster["n1"], cluster["n1"], session_expiry=EVER)
    topic = cluster["n1"].names_led("t")[0]
    cluster["n2"].end_lease()
    cluster["n3"].end_lease()
    peer.send(Publish(topic.encode(), b"m", 1, True, packet_id=1))
    cluster.run()
    assert kinds(peer.receive()) == [Ack]


def test_a_node_that_finds_itself_away_drops_what_it_withheld() -> None:
    cluster = SimulatedCluster(3, split_policy="majority")
    away = cluster["n3"]
    peer = led_client(away, away)
    reader = led_client(cluster["n1"], away, session_expiry=EVER)
    late = away.client(away.names_led("late")[0], acks=False).open()
    away.end_lease()
    peer.send(Publish(b"x", b"", 1, packet_id=1))
    reader.send(Unsubscribe(1, [b"t"]))
    late.send(Connect(5, late.client_id, True, 0))
    cluster.run()
    assert (peer.receive(), reader.receive(), late.receive()) == ([], [], [])
    assert [kind for _, _, kind, _ in away.cluster_node.fabric.withheld if kind == OUTPUT]
    cluster["n1"].cluster_node.membership.evict("n3", cluster.now)
    cluster.advance(PAUSE_US - SECOND // 10)
    assert away.cluster_node.fabric.idle, "before the pause is over"
    assert away.cluster_node.fabric.withheld == []
    peer.expect_close(0x89)
    assert kinds(peer.receive()) == [Disconnect], "no acknowledgement leaves with it"
    assert late.expect(Connack).code == 0x89
    assert late.receive() == []


def test_a_node_that_was_stopped_sends_nothing_and_then_learns_that_it_is_away(cluster: SimulatedCluster) -> None:
    away = cluster["n3"]
    peer = led_client(away, away)
    away.up = False
    cluster.advance(5 * SECOND)
    away.up = True
    peer.send(Publish(b"x", b"", 1, packet_id=1), Pingreq())
    cluster.advance(5 * SECOND)
    peer.expect_close(0x89)
    assert not [packet for packet in peer.receive() if isinstance(packet, Ack | Pingresp)]


def test_too_much_for_another_node_gives_its_link_up(cluster: SimulatedCluster) -> None:
    leader = cluster["n2"]
    peer = led_client(cluster["n1"], leader, session_expiry=EVER)
    leader.cluster_node.config.link_buffer_bytes_max = 1000
    leader.end_lease()
    for number in range(50):
        peer.send(Subscribe(number + 1, [(b"t/%d" % number, 1)]))
    cluster.run()
    assert "peer_too_slow" in leader.kinds()
    assert sum(len(body) for _, _, _, body in leader.cluster_node.fabric.withheld) <= 1000


@pytest.mark.parametrize("expiry_s", [1, 100])
def test_a_message_grows_older_while_it_waits_for_a_lease(cluster: SimulatedCluster, expiry_s: int) -> None:
    reader = cluster["n2"].client("reader")
    reader.connect()
    reader.subscribe("t", qos=1)
    publisher = led_client(cluster["n1"], cluster["n2"], session_expiry=EVER)
    cluster["n1"].end_lease()
    expiry = properties(message_expiry=expiry_s)
    publisher.send(Publish(b"t", b"old", 2, packet_id=1, properties=expiry))
    cluster.advance(2 * SECOND)
    cluster["n1"].grant_lease()
    cluster.advance(SECOND)
    assert reader.payloads() == ([] if expiry_s < 2 else [b"old"])
