"""What is on its way when the leader of a session changes: nothing is missed, and nothing overtakes it (A3, A8)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.membership.command import Lead
from folkmoot.mqtt.kind import PUBCOMP, PUBREC, PUBREL
from folkmoot.mqtt.packet import V5, Ack, Connect, Publish, Suback, Subscribe
from tests.harness.peer import EVER, properties
from tests.harness.simulated_cluster import TURNS_MAX, SimulatedCluster


def replicas_in(cluster: SimulatedCluster) -> list[list[str]]:
    """Return the copies in sync of each partition, the leader first."""
    view = cluster["n1"].cluster_node.view
    assert view is not None
    return view.replicas


def client_in(partition: int) -> str:
    """Return a client id whose session is in one of 16 partitions."""
    return next(name for name in map(str, range(999)) if hash64(name.encode()) % 16 == partition)


@pytest.mark.parametrize("moves", [False, True])
def test_what_is_on_its_way_when_the_next_leader_begins_comes_all_the_same(moves: bool) -> None:
    """The message is published without knowledge of the subscription, and reaches its leader late."""
    cluster = SimulatedCluster(4, partitions=16, replicas=2)
    isr = replicas_in(cluster)
    ours, theirs = next((p, q) for p in range(16) for q in range(16) if not set(isr[p]) & set(isr[q]))
    first, second = isr[ours]
    (elsewhere,) = [name for name in cluster.sites if name not in (first, second, isr[theirs][0])][:1]
    cluster.hand_log_to(second)

    def name(prefix: str, partition: int) -> str:
        names = [f"{prefix}{number}" for number in range(999)]
        return next(one for one in names if cluster["n1"].node._state.partition_of(one.encode()) == partition)

    topic = name("t", theirs).encode()
    publisher = cluster[elsewhere].client("publisher")
    publisher.connect()
    subscriber = cluster[first].client(name("c", ours))
    subscriber.connect(session_expiry=EVER)
    cluster.advance(SECOND)
    cluster.held = {(elsewhere, isr[theirs][0])}
    publisher.send(Publish(topic, b"value", 1, True, False, 1))
    cluster.advance(5 * MILLISECOND)
    subscriber.send(Subscribe(5, [(topic, 1)]))
    cluster.advance(5 * MILLISECOND)
    if moves:
        cluster.hand_partition_to(ours, second)
        cluster.advance(200 * MILLISECOND)
        assert cluster[second].node._state.leads[ours]
    assert subscriber.payloads() == []
    cluster.held = set()
    cluster.advance(3 * SECOND)
    assert subscriber.payloads() == [b"value"]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("moves", [False, True])
def test_a_later_retained_message_overtakes_none_that_went_before_the_leader_changed(qos: int, moves: bool) -> None:
    """The first goes directly to the leader of its topic, the second through the next leader of the session."""
    cluster = SimulatedCluster(4, partitions=16, replicas=2)
    isr = replicas_in(cluster)
    ours, theirs = next((p, q) for p in range(16) for q in range(16) if isr[q][0] not in isr[p])
    first, second = isr[ours]
    cluster.hand_log_to(second)

    def name(prefix: str, partition: int) -> str:
        names = [f"{prefix}{number}" for number in range(999)]
        return next(one for one in names if cluster["n1"].node._state.partition_of(one.encode()) == partition)

    topic = name("t", theirs)
    client = cluster[first].client(name("c", ours), acks=False)
    client.connect(session_expiry=EVER)
    cluster.held = {(first, isr[theirs][0])}
    client.send(Publish(topic.encode(), b"old", qos, True, False, 1 if qos else 0))
    cluster.advance(5 * MILLISECOND)
    if moves:
        cluster.hand_partition_to(ours, second)
        cluster.advance(200 * MILLISECOND)
    client.send(Publish(topic.encode(), b"new", 2, True, False, 2))
    cluster.advance(100 * MILLISECOND)
    cluster.held = set()
    cluster.advance(SECOND)
    late = cluster[second].client("late")
    late.connect()
    late.subscribe(topic, qos=1)
    cluster.advance(SECOND)
    assert late.payloads() == [b"new"]


def hand(cluster: SimulatedCluster, partition: int, name: str, silent: str = "") -> None:
    """Hand a partition to a node, until it has opened it, or waits for what one node does not say."""
    control = cluster.controller().control
    assert control.log is not None
    assert control.configuration is not None
    command = Lead(partition, control.configuration.partitions[partition].version, cluster[name].cluster_node.me.disk)
    assert control.log.propose(command, cluster.now * 1000).handle
    node = cluster[name].cluster_node
    for _ in range(TURNS_MAX):
        arrival = node.broker.leadership.recovery.arrivals.get(partition)
        if node.state.leads[partition] or (arrival is not None and list(arrival.awaited) == [silent]):
            return
        if not cluster.step():
            cluster.now += MILLISECOND
    raise AssertionError("nobody takes over")


def test_a_later_message_waits_for_all_of_the_former_leader_whatever_is_answered_meanwhile() -> None:
    """The session moves while the leader of the topic does: the first message comes through the next leader, late."""
    cluster = SimulatedCluster(4, partitions=16, replicas=2)
    isr = replicas_in(cluster)
    pairs = [(p, q) for p in range(16) for q in range(16) if not set(isr[p]) & set(isr[q])]
    ours, theirs = next(pair for pair in pairs if isr[pair[0]][1] != "n4")  # which does not vote
    (first, second), (_, heir) = isr[ours], isr[theirs]
    cluster.hand_log_to(second)
    state = cluster["n1"].node._state
    name = next(f"c{n}" for n in range(999) if state.partition_of(b"c%d" % n) == ours)
    topic = next(f"t{n}" for n in range(999) if state.partition_of(b"t%d" % n) == theirs)
    client = cluster[first].client(name, acks=False)
    client.connect(session_expiry=EVER)
    cluster.held = {(first, isr[theirs][0]), (heir, first)}
    client.send(Publish(topic.encode(), b"old", 2, True, packet_id=1))
    hand(cluster, theirs, heir, first)
    hand(cluster, ours, second)
    cluster.held = {(second, heir)}
    cluster.run()
    assert client.take(Ack, 1).kind == PUBREC
    client.send(Ack(PUBREL, 1))
    client.send(Publish(topic.encode(), b"new", 1, True, packet_id=2))
    cluster.held = set()
    cluster.settle()
    client.take(Ack, 2)
    late = cluster[second].client("late")
    late.connect()
    late.subscribe(topic, qos=1)
    assert late.payloads() == [b"new"]


def test_what_a_node_says_of_a_client_whose_session_it_was_to_lead_and_never_opened_ends_no_wait() -> None:
    cluster = SimulatedCluster(6, partitions=16, replicas=2, min_in_sync=2, silence_us=60 * SECOND)
    cluster.hand_log_to("n1")
    partition = next(number for number, names in enumerate(replicas_in(cluster)) if names == ["n2", "n3"])
    client = cluster["n4"].client(client_in(partition))
    client.connect(session_expiry=EVER)
    cluster["n3"].kill()
    cluster.advance(SECOND // 2)
    assert replicas_in(cluster)[partition] == ["n2"]
    client.send(Subscribe(1, [(b"t", 1)]))
    cluster.held = {("n6", "n2")}  # which does not learn who is connected there
    while len(replicas_in(cluster)[partition]) < 2:
        cluster.advance(MILLISECOND)
    successor = replicas_in(cluster)[partition][1]
    assert successor not in ("n4", "n6")
    cluster.advance(SECOND // 2)
    assert not cluster["n2"].node._state.leads[partition]
    cluster.held |= {("n1", "n4")}  # which does not learn at once of the next leader
    cluster.hand_partition_to(partition, successor)
    assert cluster[successor].cluster_node.fabric.leaders[partition] == successor
    cluster.held = set()
    cluster.advance(5 * SECOND)
    client.expect(Suback)


def test_what_a_leader_says_that_begins_anew_and_never_opens_ends_no_wait() -> None:
    """Its link to another node has lost messages. The node of the client does not learn that it begins anew."""
    cluster = SimulatedCluster(3, partitions=1, silence_us=60 * SECOND)
    leader = cluster.controller()
    other, front = [site for site in cluster.live() if site is not leader]
    cluster.hand_partition_to(0, leader.name)
    client = front.client("c", acks=False)
    client.connect(session_expiry=EVER)
    leader.cluster_node.peers.overflow(other.name)
    while leader.node._state.leads[0]:
        if not cluster.step():
            cluster.now += MILLISECOND
    cluster.held = {(other.name, leader.name)}  # which does not learn who is connected there
    cluster.advance(SECOND // 10)
    assert not leader.node._state.leads[0]
    assert front.cluster_node.fabric.open[0]
    client.send(Publish(b"t", b"x", 2, True, False, 1), Subscribe(2, [(b"t", 1)]))
    assert not client.inbox
    cluster.hand_partition_to(0, front.name)
    cluster.held = set()
    cluster.advance(5 * SECOND)
    client.take(Suback)
    client.take(Ack, 1)


class Stage:
    """A partition with its leader, the heir with the other copy, and two nodes without one; a client id in it."""

    def __init__(self) -> None:
        self.cluster = cluster = SimulatedCluster(4, partitions=16, replicas=2)
        self.partition = 0
        self.leader, self.heir = replicas_in(cluster)[0]
        self.third, self.fourth = [name for name in cluster.sites if name not in (self.leader, self.heir)]
        self.name = client_in(self.partition)

    def hand_on(self) -> None:
        """Hand the partition to the heir, which begins to lead it."""
        self.cluster.hand_partition_to(self.partition, self.heir)
        self.cluster.advance(SECOND // 10)
        assert self.cluster[self.heir].node._state.leads[self.partition]

    def release(self) -> None:
        """All links carry again what was held."""
        self.cluster.held = set()
        self.cluster.advance(SECOND)


def numbered(qos: int, number: int) -> Publish:
    """Return a message of an idempotent producer; its packet id is one more than its number."""
    pairs = [("folkmoot-producer", "p"), ("folkmoot-seq", str(number))]
    return Publish(b"u", b"%d" % number, qos, packet_id=number + 1, properties=properties(user_properties=pairs))


@pytest.mark.parametrize("qos", [1, 2])
def test_the_next_leader_takes_no_message_before_those_are_answered_that_came_to_the_former_one(qos: int) -> None:
    """[MQTT-4.6.0-2] [MQTT-4.6.0-3] The answer of the former leader waits behind a SUBACK, for a third node."""
    stage = Stage()
    stage.cluster.hand_log_to(stage.heir)
    client = stage.cluster[stage.leader].client(stage.name)
    client.connect(session_expiry=EVER)
    stage.cluster.held = {(stage.leader, stage.third)}
    client.send(Subscribe(1, [(b"t", 1)]), numbered(qos, 1))
    stage.hand_on()
    client.send(numbered(qos, 2))
    stage.cluster.advance(SECOND // 10)
    stage.release()
    assert [packet.packet_id for packet in client.receive() if isinstance(packet, Ack)] == [2, 3]


def test_a_pubrel_that_has_left_before_older_turns_are_complete_is_not_repeated_by_the_next_leader() -> None:
    """[MQTT-4.4.0-1] The older turn waits for a third node to confirm the subscription of another client."""
    stage = Stage()
    stage.cluster.hand_log_to(stage.heir)
    client = stage.cluster[stage.leader].client(stage.name, acks=False)
    client.connect(session_expiry=EVER)
    client.subscribe("t", qos=2)
    other = stage.cluster[stage.leader].client("other")
    other.connect()
    publisher = stage.cluster[stage.heir].client("publisher")
    publisher.connect()
    stage.cluster.held = {(stage.leader, stage.third)}
    other.send(Subscribe(1, [(b"z", 1)]))
    publisher.publish("t", b"m", qos=2)
    (message,) = client.publishes()
    client.send(Ack(PUBREC, message.packet_id))
    assert client.expect(Ack).kind == PUBREL
    assert other.receive() == []
    stage.hand_on()
    stage.release()
    assert client.receive() == []
    client.send(Ack(PUBCOMP, message.packet_id))
    stage.cluster.advance(SECOND)
    other.expect(Suback)
    assert client.receive() == []


def test_a_connection_that_ends_between_two_leaders_unknown_to_both_is_forgotten() -> None:
    """Its node asks the former leader, then hears of the next one, and loses the connection before that has begun."""
    stage = Stage()
    cluster = stage.cluster
    cluster.hand_log_to(stage.leader)
    cluster.held = {(stage.leader, stage.fourth), (stage.third, stage.heir)}
    cluster.hand_partition_to(stage.partition, stage.heir)
    client = cluster[stage.fourth].client(stage.name).open()
    client.send(Connect(V5, stage.name, True, 0))
    cluster.held = {(stage.third, stage.heir)}
    cluster.advance(SECOND // 100)
    assert not cluster[stage.heir].node._state.leads[stage.partition]
    client.lose()
    stage.release()
    assert cluster[stage.heir].node._state.leads[stage.partition]
    assert len(cluster[stage.fourth].node._broker.proxy.relays) == 0
