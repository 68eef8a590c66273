"""Partitions of which all copies are away: what nodes that come back meanwhile know of them (A1, A5, A11)."""

from __future__ import annotations

import pytest

from folkmoot.channel.forward_sender import STRANDED_BYTES
from folkmoot.delivery.publication import ERRANDS_MAX
from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt import reason
from folkmoot.mqtt.packet import V311, Ack, Connack, Connect, Publish, Will
from folkmoot.query.question import FOUND
from folkmoot.store.transaction import home_of
from tests.harness.desk import Desk
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site


def majority() -> SimulatedCluster:
    return SimulatedCluster(3, partitions=16, replicas=1, split_policy="majority", silence_us=2 * SECOND)


def come(site: Site, client_id: str, clean: bool = False, receive_max: int = 10, will: Will | None = None) -> Peer:
    """Connect without waiting for an answer; nothing is acknowledged by itself."""
    peer = site.client(client_id, acks=False)
    props = properties(session_expiry=EVER, receive_max=receive_max)
    peer.open().send(Connect(5, client_id, clean, 0, will=will, properties=props))
    return peer


def restarted_without_n3(cluster: SimulatedCluster) -> None:
    for site in cluster.live():
        site.kill()
    for name in ("n1", "n2"):
        cluster[name].revive()
    cluster.advance(10 * SECOND)


def code_of_publish(cluster: SimulatedCluster, site: Site, payload: bytes) -> int:
    peer = come(site, site.names_led("publisher")[0], True)
    cluster.advance(SECOND)
    assert peer.expect(Connack).code == 0
    peer.send(Publish(b"t", payload, 1, False, False, 7))
    cluster.advance(SECOND)
    return peer.expect(Ack).code


def test_a_client_of_a_node_that_has_just_started_waits_and_is_not_refused() -> None:
    cluster = SimulatedCluster(3, partitions=16)
    cluster["n3"].kill()
    cluster.advance(5 * SECOND)
    cluster["n3"].revive()
    peer = come(cluster["n3"], "c")
    cluster.advance(3 * SECOND)
    assert peer.expect(Connack).code == 0


def test_a_partition_is_not_called_absent_before_the_first_view() -> None:
    cluster = SimulatedCluster(3, partitions=16)
    for site in cluster.live():
        site.kill()
    for name in ("n1", "n2", "n3"):
        cluster[name].revive()
    peers = [come(cluster[name], f"c{number}") for name in ("n1", "n2", "n3") for number in range(4)]
    cluster.advance(5 * SECOND)
    answers = [packet.code for peer in peers for packet in peer.receive() if isinstance(packet, Connack)]
    assert len(answers) == len(peers)
    assert reason.SERVER_UNAVAILABLE not in answers, "that is said where copies are away"


def test_who_has_started_while_copies_are_away_lets_clients_in_and_refuses_messages() -> None:
    cluster = majority()
    restarted_without_n3(cluster)
    assert code_of_publish(cluster, cluster["n1"], b"x") == reason.IMPLEMENTATION_SPECIFIC_ERROR
    cluster["n3"].revive()
    cluster.settle()
    assert code_of_publish(cluster, cluster["n1"], b"x") == reason.NO_MATCHING_SUBSCRIBERS


def test_who_was_put_out_does_not_know_who_has_subscribed_since() -> None:
    """n1 comes back when the leader of the subscriber is gone: n2, which has stayed, tells it what it has heard."""
    cluster = majority()
    cluster.hand_log_to("n2")
    n1, n3 = cluster["n1"], cluster["n3"]
    subscriber = n3.client(n3.names_led("s")[0])
    subscriber.connect(session_expiry=EVER)
    cluster.cut("n1", "n2", "n3")
    cluster.advance(6 * SECOND)
    subscriber.subscribe("t", qos=1)
    cluster.advance(SECOND)
    n3.kill()
    cluster.heal()
    cluster.advance(8 * SECOND)
    assert code_of_publish(cluster, n1, b"x") == reason.IMPLEMENTATION_SPECIFIC_ERROR
    assert n1.node._state.unheard < 0, "it refuses because of that subscriber, and knows all others"


