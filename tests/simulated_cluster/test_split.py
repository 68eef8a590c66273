"""A node is cut off and comes back: what it could not tell anybody does not come twice, late, or out of order.

Clients that were at the node go on at another one, as behind a load balancer.
"""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import PUBCOMP, PUBREC, PUBREL, Ack, Disconnect, Properties, Publish
from folkmoot.node.cluster_node import ClusterNode
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.status import NodeStatus
from tests.harness.peer import EVER, Peer
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 4
NAMES = ["n1", "n2", "n3"]


class Split:
    """Three nodes; `lone` leads the publisher's partition and is about to be cut off, subscribers are everywhere."""

    def __init__(self, policy: str) -> None:
        self.cluster = SimulatedCluster(3, partitions=PARTITIONS, split_policy=policy)
        self.leaders = self.cluster_node(self.cluster["n1"]).fabric.leaders
        self.lone = self.cluster[self.leaders[0]]
        self.others = [self.cluster[name] for name in NAMES if name != self.lone.name]
        self.subscribers: list[Peer] = []
        for partition in range(PARTITIONS):
            peer = self.others[partition % 2].client(client_id_in(partition, 1))
            peer.connect(session_expiry=EVER)
            peer.subscribe("#", qos=2)
            self.subscribers.append(peer)

    def cluster_node(self, site: Site) -> ClusterNode:
        found = site.node.cluster_node
        assert found is not None
        return found

    def cut(self) -> None:
        self.cluster.cut(self.lone.name, *[site.name for site in self.others])

    def heal(self) -> None:
        self.cluster.heal()
        self.cluster.settle()
        self.cluster.advance(5 * SECOND)

    def gone_on(self) -> bool:
        """Whether the two others go on without the third."""
        views = [site.node.cluster_node.view for site in self.others if site.node.cluster_node is not None]
        return all(view is not None and view.member(self.lone.name) is None for view in views)

    def move(self, peer: Peer, site: Site) -> None:
        """The client's connection breaks, as far as it knows, and it finds another node."""
        peer.lose()
        peer.box.peers.remove(peer)
        peer.box = site
        site.peers.append(peer)

    def got(self) -> dict[str, list[bytes]]:
        for peer in self.subscribers:
            if peer.closed:
                came = peer.inbox
                peer.connection = None
                peer.resume()
                peer.inbox[:0] = came
        self.cluster.advance(SECOND)
        return {peer.client_id: peer.payloads() for peer in self.subscribers}

    def everywhere(self, *payloads: bytes) -> dict[str, list[bytes]]:
        return {peer.client_id: list(payloads) for peer in self.subscribers}


def client_id_in(partition: int, nth: int = 0) -> str:
    found = [f"c{number}" for number in range(100) if hash64(f"c{number}".encode()) % PARTITIONS == partition]
    return found[nth]


def again(publisher: Peer, packet_id: int, payload: bytes) -> None:
    """What a client does with a QoS 2 message that was not answered."""
    publisher.send(Publish(b"t", payload, 2, False, True, packet_id, None))
    publisher.box.advance(SECOND)
    publisher.take(Ack, packet_id)
    publisher.send(Ack(PUBREL, packet_id))
    publisher.box.advance(SECOND)
    assert publisher.take(Ack, packet_id).kind == PUBCOMP


@pytest.mark.parametrize("policy", ["majority", "available"])
def test_what_a_leader_could_not_commit_and_its_publisher_repeats_elsewhere_comes_once(policy: str) -> None:
    split = Split(policy)
    publisher = split.lone.client(client_id_in(0))
    publisher.connect(session_expiry=EVER)
    publisher.publish("t", b"before", 2)
    split.cut()
    publisher.send(Publish(b"t", b"m", 2, False, False, 7, None))
    assert not [packet for packet in publisher.inbox if isinstance(packet, Ack)]
    split.move(publisher, split.others[0])
    split.cluster.advance(5 * SECOND)
    assert split.gone_on()
    publisher.resume()
    again(publisher, 7, b"m")
    publisher.publish("t", b"after", 2)
    split.heal()
    assert split.got() == split.everywhere(b"before", b"m", b"after")


def test_a_client_that_only_seems_to_be_at_the_smaller_side_is_told_nothing_there() -> None:
    """A balancer has moved it, and its old node has not heard of that: what it sent comes once."""
    split = Split("available")
    ghost = split.lone.client(client_id_in(0))
    ghost.connect(session_expiry=EVER)
    split.cut()
    ghost.send(Publish(b"t", b"m", 2, False, False, 7, None))
    split.cluster.advance(5 * SECOND)
    assert split.gone_on()
    assert ghost.closed
    publisher = split.others[0].client(ghost.client_id)
    publisher.resume()
    again(publisher, 7, b"m")
    split.heal()
    assert split.got() == split.everywhere(b"m")


