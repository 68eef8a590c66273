"""A publisher that asks is told where its message was made durable, and on how many nodes: alone and in a cluster."""

from __future__ import annotations

from folkmoot.kernel.feature import FEATURES, RECEIPTS, TOGETHER, features_on
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt import reason
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import PUBREC, PUBREL, Ack, Publish
from folkmoot.node.node import Node
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.status import NodeStatus
from folkmoot.store.key import partition_end, partition_start
from folkmoot.store.writer import version_of
from folkmoot.streams.config import StreamConfig
from folkmoot.turn.receipt import PLACES_MAX
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site

ASK = [("folkmoot-receipt", "1")]
PARTITIONS = 8


def status_of(node: Node) -> dict[str, object]:
    return NodeStatus(picture_of(node)).status()


def place(replicas: int, epoch: int, partition: int, sequence: int) -> list[tuple[str, str]]:
    return [
        ("folkmoot-replicas", str(replicas)),
        ("folkmoot-epoch", str(epoch)),
        ("folkmoot-partition", str(partition)),
        ("folkmoot-sequence", str(sequence)),
    ]


def places(ack: Ack) -> dict[int, tuple[int, int, int]]:
    """What a receipt says: partition -> (replicas, epoch, sequence)."""
    found: dict[int, tuple[int, int, int]] = {}
    pairs = [] if ack.properties is None else ack.properties.user_properties
    at = 0
    while at + 4 <= len(pairs):
        names = [name for name, _ in pairs[at : at + 4]]
        assert names == ["folkmoot-replicas", "folkmoot-epoch", "folkmoot-partition", "folkmoot-sequence"]
        replicas, epoch, partition, sequence = (int(value) for _, value in pairs[at : at + 4])
        found[partition] = (replicas, epoch, sequence)
        at += 4
    return found


def pairs_of(ack: Ack) -> list[tuple[str, str]]:
    return [] if ack.properties is None else ack.properties.user_properties


def publish(peer: Peer, topic: str, qos: int = 1, payload: bytes = b"m", retain: bool = False) -> Ack:
    """Publish with the wish for a receipt; return the acknowledgement that has it."""
    packet_id = peer.packet_id()
    wish = properties(user_properties=ASK)
    peer.send(Publish(topic.encode(), payload, qos, retain, False, packet_id, wish))
    ack = peer.take(Ack, packet_id)
    if qos == 2:
        assert ack.kind == PUBREC
        peer.send(Ack(PUBREL, packet_id))
        assert pairs_of(peer.take(Ack, packet_id)) == []
    return ack


def has(store_of: Box, partition: int, epoch: int, sequence: int) -> bool:
    """Whether a store has a row of that change."""
    rows = store_of.store.scan(partition_start(partition), partition_end(partition), 1000)
    return any(version_of(value) == (epoch, sequence) for _, value in rows)


def sleeper(box: Box, client_id: str, topic_filter: str, qos: int = 2) -> Peer:
    peer = box.client(client_id)
    peer.connect(session_expiry=EVER)
    peer.subscribe(topic_filter, qos=qos)
    peer.lose()
    return peer


def partition(name: str, count: int = PARTITIONS) -> int:
    return hash64(name.encode()) % count


# -- one node -----------------------------------------------------------------------------------------------------


def test_a_node_alone_names_the_change(make: MakeBox) -> None:
    box = make()
    sleeper(box, "sleeper", "t")
    peer = box.client("a")
    peer.connect()
    for qos in (1, 2):
        ack = publish(peer, "t", qos)
        assert ack.code == reason.SUCCESS
        (at, (replicas, epoch, sequence)) = next(iter(places(ack).items()))
        assert at == partition("sleeper", box.config.partitions)
        assert replicas == 1
        assert has(box, at, epoch, sequence)
    assert places(publish(peer, "t"))[at][2] > sequence


