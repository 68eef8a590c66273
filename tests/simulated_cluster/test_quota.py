"""Quotas of users in a cluster: counted where things are, and counted anew wherever they go."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt import reason
from folkmoot.mqtt.packet import V311, Connack, Connect, Publish
from folkmoot.session.account import Account
from folkmoot.sim.check_quota import miscounted
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site


def cluster_of(count: int = 3, **limits: int | bool) -> SimulatedCluster:
    return SimulatedCluster(count, limits=limits, check=lambda *_: True)


def account(site: Site, name: str) -> Account:
    return site.node._state.accounts.of(name)


def total(cluster: SimulatedCluster, name: str, what: str) -> int:
    return sum(getattr(account(site, name), what) for site in cluster.live())


def enter(site: Site, name: str, client: str, *, stored: bool = True, code: int = 0) -> Peer:
    peer = site.client(client)
    again(peer, name, stored=stored, code=code)
    return peer


def again(peer: Peer, name: str, *, stored: bool = True, code: int = 0) -> None:
    peer.connect(
        username=name, password=b"x", clean_start=not stored, code=code, session_expiry=EVER if stored else None
    )


def check(cluster: SimulatedCluster) -> None:
    for site in cluster.live():
        assert miscounted(site.node) == "", site.name


def test_everything_is_counted_once_and_follows_its_partition() -> None:
    cluster = cluster_of()
    peers = [enter(cluster[f"n{number % 3 + 1}"], "ann", f"a{number}") for number in range(9)]
    for number, peer in enumerate(peers):
        peer.subscribe("t", f"own/{number}", qos=1)
    for peer in peers[:4]:
        peer.lose()
    bob = enter(cluster["n1"], "bob", "b", stored=False)
    for number in range(5):
        bob.publish("t", bytes(99), qos=1)
        bob.publish(f"r/{number}", b"x", qos=1, retain=True)
    check(cluster)
    assert total(cluster, "ann", "sessions") == 9
    assert total(cluster, "ann", "connections") == 5
    assert total(cluster, "ann", "subscriptions") == 18
    assert total(cluster, "ann", "queue_bytes") == 4 * 5 * 100
    assert total(cluster, "bob", "retained_messages") == 5
    cluster["n3"].kill()
    cluster.settle()
    check(cluster)
    assert total(cluster, "ann", "queue_bytes") == 4 * 5 * 100
    assert total(cluster, "bob", "retained_messages") == 5
    cluster["n3"].revive()
    cluster.settle()
    check(cluster)
    assert total(cluster, "ann", "sessions") == 9
    assert total(cluster, "bob", "retained_messages") == 5


@pytest.mark.parametrize("stored", [True, False])
def test_a_client_of_another_leader_is_refused_with_the_reason(stored: bool) -> None:
    cluster = cluster_of(user_sessions_max=1, user_connections_max=1)
    led = cluster["n2"].names_led("a")
    first = enter(cluster["n1"], "ann", led[0], stored=stored)
    assert enter(cluster["n3"], "ann", led[1], stored=stored, code=0x97).closed, "its leader has one session of ann"
    first.lose()
    again(cluster["n1"].client(led[0]), "ann", stored=stored)
    elsewhere = cluster["n3"].names_led("b")
    enter(cluster["n1"], "ann", elsewhere[0], stored=stored, code=0x97)  # the node has one connection of ann
    check(cluster)


@pytest.mark.parametrize("stored", [True, False])
def test_a_client_that_returns_before_its_old_connection_is_dead_takes_its_place(stored: bool) -> None:
    cluster = cluster_of(user_sessions_max=1, user_connections_max=1)
    for leader in ("n1", "n2"):
        name = cluster[leader].names_led("a")[0]
        old = enter(cluster["n1"], leader, name, stored=stored)
        new = enter(cluster["n1"], leader, name, stored=stored)
        assert old.closed
        assert new.connection is not None
        assert account(cluster["n1"], leader).connections == 1
    check(cluster)


def test_a_retained_message_counts_for_its_user_at_the_leader_of_its_topic() -> None:
    cluster = cluster_of(user_retained_messages_max=1)
    topics = cluster["n2"].names_led("t")[:3]
    ann = enter(cluster["n1"], "ann", "a", stored=False)
    bob = enter(cluster["n3"], "bob", "b", stored=False)
    bob.subscribe("#", qos=1)
    assert [ann.publish(topic, b"x", qos=1, retain=True) for topic in topics] == [0, 0x97, 0x97]
    assert account(cluster["n2"], "ann").retained_messages == 1
    assert cluster["n2"].node.counters.quota_refused_retained == 2
    assert [topic for topic, _ in bob.messages()] == topics, "they are delivered"
    late = enter(cluster["n3"], "bob", "late", stored=False)
    late.subscribe("#")
    assert late.messages() == [(topics[0], b"x")]
    assert ann.publish(topics[0], b"y", qos=1, retain=True) == 0
    assert late.messages() == [(topics[0], b"y")]
    ann.publish(topics[0], b"", qos=1, retain=True)
    ann.publish(topics[1], b"z", qos=1, retain=True)
    assert account(cluster["n2"], "ann").retained_messages == 1
    check(cluster)


def test_whoever_cannot_be_told_is_acknowledged() -> None:
    """A PUBREC with an error would free a packet id that is stored as used; MQTT 3.1.1 has no error for a PUBLISH."""
    cluster = cluster_of(user_retained_messages_max=1)
    topics = cluster["n2"].names_led("t")[:3]
    ann = enter(cluster["n1"], "ann", "a", stored=False)
    old = cluster["n1"].client("old", V311)
    again(old, "ann", stored=False)
    ann.publish(topics[0], b"x", qos=1, retain=True)
    assert ann.publish(topics[1], b"x", qos=2, retain=True) in (0, 0x10)
    assert old.publish(topics[2], b"x", qos=1, retain=True) == 0
    assert old.connection is not None
    assert cluster["n2"].node.counters.quota_refused_retained == 2
    asked = enter(cluster["n3"], "ann", "asked", stored=False)
    code = asked.publish(topics[1], b"x", qos=1, retain=True, user_properties=[("folkmoot-receipt", "")])
    assert code == 0x97


def test_a_user_that_has_more_after_a_takeover_loses_nothing() -> None:
    cluster = cluster_of(2, user_sessions_max=2)
    names = cluster["n1"].names_led("a")[:2] + cluster["n2"].names_led("a")[:2]
    for name in names:
        enter(cluster["n1"], "ann", name).lose()
    cluster["n2"].kill()
    cluster.settle()
    assert account(cluster["n1"], "ann").sessions == 4
    for name in names:
        peer = cluster["n1"].client(name)
        answer = peer.connect(username="ann", password=b"x", clean_start=False, session_expiry=EVER)
        assert answer.session_present
        peer.lose()
    enter(cluster["n1"], "ann", "another", code=0x97)
    check(cluster)


def test_clients_whose_leaders_have_not_answered_count_as_connections_of_their_user() -> None:
    cluster = cluster_of(2, user_connections_max=2)
    here, there = cluster["n1"], cluster["n2"]
    clients = [here.client(client_id) for client_id in there.names_led("c")[:4]]
    cluster.freeze()
    for client in clients[:3]:
        client.open().send(Connect(5, client.client_id, True, 0, "u", b""))
    here.run_alone()  # the passwords are right
    clients[0].lose()
    clients[3].open().send(Connect(5, clients[3].client_id, True, 0, "u", b""))
    cluster.thaw()
    cluster.run()
    assert [client.expect(Connack).code for client in clients[1:]] == [0, reason.QUOTA_EXCEEDED, 0]
    check(cluster)


def test_clients_that_wait_for_their_older_connections_elsewhere_count_as_connections_of_their_user() -> None:
    cluster = cluster_of(2, user_connections_max=2)
    here, there = cluster["n1"], cluster["n2"]
    client_ids = here.names_led("c")[:3]
    for client_id in client_ids[:2]:
        enter(there, "u", client_id)
    enter(there, "v", client_ids[2])
    clients = [here.client(client_id) for client_id in client_ids]
    cluster.freeze()
    for client in clients:
        client.open().send(Connect(5, client.client_id, True, 0, "u", b""))
    cluster.thaw()
    cluster.run()
    assert [client.expect(Connack).code for client in clients] == [0, 0, reason.QUOTA_EXCEEDED]
    check(cluster)


@pytest.mark.parametrize("led", ["n1", "n2"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("producer", [False, True])
def test_a_client_has_its_rate_wherever_its_session_is_led(led: str, qos: int, producer: bool) -> None:
    """Also if the leader publishes for it: what has QoS 2, and what an idempotent producer sends."""
    cluster = SimulatedCluster(3, limits={"publish_rate_max": 10})
    watcher = cluster["n3"].client("w")
    watcher.connect()
    watcher.subscribe("t")
    peer = cluster["n1"].client(cluster[led].names_led("c")[0])
    peer.resume()
    for number in range(1, 26):
        pairs = [("folkmoot-producer", "p"), ("folkmoot-seq", str(number))] if producer else None
        made = properties(user_properties=pairs)
        peer.send(Publish(b"t", b"%d" % number, qos, packet_id=number if qos else 0, properties=made))
    first = watcher.payloads()
    assert len(first) == 10
    cluster.advance(3 * SECOND)
    assert first + watcher.payloads() == [b"%d" % number for number in range(1, 26)]