def test_messages_of_a_group_wait_for_members_that_may_be_in_an_absent_partition() -> None:
    cluster = majority()
    n1, n3 = cluster["n1"], cluster["n3"]
    near, far = n1.client(n1.names_led("a")[0]), n3.client(n3.names_led("b")[0])
    for member in (near, far):
        member.connect(session_expiry=EVER)
        member.subscribe("$share/g/t", qos=1)
        member.disconnect()
    publisher = n1.client("p")
    publisher.connect()
    for number in range(6):
        publisher.publish("t", b"%d" % number, qos=1)
    publisher.disconnect()
    cluster.advance(SECOND)
    restarted_without_n3(cluster)
    come(n1, near.client_id, clean=True)  # its session ends, and with it what it had not acknowledged
    cluster.advance(SECOND)
    n3.revive()
    cluster.settle()
    back = n3.client(far.client_id)
    back.connect(clean_start=False, session_expiry=EVER)
    cluster.advance(5 * SECOND)
    assert sorted([packet.payload for packet in back.publishes()]) == [b"%d" % number for number in range(6)]


def leader_of(site: Site, name: str) -> str:
    leaders = site.cluster_node.fabric.leaders
    return leaders[site.node._state.partition_of(name.encode())]


def test_a_group_goes_on_without_members_in_an_absent_partition_and_refuses_without_any_others() -> None:
    """[A11] a message that waits for the operator would fill the backlog, and hold up all that publish."""
    cluster = SimulatedCluster(3, partitions=16, replicas=1, split_policy="majority")
    n1, n2, n3 = cluster["n1"], cluster["n2"], cluster["n3"]
    near, far = n2.client(n2.names_led("m")[0]), n3.client(n3.names_led("m")[0])
    for member in (near, far):
        member.connect(session_expiry=EVER)
        member.subscribe("$share/g/both", qos=1)
    far.subscribe("$share/g/far", qos=1)
    publisher = n1.client(n1.names_led("p")[0])
    publisher.connect()
    cluster.advance(SECOND)
    n3.kill()
    cluster.advance(5 * SECOND)
    payloads = [b"%d" % number for number in range(6)]
    assert [publisher.publish("both", payload, qos=1) for payload in payloads] == [0] * 6
    assert near.payloads() == payloads
    assert publisher.publish("far", b"x", qos=1) == reason.IMPLEMENTATION_SPECIFIC_ERROR
    gone = next(f"r{number}" for number in range(200) if not leader_of(n1, f"r{number}"))
    for payload in (b"x", b""):
        assert publisher.publish(gone, payload, qos=1, retain=True) == reason.IMPLEMENTATION_SPECIFIC_ERROR
    n3.revive()
    cluster.settle()
    assert publisher.publish("far", b"y", qos=1) == 0


def test_a_producer_is_refused_while_the_partition_is_away_that_chooses_members_for_it() -> None:
    """[A11] the partition of the group's name knows what the producer has sent, although no member is in it."""
    cluster = SimulatedCluster(3, partitions=16, replicas=1, split_policy="majority")
    n1, n2, n3 = cluster["n1"], cluster["n2"], cluster["n3"]
    member = n2.client(n2.names_led("m")[0])
    member.connect(session_expiry=EVER)
    name = next(name for name in [f"$share/g{number}/t" for number in range(200)] if leader_of(n1, name) == "n3")
    member.subscribe(name, qos=1)
    n3.kill()
    cluster.advance(5 * SECOND)
    named = [("folkmoot-producer", "p"), ("folkmoot-seq", "1")]
    publisher = n1.client(n1.names_led("p")[0])
    publisher.connect()
    publisher.send(Publish(b"t", b"x", 1, False, False, 1, properties(user_properties=named)))
    publisher.expect_close(reason.IMPLEMENTATION_SPECIFIC_ERROR)
    assert held_bytes(n1) == 0
    publisher = n1.client(publisher.client_id)
    publisher.connect()
    assert publisher.publish("t", b"anybody's", qos=1) == 0
    n3.revive()
    cluster.settle()
    assert [publisher.publish("t", b"x", qos=1, user_properties=named) for _ in range(2)] == [0, 0]
    assert member.payloads() == [b"anybody's", b"x"]


def test_a_will_waits_although_its_client_comes_back_with_another_one() -> None:
    cluster = majority()
    n1, n3 = cluster["n1"], cluster["n3"]
    subscriber = n3.client(n3.names_led("s")[0])
    subscriber.connect(session_expiry=EVER)
    subscriber.subscribe("will", qos=1)
    restarted_without_n3(cluster)
    name = n1.names_led("w")[0]
    for text in (b"first", b"second"):
        peer = come(n1, name, will=Will(b"will", text, 1, False))
        cluster.advance(SECOND)
        assert peer.expect(Connack).code == 0
        peer.lose()
        cluster.advance(SECOND)
    n3.revive()
    cluster.settle()
    back = n3.client(subscriber.client_id)
    back.connect(clean_start=False, session_expiry=EVER)
    cluster.advance(5 * SECOND)
    assert sorted([packet.payload for packet in back.publishes()]) == [b"first", b"second"]