def test_nothing_stored_is_said_too(make: MakeBox) -> None:
    box = make()
    peer, other = box.client("a"), box.client("b")
    peer.connect()
    other.connect()
    other.subscribe("t", qos=1)
    for topic, code in (("t", reason.SUCCESS), ("nobody", reason.NO_MATCHING_SUBSCRIBERS)):
        for qos in (1, 2):
            ack = publish(peer, topic, qos)
            assert ack.code == code
            assert pairs_of(ack) == [("folkmoot-replicas", "0")]


def test_who_does_not_ask_is_not_told(make: MakeBox) -> None:
    box = make()
    sleeper(box, "s", "t")
    peer = box.client("a")
    peer.connect()
    peer.send(Publish(b"t", b"m", 1, packet_id=7, properties=properties(user_properties=[("other", "1")])))
    assert pairs_of(peer.take(Ack, 7)) == []


def test_a_refused_message_has_no_receipt(make: MakeBox) -> None:
    box = make()
    peer = box.client("a")
    peer.connect()
    ack = publish(peer, "$SYS/x")
    assert ack.code == reason.NOT_AUTHORIZED
    assert [name for name, _ in pairs_of(ack)] == []


def test_without_problem_information_no_acknowledgement_has_user_properties(make: MakeBox) -> None:
    """[MQTT-3.1.2-29]"""
    box = make()
    sleeper(box, "s", "t")
    peer = box.client("a")
    peer.connect(request_problem=0)
    for qos in (1, 2):
        assert pairs_of(publish(peer, "t", qos)) == []


def test_a_receipt_never_makes_a_packet_too_large(make: MakeBox) -> None:
    """[MQTT-3.4.2-3] [MQTT-3.5.2-3]"""
    box = make()
    for number in range(6):
        sleeper(box, f"s{number}", "t")
    peer = box.client("a")
    peer.connect()
    whole = len(encode(publish(peer, "t"), 5))
    lengths = set()
    for packet_max in range(30, whole + 2, 10):
        peer.lose()
        peer.connect(packet_max=packet_max)
        ack = publish(peer, "t")
        assert len(encode(ack, 5)) <= packet_max
        lengths.add(len(places(ack)))
    assert 0 in lengths
    assert max(lengths) > 1


def test_a_receipt_names_so_many_partitions_and_counts_the_rest(make: MakeBox) -> None:
    box = make()
    names = [f"s{number}" for number in range(PLACES_MAX + 30)]
    for name in names:
        sleeper(box, name, "t")
    peer = box.client("a")
    peer.connect()
    ack = publish(peer, "t")
    everywhere = {partition(name, box.config.partitions) for name in names}
    assert len(places(ack)) == PLACES_MAX
    assert set(places(ack)) < everywhere
    assert pairs_of(ack)[-1] == ("folkmoot-more", str(len(everywhere) - PLACES_MAX))


def test_retained_messages_and_streams_are_places_too(make: MakeBox) -> None:
    box = make(streams=[StreamConfig("log", b"log/#", 1)])
    peer = box.client("a")
    peer.connect()
    ack = publish(peer, "kept", retain=True)
    assert set(places(ack)) == {partition("kept", box.config.partitions)}
    cleared = publish(peer, "kept", payload=b"", retain=True)
    assert set(places(cleared)) == set(places(ack))
    ack = publish(peer, "log/x")
    ((at, (replicas, epoch, sequence)),) = places(ack).items()
    assert replicas == 1
    assert has(box, at, epoch, sequence)


def test_what_a_producer_repeats_was_stored_at_the_latest_then(make: MakeBox) -> None:
    box = make()
    sleeper(box, "s", "t")
    peer = box.client("a")
    peer.connect()
    found = []
    for packet_id in (1, 2):
        wish = properties(user_properties=[*ASK, ("folkmoot-producer", "p"), ("folkmoot-seq", "1")])
        peer.send(Publish(b"t", b"m", 1, packet_id=packet_id, properties=wish))
        found.append(places(peer.take(Ack, packet_id)))
    first, second = found
    assert set(first) == set(second) == {partition("s", box.config.partitions)}
    for at in first:
        assert first[at][2] <= second[at][2]


