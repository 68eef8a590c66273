"""What a change of one partition has for others reaches them exactly once, whenever its leader dies.

Each scenario is run again and again, and the leader is killed one step later each time: a step is the turn of one node,
or what is on a wire in one direction, in an order that is another one each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from folkmoot.channel.outbox import decode_outbox_entry, encode_outbox_entry
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import PUBREC, PUBREL, Ack, Connect, Publish, Will
from folkmoot.store.key import OUTBOX, kind_prefix
from folkmoot.turn.message import TO_GROUPS, OutboxEntry, Task
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 4
STEPS = 60  # more than any of these flows takes
RUNS = 40


def leader_of(cluster: SimulatedCluster, partition: int) -> Site:
    cluster_node = cluster.live()[0].node.cluster_node
    assert cluster_node is not None
    return cluster[cluster_node.fabric.leaders[partition]]


def client_id_in(partition: int, nth: int = 0) -> str:
    found = [f"c{number}" for number in range(100) if hash64(f"c{number}".encode()) % PARTITIONS == partition]
    return found[nth]


def outbox_rows(cluster: SimulatedCluster) -> int:
    return sum(
        len(site.store.scan(kind_prefix(partition, OUTBOX), kind_prefix(partition, OUTBOX + 1), 100))
        for site in cluster.live()
        for partition in range(PARTITIONS)
    )


class Stage:
    """Three nodes; subscribers in all partitions but the first, one in the first, and transient ones, at survivors."""

    def __init__(self, held: str = "") -> None:
        self.cluster = SimulatedCluster(3, partitions=PARTITIONS)
        self.victim = leader_of(self.cluster, 0)
        self.survivors = [site for site in self.cluster.sites.values() if site is not self.victim]
        self.persistent: list[Peer] = []
        self.held = held

    def listen(self, topic_filter: str, partitions: range = range(PARTITIONS)) -> None:
        for partition in partitions:
            site = self.survivors[partition % 2]
            peer = site.client(client_id_in(partition, 1))
            peer.connect(session_expiry=EVER)
            peer.subscribe(topic_filter, qos=2)
            self.persistent.append(peer)

    def freeze(self) -> None:
        """From now on nothing runs but what `step` does."""
        self.cluster.freeze()
        for site in self.cluster.sites.values():
            if self.held == ("victim" if site is self.victim else "others"):
                site.hold_writes()

    def step(self, run: int) -> None:
        """Do some steps, most often few, in an order that each run draws anew."""
        order = random.Random(run)
        count = int(STEPS * order.random() ** 2)
        idle = 0
        while count and idle < 100:
            if self.cluster.unit(order.randrange(9)):
                count -= 1
                idle = 0
            else:
                idle += 1

    def kill(self) -> None:
        """The leader dies here; then the others go on by themselves."""
        self.victim.kill()
        self.cluster.thaw()
        for site in self.survivors:
            site.release_writes()
        self.cluster.settle()
        self.cluster.advance(SECOND)

    def got(self) -> dict[str, list[bytes]]:
        return {peer.client_id: peer.payloads() for peer in self.persistent}


def finish(publisher: Peer, site: Site, packet_id: int) -> None:
    """Do what a client does whose connection broke: connect, send again what was not acknowledged, go on."""
    if publisher.connection is None or publisher.closed:
        acks = [packet for packet in publisher.inbox if isinstance(packet, Ack)]
        publisher.box.peers.remove(publisher)
        publisher.box = site
        site.peers.append(publisher)
        publisher.resume()
        if not acks:
            publisher.send(Publish(b"t", b"m", 2, False, True, packet_id, None))
    publisher.box.advance(SECOND)
    if any(isinstance(packet, Ack) and packet.kind == PUBREC for packet in publisher.inbox):
        publisher.take(Ack, packet_id)
    publisher.send(Ack(PUBREL, packet_id))
    publisher.take(Ack, packet_id)


@pytest.mark.parametrize("held", ["", "victim", "others"])
@pytest.mark.parametrize("near", [True, False], ids=["at the leader", "elsewhere"])
def test_qos_2_of_a_persistent_session_comes_once(near: bool, held: str) -> None:
    for run in range(RUNS if not held else RUNS // 4):
        stage = Stage(held)
        stage.listen("t")
        transient = stage.survivors[0].client("watch")
        transient.connect()
        transient.subscribe("t", qos=2)
        site = stage.victim if near else stage.survivors[1]
        publisher = site.client(client_id_in(0))
        publisher.connect(session_expiry=EVER)
        stage.freeze()
        publisher.send(Publish(b"t", b"m", 2, False, False, 1, None))
        stage.step(run)
        stage.kill()
        finish(publisher, stage.survivors[1], 1)
        assert stage.got() == {peer.client_id: [b"m"] for peer in stage.persistent}, run
        assert transient.payloads() == [b"m"], run
        assert outbox_rows(stage.cluster) == 0


def test_a_pubrec_waits_until_all_have_the_message() -> None:
    """[MQTT-4.3.3-8] also of a repeated PUBLISH: its first copy is still under way."""
    stage = Stage()
    stage.listen("t")
    publisher = stage.victim.client(client_id_in(0))
    publisher.connect(session_expiry=EVER)
    others = [site for site in stage.cluster.sites.values() if site is not stage.victim]
    for site in others:
        site.hold_writes()
    publisher.send(Publish(b"t", b"m", 2, False, False, 1, None))
    publisher.send(Publish(b"t", b"m", 2, False, True, 1, None))
    assert publisher.receive() == []
    for site in others:
        site.release_writes()
    assert [packet.kind for packet in publisher.receive() if isinstance(packet, Ack)] == [PUBREC, PUBREC]
    assert stage.got() == {peer.client_id: [b"m"] for peer in stage.persistent}


def test_messages_of_one_publisher_stay_in_order_when_their_leader_dies() -> None:
    """A3: what the old leader had sent, what the new one sends again, and what comes later."""
    for run in range(RUNS // 4):
        stage = Stage()
        stage.listen("t")
        publisher = stage.survivors[0].client(client_id_in(0))
        publisher.connect(session_expiry=EVER)
        stage.freeze()
        for number in range(1, 6):
            publisher.send(Publish(b"t", b"%d" % number, 2, False, False, number, None))
            stage.step(100 * run + number)
        stage.step(run)
        stage.kill()
        for number in range(6, 9):
            publisher.send(Publish(b"t", b"%d" % number, 2, False, False, number, None))
        wanted = [b"%d" % number for number in range(1, 9)]
        assert stage.got() == {peer.client_id: wanted for peer in stage.persistent}, run


@pytest.mark.parametrize("held", ["", "victim", "others"])
@pytest.mark.parametrize("expiry", [0, EVER], ids=["transient", "persistent"])
def test_a_will_comes_once(expiry: int, held: str) -> None:
    """A7: its client is gone, and then the node that knows it as gone."""
    for run in range(RUNS if not held else RUNS // 4):
        stage = Stage(held)
        stage.listen("w")
        client = stage.survivors[1].client(client_id_in(0))
        client.connect(session_expiry=expiry, will=Will(b"w", b"gone", 2, False, None))
        stage.freeze()
        client.lose()
        stage.step(run)
        stage.kill()
        assert stage.got() == {peer.client_id: [b"gone"] for peer in stage.persistent}, run


def test_a_will_waits_for_its_delay_at_a_new_leader() -> None:
    """A7: the node with the connection dies, then the leader."""
    stage = Stage()
    stage.persistent = []
    last = stage.survivors[0]
    watch = last.client(client_id_in(1))
    watch.connect(session_expiry=EVER)
    watch.subscribe("w", qos=2)
    client = stage.survivors[1].client(client_id_in(0))
    will = Will(b"w", b"gone", 2, False, properties(will_delay=60))
    client.connect(session_expiry=EVER, will=will)
    stage.survivors[1].kill()
    stage.cluster.settle()
    stage.victim.kill()
    stage.cluster.settle()
    assert watch.closed, "two of three voters have died, so its node had no lease before it forked"
    watch = last.client(watch.client_id)
    watch.resume()
    stage.cluster.advance(50 * SECOND)
    assert watch.payloads() == []
    stage.cluster.advance(20 * SECOND)
    assert watch.payloads() == [b"gone"]


@pytest.mark.parametrize("held", ["", "victim", "others"])
def test_messages_of_a_lost_member_go_once_to_another(held: str) -> None:
    """[MQTT-4.8.2-5] the member's session ends in one partition, the other member is in another."""
    for run in range(RUNS if not held else RUNS // 4):
        stage = Stage(held)
        member = stage.survivors[0].client(client_id_in(0, 2))
        member.connect(session_expiry=60)
        member.subscribe("$share/g/t", qos=2)
        member.lose()
        publisher = stage.survivors[0].client(client_id_in(2))
        publisher.connect()
        for number in range(3):
            publisher.publish("t", b"%d" % number, qos=2)
        stage.listen("$share/g/t", range(1, 2))
        again = stage.survivors[0].client(client_id_in(0, 2))
        stage.freeze()
        again.connection = stage.survivors[0].node.connect(again, publisher.connection.info, stage.cluster.now)  # type: ignore[union-attr]
        clean_start(again)
        stage.step(run)
        stage.kill()
        stage.cluster.advance(SECOND)
        assert sorted(stage.persistent[0].payloads()) == [b"0", b"1", b"2"], run


def clean_start(peer: Peer) -> None:
    """Let a client begin anew: its old session ends."""
    peer.send(Connect(5, peer.client_id, True, 0, None, None, None, None))


def test_a_node_without_others_writes_no_outbox_row() -> None:
    cluster = SimulatedCluster(1, partitions=PARTITIONS)
    site = cluster["n1"]
    watch = site.client(client_id_in(1))
    watch.connect(session_expiry=EVER)
    watch.subscribe("t", qos=2)
    publisher = site.client(client_id_in(0))
    publisher.connect(session_expiry=EVER)
    site.hold_writes()
    publisher.send(Publish(b"t", b"m", 2, False, False, 1, None))
    rows = [key for batch in site._unwritten for _, key, _ in batch.ops]
    assert rows
    assert not [key for key in rows if key[2] == OUTBOX]
    site.release_writes()
    assert watch.payloads() == [b"m"]
    assert publisher.take(Ack, 1).kind == PUBREC


def make_entry() -> OutboxEntry:
    entry = OutboxEntry(3, 7, 5, TO_GROUPS, b"body")
    task = Task(2, 1)
    task.groups = [b"$share/g/t"]
    entry.tasks = [task, Task(1, 3)]
    entry.nodes = {"n1": [], "n2": [b"$share/g/t"]}
    return entry


def test_a_row_is_read_as_it_was_written() -> None:
    entry = make_entry()
    again = decode_outbox_entry(3, 7, 5, encode_outbox_entry(entry))
    assert repr(again) == repr(entry)
    assert (again.flags, again.body) == (entry.flags, entry.body)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: b"\x02" + data[1:], id="another format"),
        pytest.param(lambda data: data[:-1], id="cut short"),
        pytest.param(lambda data: data + b"x", id="too long"),
    ],
)
def test_a_damaged_row_is_told(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(CorruptStore):
        decode_outbox_entry(3, 7, 5, damage(encode_outbox_entry(make_entry())))


def test_an_entry_whose_home_went_elsewhere_may_lose_its_receiver_too() -> None:
    """Its turn waits for it once, whichever of the two comes first."""
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    home = leader_of(cluster, 0)
    partition = next(number for number in range(PARTITIONS) if leader_of(cluster, number) is not home)
    reader = leader_of(cluster, partition).client(client_id_in(partition))
    reader.connect(session_expiry=EVER)
    reader.subscribe("t", qos=2)
    publisher = home.client(client_id_in(0))
    publisher.connect(session_expiry=EVER)
    assert home.node.cluster_node is not None
    channel = home.node.cluster_node.broker.channel
    before = channel.forward_sender.acks.sent_seq
    cluster.freeze()
    publisher.send(Publish(b"t", b"m", 2, False, False, 1, None))
    order = random.Random(1)
    while channel.forward_sender.acks.sent_seq == before:  # its row is committed, and it is on its way
        cluster.unit(order.randrange(9))
    assert channel.outbox.busy(0)
    channel.outbox.forget(home.node.cluster_node.broker.partition.led[0])
    channel.forward_sender.fail_leaderless(partition)
    assert not channel.outbox.busy(0)