def test_what_the_smaller_side_takes_back_and_the_larger_one_has_got_in_time_is_not_lost() -> None:
    """The others have it on their disks, and could not say so any more; the session that it waits for is not here."""
    split = Split("available")
    absent = split.subscribers[0]
    absent.lose()
    publisher = split.lone.client(client_id_in(0))
    publisher.connect(session_expiry=EVER)
    for site in split.others:
        site.hold_writes()
    publisher.send(Publish(b"t", b"m", 2, False, False, 7, None))
    assert not [packet for packet in publisher.inbox if isinstance(packet, Ack)]
    split.cut()
    for site in split.others:
        site.release_writes()
    split.move(publisher, split.others[0])
    split.cluster.advance(5 * SECOND)
    assert split.gone_on()
    publisher.resume()
    again(publisher, 7, b"m")
    split.heal()
    absent.closed = True
    assert split.got() == split.everywhere(b"m")


@pytest.mark.parametrize("expiry", [0, EVER])
def test_what_both_sides_have_of_a_message_that_was_on_its_way_comes_once(expiry: int) -> None:
    """The cut-off leader has applied a request, and told nobody; the publisher's node has given it to the next one."""
    split = Split("available")
    owner = split.others[0]
    publisher = owner.client(client_id_in(split.leaders.index(owner.name)))
    publisher.connect(session_expiry=expiry)
    publisher.publish("t", b"before", 2)
    split.cluster.freeze()
    publisher.send(Publish(b"t", b"m", 2, False, False, 7, None))
    for _ in range(20):  # all but what the leader that is about to be cut off has to say
        for site in split.cluster.sites.values():
            site.turn()
        for wire in split.cluster.wires:
            for end in (0, 1):
                peer = wire.ends[end]
                if wire.sites[1 - end] is not split.lone and wire.data[end] and peer is not None:
                    chunk = b"".join(wire.data[end])
                    wire.data[end].clear()
                    wire.sites[end].node.peer_received(peer, chunk, split.cluster.now)
    split.cut()
    split.cluster.thaw()
    split.cluster.advance(5 * SECOND)
    assert split.gone_on()
    publisher.take(Ack, 7)
    split.heal()
    assert split.got() == split.everywhere(b"before", b"m")


@pytest.mark.parametrize("policy", ["majority", "available"])
@pytest.mark.parametrize("expiry", [0, EVER])
def test_what_a_node_could_not_hand_over_does_not_come_behind_newer_messages(policy: str, expiry: int) -> None:
    """The client was told nothing, and a new one of its name has gone on with the next number."""
    split = Split(policy)
    name = client_id_in(1)  # led elsewhere or not: its messages of QoS 1 are published where it is connected
    publisher = split.lone.client(name)
    publisher.connect(session_expiry=expiry)
    publisher.publish("t", b"1", 1)
    split.cut()
    publisher.send(Publish(b"t", b"2", 1, False, False, 7, None))
    split.cluster.advance(SECOND)
    split.move(publisher, split.others[0])
    split.cluster.advance(5 * SECOND)
    publisher.connect(session_expiry=expiry)
    publisher.publish("t", b"3", 1)
    split.heal()
    for name, payloads in split.got().items():
        assert payloads == sorted(payloads), f"{name} got {payloads}"
        assert {b"1", b"3"} <= set(payloads)


def test_a_subscriber_that_goes_to_the_smaller_side_in_the_middle_of_a_flow_gets_every_message() -> None:
    """It has one message of QoS 2 half, from the larger side, when the smaller one sends it another."""
    split = Split("available")
    reader = split.subscribers[0]
    reader.acks = False
    publisher = split.others[0].client("more")
    publisher.connect()
    split.cut()
    split.cluster.advance(5 * SECOND)
    publisher.publish("t", b"more", 2)
    half = reader.take(Publish)
    assert half.payload == b"more"
    split.move(reader, split.lone)  # it has answered, and that is lost with the connection
    reader.resume()
    publisher = split.lone.client("less")
    publisher.connect()
    publisher.publish("t", b"less", 2)
    other = reader.take(Publish)
    assert other.payload == b"less"
    assert other.packet_id != half.packet_id