def test_the_wish_is_forwarded_as_it_came(make: MakeBox) -> None:
    """[MQTT-3.3.2-17] User properties reach the subscribers unaltered, whatever they mean to the server."""
    box = make()
    peer, other = box.client("a"), box.client("b")
    peer.connect()
    other.connect()
    other.subscribe("t", qos=1)
    publish(peer, "t")
    (message,) = other.publishes()
    assert message.properties is not None
    assert message.properties.user_properties == ASK


def test_a_receipt_waits_in_its_place(make: MakeBox) -> None:
    """[MQTT-4.6.0-2] Acknowledgements leave in the order of their messages, with a receipt or without."""
    box = make()
    sleeper(box, "s", "t")
    peer = box.client("a")
    peer.connect()
    box.hold_writes()
    wish = properties(user_properties=ASK)
    peer.send(
        Publish(b"t", b"1", 1, packet_id=1),
        Publish(b"t", b"2", 1, packet_id=2, properties=wish),
        Publish(b"nobody", b"3", 1, packet_id=3, properties=wish),
        Publish(b"t", b"4", 1, packet_id=4),
    )
    assert peer.receive() == []
    box.release_writes()
    acks = [ack for ack in peer.receive() if isinstance(ack, Ack)]
    assert [ack.packet_id for ack in acks] == [1, 2, 3, 4]
    assert [len(pairs_of(ack)) for ack in acks] == [0, 4, 1, 0]


# -- three nodes --------------------------------------------------------------------------------------------------


def leader_of(cluster: SimulatedCluster, at: int) -> Site:
    cluster_node = cluster.live()[0].node.cluster_node
    assert cluster_node is not None
    return cluster[cluster_node.fabric.leaders[at]]


def named(at: int, nth: int = 0) -> str:
    """A client id whose partition is `at`."""
    return [f"c{number}" for number in range(200) if partition(f"c{number}") == at][nth]


def test_every_node_names_the_same_change_and_all_replicas() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    for number in range(PARTITIONS):
        sleeper(cluster["n1"], named(number), "t")
    for site in cluster.live():
        peer = site.client()
        peer.connect()
        for qos in (1, 2):
            found = places(publish(peer, "t", qos))
            assert set(found) == set(range(PARTITIONS))
            for at, (replicas, epoch, sequence) in found.items():
                assert replicas == 3
                for other in cluster.live():
                    assert has(other, at, epoch, sequence)


def test_a_publisher_whose_node_leads_nothing_of_it() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    at = 0
    sleeper(cluster["n1"], named(at), "t")
    site = next(site for site in cluster.live() if site is not leader_of(cluster, at))
    peer = site.client()
    peer.connect()
    ((found, (replicas, epoch, sequence)),) = places(publish(peer, "t")).items()
    assert (found, replicas) == (at, 3)
    assert has(leader_of(cluster, at), at, epoch, sequence)


def test_a_publisher_whose_session_is_elsewhere() -> None:
    """QoS 2 of a persistent session goes through the session's leader, and its outbox entry to the others."""
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    for number in range(PARTITIONS):
        sleeper(cluster["n1"], named(number), "t")
    for number in range(PARTITIONS):
        site = next(site for site in cluster.live() if site is not leader_of(cluster, number))
        peer = site.client(named(number, 1))
        peer.connect(session_expiry=EVER)
        for qos in (1, 2):
            found = places(publish(peer, "t", qos))
            assert set(found) == set(range(PARTITIONS))
            assert all(replicas == 3 for replicas, _, _ in found.values())
            for at, (_, epoch, sequence) in found.items():
                assert has(leader_of(cluster, at), at, epoch, sequence)


