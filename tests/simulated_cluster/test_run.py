"""Runs of PUBLISH packets that cross from node to node: what arrives is what would arrive of one message at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import PUBACK, PUBREC, PUBREL, V5, V311, Ack, Publish
from folkmoot.turn.message import encode_run, read_run_head
from tests.harness.box import Box
from tests.harness.peer import Peer, properties
from tests.harness.simulated_cluster import SimulatedBox, SimulatedCluster, Site

COUNT = 20
TOPIC = "runs/a"


def run_of(qos: int, payloads: list[bytes], first_id: int = 1, topic: str = TOPIC) -> list[Publish]:
    return [
        Publish(topic.encode(), payload, qos, False, False, first_id + number if qos else 0)
        for number, payload in enumerate(payloads)
    ]


def numbered(count: int = COUNT) -> list[bytes]:
    return [b"%03d" % number for number in range(count)]


def messages_between(source: Site, target: Site) -> tuple[int, int]:
    return source.node.counters.cluster_messages_sent, target.node.counters.cluster_messages_received


Listen = Callable[[Peer], object]
LISTENERS: dict[str, tuple[int, dict[str, object], Listen]] = {
    "plain v3": (V311, {}, lambda peer: peer.subscribe(TOPIC, qos=2)),
    "plain v5": (V5, {}, lambda peer: peer.subscribe(TOPIC, qos=2)),
    "QoS 0": (V5, {}, lambda peer: peer.subscribe("runs/+", qos=0)),
    "QoS 1": (V311, {}, lambda peer: peer.subscribe("runs/#", qos=1)),
    "identifiers": (V5, {}, lambda peer: (peer.subscribe(TOPIC, qos=1, subscription_id=7), peer.subscribe("#", qos=2))),
    "no local": (V5, {}, lambda peer: peer.subscribe(TOPIC, qos=1, no_local=True)),
    "as published": (V5, {}, lambda peer: peer.subscribe(TOPIC, qos=1, as_published=True)),
    "aliases": (V5, {"topic_alias_max": 5}, lambda peer: peer.subscribe(TOPIC, qos=1)),
    "small packets": (V5, {"packet_max": 64}, lambda peer: peer.subscribe(TOPIC, qos=2)),
    "small window": (V5, {"receive_max": 2}, lambda peer: peer.subscribe(TOPIC, qos=2)),
    "persistent": (V5, {"session_expiry": 100}, lambda peer: peer.subscribe(TOPIC, qos=2)),
    "shared": (V5, {}, lambda peer: peer.subscribe("$share/g/" + TOPIC, qos=2)),
}


def seen(peer: Peer) -> list[tuple[int, bytes, bool, list[int]]]:
    found = []
    for packet in peer.publishes():
        ids = packet.properties.subscription_ids if packet.properties is not None else None
        found.append((packet.qos, packet.payload, packet.retain, sorted(ids or [])))
    return found


def play(box: Box, version: int, qos: int, names: list[str]) -> dict[str, list[tuple[int, bytes, bool, list[int]]]]:
    """Publish a run to these listeners, and to the publisher itself; return what each has got."""
    peers: dict[str, Peer] = {}
    for name in names:
        of_version, wishes, listen = LISTENERS[name]
        peers[name] = box.client(name, of_version)
        peers[name].connect(**wishes)  # type: ignore[arg-type]
        listen(peers[name])
    source = box.client("source", version)
    source.connect()
    source.subscribe(TOPIC, qos=1)
    payloads = [*numbered(), b"much longer than the others " * 3] * 2
    source.send(*run_of(qos, payloads))
    if qos == 2:
        source.send(*[Ack(PUBREL, number + 1) for number in range(len(payloads))])
    acks = [packet.packet_id for packet in source.inbox if isinstance(packet, Ack)]
    assert len(acks) == qos * len(payloads)
    return {name: seen(peer) for name, peer in [*peers.items(), ("source", source)]}


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("name", [*LISTENERS, "all"])
def test_three_nodes_give_what_one_gives(version: int, qos: int, name: str) -> None:
    names = list(LISTENERS) if name == "all" else [name]
    many, one = play(SimulatedBox(), version, qos, names), play(Box(), version, qos, names)
    for listener, expected in one.items():
        assert many[listener] == expected, listener


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_runs_keep_their_place_among_other_messages(qos: int) -> None:
    cluster = SimulatedCluster(3)
    readers = [cluster[name].client(f"r-{name}") for name in ("n2", "n3")]
    for reader in readers:
        reader.connect()
        reader.subscribe("runs/#", qos=qos)
    source = cluster["n1"].client("source")
    source.connect()
    special = properties(user_properties=[("a", "b")])
    packets = run_of(qos, [b"1", b"2", b"3"])
    packets.append(Publish(TOPIC.encode(), b"4", qos, False, False, 10 if qos else 0, special))
    packets += run_of(qos, [b"5", b"6"], 20)
    packets.append(Publish(TOPIC.encode(), b"7", qos, True, False, 30 if qos else 0))
    packets += run_of(qos, [b"8", b"9"], 40)
    source.send(*packets)
    for reader in readers:
        assert [packet.payload for packet in reader.publishes()] == [b"%d" % number for number in range(1, 10)]


def test_a_run_goes_only_to_nodes_that_need_it_and_is_counted() -> None:
    cluster = SimulatedCluster(3)
    reader = cluster["n2"].client("reader")
    reader.connect()
    reader.subscribe(TOPIC)
    source = cluster["n1"].client("source")
    source.connect()
    sent, received = messages_between(cluster["n1"], cluster["n2"])
    others = cluster["n3"].node.counters.cluster_messages_received
    source.send(*run_of(0, numbered()))
    assert messages_between(cluster["n1"], cluster["n2"]) == (sent + COUNT, received + COUNT)
    assert cluster["n3"].node.counters.cluster_messages_received == others
    assert cluster["n1"].node.counters.publish_unmatched == 0
    reader.disconnect()
    source.send(*run_of(0, numbered()))
    assert messages_between(cluster["n1"], cluster["n2"]) == (sent + COUNT, received + COUNT)
    assert cluster["n1"].node.counters.publish_unmatched == COUNT


def test_packets_that_were_repeated_do_not_cross_again() -> None:
    cluster = SimulatedCluster(3)
    reader = cluster["n2"].client("reader")
    reader.connect()
    reader.subscribe(TOPIC, qos=2)
    source = cluster["n1"].client("source")
    source.connect()
    source.send(*run_of(2, [b"3", b"4"], 3))
    source.send(*run_of(2, [b"1", b"2", b"3", b"4", b"5", b"6"], 1))
    assert reader.payloads() == [b"3", b"4", b"1", b"2", b"5", b"6"]
    answers = [ack.packet_id for ack in source.receive() if isinstance(ack, Ack) and ack.kind == PUBREC]
    assert answers == [3, 4, 1, 2, 3, 4, 5, 6]


def test_what_stands_before_a_fault_crosses() -> None:
    cluster = SimulatedCluster(3)
    reader = cluster["n2"].client("reader")
    reader.connect()
    reader.subscribe(TOPIC, qos=1)
    source = cluster["n1"].client("source", V311)
    source.connect()
    packets = [encode(packet, V311) for packet in run_of(1, [b"1", b"2", b"3"])]
    packets[2] = packets[2][:-3] + b"\0\0" + packets[2][-1:]  # packet id 0
    source.raw(b"".join(packets))
    source.expect_close(None)
    assert reader.payloads() == [b"1", b"2"]
    assert [packet.packet_id for packet in source.receive() if isinstance(packet, Ack)] == [1, 2]


@pytest.mark.parametrize("version", [V311, V5])
def test_qos_2_of_a_persistent_session_elsewhere_survives_its_connection(version: int) -> None:
    cluster = SimulatedCluster(3)
    leaders = cluster["n1"].node.cluster_node
    assert leaders is not None
    name = next(
        name
        for name in (f"source-{number}" for number in range(1000))
        if leaders.fabric.leaders[hash64(name.encode()) % cluster.partitions] == "n2"
    )
    reader = cluster["n1"].client("reader")
    reader.connect()
    reader.subscribe(TOPIC, qos=2)
    source = cluster["n1"].client(name, version)
    source.resume()
    source.publish(TOPIC, b"0")  # from now on it is known who gets the topic
    source.send(*run_of(2, [b"1", b"2"]))
    source.lose()
    again = cluster["n3"].client(name, version)
    again.resume()
    repeated = [Publish(TOPIC.encode(), payload, 2, False, True, number) for number, payload in ((1, b"1"), (2, b"2"))]
    again.send(*repeated)
    assert reader.payloads() == [b"0", b"1", b"2"]


def test_a_version_5_client_is_told_that_nobody_listens_anywhere() -> None:
    cluster = SimulatedCluster(3)
    source = cluster["n1"].client("source")
    source.connect()
    source.send(*run_of(1, [b"1", b"2"]))
    assert [packet.code for packet in source.receive() if isinstance(packet, Ack)] == [0x10, 0x10]
    reader = cluster["n3"].client("reader")
    reader.connect()
    reader.subscribe(TOPIC)
    source.send(*run_of(1, [b"1", b"2"], 5))
    answers = [packet for packet in source.receive() if isinstance(packet, Ack)]
    assert [(ack.kind, ack.packet_id, ack.code) for ack in answers] == [(PUBACK, 5, 0), (PUBACK, 6, 0)]


def test_nonsense_instead_of_a_run_is_refused() -> None:
    packets = encode(Publish(b"t", b"1", 0, False, False, 0), V311) * 3
    body = encode_run("p", False, len(packets) // 3, 5, packets)
    assert read_run_head(body) == ("p", False, 6, 5, len(body) - len(packets))
    for cut in range(len(body)):
        if (len(body) - cut) % 6 or cut >= len(packets):
            with pytest.raises(IndexError):
                read_run_head(body[: len(body) - cut] if cut else body + b"x")
    for total, head in ((0, 0), (6, 7), (6, 3), (5, 5)):
        with pytest.raises((IndexError, ZeroDivisionError)):
            read_run_head(encode_run("p", False, total, head, packets))