@pytest.mark.parametrize(("first", "second"), list(permutations(NAMES, 2)))
def test_a_subscriber_that_goes_from_one_fork_to_another_in_the_middle_of_a_flow_gets_every_message(
    first: str, second: str
) -> None:
    """No node reaches another one: each of the three has founded a fork, and gives packet ids to the same session."""
    split = Split("available")
    reader = split.subscribers[0]
    reader.acks = False
    split.cut()
    split.cluster.cut(*[site.name for site in split.others])
    split.cluster.advance(5 * SECOND)
    found: list[Publish] = []
    for site in (split.cluster[first], split.cluster[second]):
        reader.closed = False
        split.move(reader, site)
        reader.resume()
        publisher = site.client(f"at-{site.name}")
        publisher.connect()
        publisher.publish("t", site.name.encode(), 2)
        found.append(reader.take(Publish))
    assert [packet.payload.decode() for packet in found] == [first, second]
    assert found[0].packet_id != found[1].packet_id


def test_a_session_that_expires_on_one_side_goes_on_if_its_client_has_used_it_on_the_other() -> None:
    """Its client left with a short interval, came back to the smaller side, and asked there for one without an end."""
    split = Split("available")
    name = client_id_in(0, 2)
    client = split.lone.client(name)
    client.connect(session_expiry=EVER)
    client.subscribe("t", qos=1)
    leave = Properties()
    leave.session_expiry = 60
    client.send(Disconnect(0, leave))
    split.cluster.settle()
    split.cut()
    split.cluster.advance(10 * SECOND)
    client = split.lone.client(name)
    assert client.connect(clean_start=False, session_expiry=EVER).session_present
    client.disconnect()
    publisher = split.lone.client("publisher")
    publisher.connect()
    assert publisher.publish("t", b"kept", qos=1) == 0
    split.cluster.advance(100 * SECOND)
    assert sum(site.node.counters.sessions_expired for site in split.others) == 1
    split.heal()
    client = split.others[0].client(name)
    assert client.connect(clean_start=False, session_expiry=EVER).session_present
    assert client.take(Publish).payload == b"kept"


@pytest.mark.parametrize("first", [True, False])
def test_an_unsubscription_that_found_nothing_on_its_side_ends_the_older_subscription_of_the_other(first: bool) -> None:
    """The client subscribes on one side, goes over to the other one, and unsubscribes there."""
    split = Split("available")
    client = split.subscribers[0]
    here, there = (split.lone, split.others[0]) if first else (split.others[0], split.lone)
    split.cut()
    split.cluster.advance(10 * SECOND)
    split.move(client, here)
    client.resume()
    client.subscribe("more/1", qos=1)
    client.subscribe("more/2", qos=1)
    split.cluster.advance(SECOND)
    split.move(client, there)
    client.resume()
    client.unsubscribe("more/1")
    client.unsubscribe("#")
    split.heal()
    publisher = split.others[0].client("publisher")
    publisher.connect()
    publisher.publish("more/1", b"1", 1)
    publisher.publish("more/2", b"2", 1)
    assert split.got()[client.client_id] == [b"2"]


def test_a_minority_shows_that_it_does_not_write() -> None:
    split = Split("majority")
    split.cut()
    split.cluster.advance(5 * SECOND)
    assert split.lone.node.silence(split.lone.steady_ns())
    split.lone.client("late").connect(code=0x89)
    split.heal()
    split.lone.client("later").connect()


def test_nodes_that_are_lost_for_good_can_be_forgotten_by_a_minority() -> None:
    split = Split("majority")
    publisher = split.lone.client("p")
    publisher.connect(session_expiry=EVER)
    split.subscribers[0].lose()
    publisher.publish("t", b"kept", 2)
    split.cut()
    split.cluster.advance(5 * SECOND)
    cluster_node = split.lone.node.cluster_node
    assert cluster_node is not None
    status = NodeStatus(picture_of(split.lone.node))
    for site in split.others:
        site.up = False
        assert not cluster_node.membership.is_live(split.cluster.now)
        assert "nobody here can know" in status.forget(site.name, split.cluster.now)
        assert status.forget(site.name, split.cluster.now, True) == ""
        split.cluster.advance(5 * SECOND)
    assert [event.fields["for"] for event in split.lone.events if event.kind == "forget_ordered"] == [
        [split.others[1].name],
        [],
    ]
    assert cluster_node.membership.is_live(split.cluster.now)
    assert status.status()["apart"] is False, "it has everybody who is known"
    reader = split.lone.client(split.subscribers[0].client_id)
    reader.resume()
    split.cluster.advance(SECOND)
    assert reader.payloads() == [b"kept"]
    split.others[0].up = True  # it lives after all, and has no quorum
    split.heal()
    back = split.others[0].node.cluster_node
    assert back is not None
    assert back.membership.lineage == cluster_node.membership.lineage
    assert "disk_renewed" in split.others[0].kinds(), "it is another member now"
    publisher = split.others[0].client("q")
    publisher.connect()
    publisher.publish("t", b"more", 2)
    split.cluster.advance(SECOND)
    assert reader.payloads() == [b"more"]