def test_retained_messages_elsewhere() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    for number in range(PARTITIONS):
        topic = f"kept/{number}"
        for site in cluster.live():
            peer = site.client()
            peer.connect()
            found = places(publish(peer, topic, 2, retain=True))
            assert set(found) == {partition(topic)}
            assert found[partition(topic)][0] == 3


def test_only_transient_subscribers_elsewhere() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    other = cluster["n2"].client()
    other.connect()
    other.subscribe("t", qos=2)
    for site in cluster.live():
        peer = site.client()
        peer.connect()
        for qos in (1, 2):
            ack = publish(peer, "t", qos)
            assert ack.code == reason.SUCCESS
            assert pairs_of(ack) == [("folkmoot-replicas", "0")]


def test_fewer_nodes_are_fewer_copies() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    sleeper(cluster["n1"], named(0), "t")
    cluster["n3"].kill()
    cluster.settle()
    peer = cluster["n2"].client()
    peer.connect()
    assert [replicas for replicas, _, _ in places(publish(peer, "t")).values()] == [2]
    cluster["n1"].kill()
    cluster.settle()
    late = cluster["n2"].client()  # without a quorum a node disconnects its clients before it goes on alone
    late.connect()
    assert [replicas for replicas, _, _ in places(publish(late, "t")).values()] == [1]


def test_a_request_that_meets_a_new_leader_has_a_receipt_too() -> None:
    """The leader dies after it was asked: the next one is asked again and says where the message is."""
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    sleeper(cluster["n1"], named(0), "t")
    leader = leader_of(cluster, 0)
    site = next(site for site in cluster.live() if site is not leader)
    peer = site.client()
    peer.connect()
    leader.hold_writes()
    packet_id = peer.packet_id()
    peer.send(Publish(b"t", b"m", 1, packet_id=packet_id, properties=properties(user_properties=ASK)))
    assert peer.receive() == []
    leader.kill()
    cluster.settle()
    ((at, (replicas, epoch, sequence)),) = places(peer.take(Ack, packet_id)).items()
    assert at == 0
    assert replicas == 2
    assert leader_of(cluster, 0) is not leader
    assert epoch > 0
    assert sequence > 0


def test_nodes_that_cannot_say_where_switch_receipts_off() -> None:
    cluster = SimulatedCluster(2, partitions=PARTITIONS)
    sleeper(cluster["n1"], named(0), "t")
    old = Site.__new__(Site)
    cluster._running = True
    old.__init__(cluster, "n3")  # type: ignore[misc]
    assert old.node.cluster_node is not None
    old.node.cluster_node.peers._switch.greeter.hello.features = [TOGETHER]  # without what lasts it would be refused
    cluster._running = False
    cluster.sites["n3"] = old
    cluster.settle()
    peer = cluster["n2"].client()
    peer.connect()
    assert pairs_of(publish(peer, "t")) == []
    assert status_of(cluster["n2"].node)["features"] == {
        feature: [] if feature == TOGETHER else ["n3"] for feature in FEATURES
    }
    cluster["n3"].kill()
    cluster.settle()
    assert len(places(publish(peer, "t"))) == 1
    assert status_of(cluster["n2"].node)["features"] == {feature: [] for feature in FEATURES}


# -- features -----------------------------------------------------------------------------------------------------


def test_a_feature_is_on_when_all_members_have_it() -> None:
    mine = ["a", "b", "c"]
    told = {"n2": ["c", "b", "z"], "n3": ["b"], "n4": []}
    assert features_on(mine, [], told) == mine
    assert features_on(mine, ["n2"], told) == ["b", "c"]
    assert features_on(mine, ["n2", "n3"], told) == ["b"]
    assert features_on(mine, ["n2", "n3", "n4"], told) == []
    assert features_on(mine, ["n2", "unheard"], told) == []


def test_the_nodes_of_a_cluster_have_receipts() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    for site in cluster.live():
        assert site.node.cluster_node is not None
        assert site.node.cluster_node.fabric.can(RECEIPTS)