def held_bytes(site: Site, each: int = STRANDED_BYTES) -> int:
    """Return the bytes of messages that a node keeps in memory for other partitions; each: for what is beside them."""
    return sum(len(entry.body) + each for led in site.node._broker.partition.led for entry in led.outbox.values())


def test_wills_for_a_partition_that_is_away_do_not_fill_the_memory_of_other_nodes() -> None:
    """[A13] a client that is sent away for its messages leaves a will each time, and comes again at once."""
    limit = 65_536
    cluster = SimulatedCluster(
        3, partitions=16, replicas=1, split_policy="majority", limits={"write_backlog_bytes_max": limit}
    )
    site = cluster["n1"]
    far, near = cluster["n3"].names_led("far")[0].encode(), site.names_led("near")[0].encode()
    client_id, other_id = site.names_led("c")[:2]
    watcher = cluster["n2"].client(cluster["n2"].names_led("w")[0])
    watcher.resume()
    watcher.subscribe(near.decode(), qos=1)
    cluster["n3"].kill()
    cluster.advance(5 * SECOND)

    def loop(topic: bytes, code: int | None) -> int:
        peer = site.client(client_id, version=V311)
        answer = peer.connect(will=Will(topic, b"x" * 4000, 1, True), code=code)
        cluster.advance(SECOND // 100)
        if not answer.code:
            peer.send(Publish(far, b"refused", 1, True, False, 1))
            assert peer.closed
        cluster.advance(SECOND // 100)
        return answer.code

    codes = [loop(far, None) for _ in range(40)]
    accepted = codes.count(0)
    assert codes == [0] * accepted + [3] * (40 - accepted), "0x89, in MQTT 3"
    assert limit // 4 < held_bytes(site) < limit // 4 + 8_000
    assert site.node._broker.turn.throttle.stranded_bytes == held_bytes(site)
    assert site.node._broker.turn.throttle.backlog_bytes == 0, "and nobody waits for them"
    assert [loop(near, 0) for _ in range(3)] == [0] * 3, "its partition is there"
    site.client(other_id).connect()
    cluster["n3"].revive()
    cluster.advance(10 * SECOND)
    assert held_bytes(site) == site.node._broker.turn.throttle.stranded_bytes == 0
    late = cluster["n2"].client(cluster["n2"].names_led("late")[0])
    late.connect()
    late.subscribe(far.decode(), qos=1)
    cluster.advance(SECOND)
    assert late.payloads() == [b"x" * 4000]
    site.client(client_id).connect(will=Will(far, b"x", 1, True))


@pytest.mark.parametrize("away", [False, True])
def test_messages_of_a_lost_member_wait_on_the_disk_while_too_much_waits_elsewhere(away: bool) -> None:
    """[A13] the other member's partition is away, or its node does not answer; later it gets them all."""
    limit, size, count = 65_536, 4_000, 100
    cluster = SimulatedCluster(
        3,
        partitions=16,
        replicas=1,
        split_policy="majority",
        limits={"write_backlog_bytes_max": limit, "page_rows": 2},
    )
    site, other = cluster["n1"], cluster["n3"]
    ends = site.client(site.names_led("c")[0])
    ends.connect(session_expiry=EVER)
    ends.subscribe("$share/g/t", qos=1)
    ends.lose()
    publisher = site.client(site.names_led("p")[0])
    publisher.connect()
    for number in range(count):
        publisher.publish("t", b"%d" % number + b"x" * size, qos=1)
    stays = other.client(other.names_led("m")[0])
    stays.connect(session_expiry=EVER)
    stays.subscribe("$share/g/t", qos=1)
    cluster.advance(SECOND)
    if away:
        other.kill()
        cluster.advance(5 * SECOND)
    else:
        other.up = False  # it hangs: nobody knows yet
    come(site, ends.client_id, True)
    cluster.advance(SECOND // 2)
    assert limit // 4 < held_bytes(site, STRANDED_BYTES if away else 0) < limit + 4 * size
    if away:
        other.revive()
        cluster.advance(5 * SECOND)
        stays = other.client(stays.client_id)
        stays.resume()
    other.up = True
    cluster.advance(10 * SECOND)
    assert held_bytes(site) == 0
    numbers = [int(payload.rstrip(b"x")) for payload in stays.payloads()]
    assert numbers == list(range(count))


class Apps:
    """Two apps of one home at n1; a stored session at n3 gets `far`, one at n2 gets `near`; then n3 is away."""

    def __init__(self, far: str = "far", **limits: int) -> None:
        self.cluster = cluster = SimulatedCluster(3, partitions=16, replicas=1, split_policy="majority", limits=limits)
        self.site = cluster["n1"]
        self.far = cluster["n3"].client(cluster["n3"].names_led("far")[0])
        self.near = cluster["n2"].client(cluster["n2"].names_led("near")[0])
        for peer, topic_filter in ((self.far, far), (self.near, "near")):
            peer.resume()
            peer.subscribe(topic_filter, qos=1)
        home = self.site.cluster_node.fabric.leaders.index("n1")
        apps = [name for name in [f"app{number}" for number in range(500)] if home_of(name.encode(), 16) == home]
        self.one, self.other = [Desk(self.site, app, 16) for app in apps[:2]]
        cluster["n3"].kill()
        cluster.advance(5 * SECOND)

    def publish(self, desk: Desk, number: int, topic: str, payloads: list[bytes]) -> None:
        for order in (desk.stage(number, "p", 0, topic, payloads), desk.commit(number, ("p", 1))):
            assert order is not None
            assert order.status == FOUND

    def stranded_bytes(self) -> int:
        return self.site.node._broker.turn.throttle.stranded_bytes

    def come_back(self) -> Peer:
        """Start n3 again; return the client there."""
        self.cluster["n3"].revive()
        self.cluster.settle()
        back = self.cluster["n3"].client(self.far.client_id)
        back.resume()
        self.cluster.advance(5 * SECOND)
        return back


def test_a_transaction_for_a_partition_that_is_away_waits_and_no_other_app_does() -> None:
    """[A13] it stays on the disk of its home, in its place: others, and wills for that partition, have room."""
    limit, size, count = 65_536, 1_000, 5
    apps = Apps(write_backlog_bytes_max=limit)
    payloads = [b"%02d" % number + bytes(size) for number in range(12 * count)]
    for number in range(12):
        apps.publish(apps.one, number, "far", payloads[count * number : count * number + count])
    apps.publish(apps.one, 12, "near", [b"last"])
    apps.cluster.advance(5 * SECOND)
    assert limit // 8 < apps.stranded_bytes() < limit // 8 + count * (size + 100)
    apps.publish(apps.other, 0, "near", [b"of the other"])
    apps.cluster.advance(SECOND)
    assert apps.near.payloads() == [b"of the other"]
    apps.site.client(apps.site.names_led("w")[0]).connect(will=Will(b"far", b"gone", 1, False))
    assert apps.come_back().payloads() == payloads
    assert apps.near.payloads() == [b"last"]
    assert apps.stranded_bytes() == 0


def test_many_small_messages_for_a_partition_that_is_away_stop_no_other_app() -> None:
    apps = Apps()
    payloads = [b"%d" % number for number in range(3 * ERRANDS_MAX)]
    for number in range(12):
        apps.publish(apps.one, number, "far", payloads[256 * number : 256 * number + 256])
    apps.cluster.advance(5 * SECOND)
    apps.publish(apps.other, 0, "near", [b"of the other"])
    apps.cluster.advance(SECOND)
    assert apps.near.payloads() == [b"of the other"]
    outbox = apps.site.node._broker.channel.outbox
    assert outbox.count(apps.one.home) == ERRANDS_MAX
    assert outbox.moving(apps.one.home) == 0
    assert apps.come_back().payloads() == payloads
    assert apps.site.node._broker.channel.forward_sender.stranded == {}


def test_a_transaction_goes_on_when_its_messages_can_go_to_somebody_else() -> None:
    apps = Apps("$share/g/far", write_backlog_bytes_max=4_096)
    payloads = [b"%d" % number + bytes(1_000) for number in range(4)]
    for number in range(4):
        apps.publish(apps.one, number, "far", [payloads[number]])
    apps.cluster.advance(5 * SECOND)
    assert STRANDED_BYTES < apps.stranded_bytes() < STRANDED_BYTES + 2_000
    apps.near.subscribe("$share/g/far", qos=1)
    apps.cluster.advance(2 * SECOND)
    assert apps.near.payloads() == payloads[1:]
    assert apps.come_back().payloads() == payloads[:1]