@pytest.mark.parametrize("again", [False, True])
def test_what_was_given_up_with_a_forgotten_node_comes_back_with_it(again: bool) -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS, replicas=1, split_policy="majority")
    first = cluster["n1"].node.cluster_node
    assert first is not None
    lost = first.fabric.leaders.index("n3")
    reader = cluster["n1"].client(client_id_in(lost))
    reader.connect(session_expiry=EVER)
    reader.subscribe("t", qos=1)
    reader.disconnect()
    publisher = cluster["n1"].client(client_id_in(first.fabric.leaders.index("n1")))
    publisher.connect(session_expiry=EVER)
    publisher.publish("t", b"kept", 1)
    cluster.advance(SECOND)
    cluster.cut("n1", "n2", "n3")
    if again:
        cluster["n3"].kill()
    cluster.advance(5 * SECOND)
    status = NodeStatus(picture_of(cluster["n1"].node))
    for name in ("n2", "n3"):
        cluster[name].up = False
        assert status.forget(name, cluster.now, True) == ""
    cluster.advance(10 * SECOND)
    assert first.membership.is_live(cluster.now)
    assert status.status()["last_loss"]
    anew = cluster["n1"].client(reader.client_id)
    anew.connect(session_expiry=EVER)
    anew.disconnect()
    cluster["n3"].up = True
    if again:
        cluster["n3"].revive()
    cluster.heal()
    cluster.advance(20 * SECOND)
    back = cluster["n3"].node.cluster_node
    assert back is not None
    assert back.membership.lineage == first.membership.lineage
    reader = cluster["n1"].client(reader.client_id)
    reader.resume()
    cluster.advance(SECOND)
    assert reader.payloads() == [b"kept"]


@pytest.mark.parametrize("run", range(12))
def test_packets_sent_to_a_leader_that_begins_anew_do_not_overtake_those_that_it_has_to_hear_again(run: int) -> None:
    """A third node comes back, and a leader begins anew with it, which the publisher's own node does not."""
    split = Split("available")
    leader = split.lone
    owner, third = split.others
    publisher = owner.client(client_id_in(0))
    publisher.connect(session_expiry=EVER)
    split.cluster.cut(third.name, owner.name, leader.name)
    split.cluster.advance(5 * SECOND)
    split.cluster.heal()
    order = random.Random(run)
    sent = 0
    for _ in range(400):
        split.cluster.freeze()
        if sent < 60:
            sent += 1
            publisher.send(Publish(b"t", b"%d" % sent, 2, False, False, sent, None))
        for _ in range(order.randrange(12)):
            split.cluster.unit(order.randrange(9))
        split.cluster.thaw()
        split.cluster.advance(SECOND // 100)
    split.cluster.settle()
    split.cluster.advance(2 * SECOND)
    answered = {packet.packet_id for packet in publisher.inbox if isinstance(packet, Ack) and packet.kind == PUBREC}
    assert answered == set(range(1, sent + 1))
    expected = [b"%d" % number for number in range(1, sent + 1)]
    assert split.got() == split.everywhere(*expected)


def test_a_packet_that_comes_before_those_that_it_follows_is_taken_when_they_have_come() -> None:
    split = Split("available")
    publisher = split.others[0].client(client_id_in(0))
    publisher.connect(session_expiry=EVER)
    hosting = split.lone.node._broker.leadership.hosting
    hosted = next(one for one in hosting.remotes.values() if one.client_id == publisher.client_id)
    remote = hosted.remote
    assert remote is not None
    first = remote.received_seq + 1
    ping = 0xC0  # PINGREQ, section 3.12
    hosting._packet(hosted, first + 1, ping, b"")
    assert remote.received_seq == first - 1
    hosting._packet(hosted, first, ping, b"")
    hosting._packet(hosted, first + 1, ping, b"")
    assert remote.received_seq == first + 1
