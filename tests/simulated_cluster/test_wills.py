"""Wills of one client at both sides of a split: each is published once, when its own connection has ended (A7)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import Subscribe, Will
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 16


def will(payload: bytes) -> Will:
    return Will(b"will", payload, 1, False)


@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_a_client_that_goes_to_the_other_side_has_two_wills_and_each_is_published_once(expiry_s: int) -> None:
    cluster = SimulatedCluster(5, partitions=PARTITIONS, replicas=5, split_policy="majority")
    here = cluster["n1"]
    client_id = cluster["n4"].names_led("c")[0]
    watcher = here.client(cluster["n1"].names_led("w")[0])
    watcher.connect(session_expiry=EVER)
    watcher.subscribe("will", qos=1)
    cluster["n5"].client(client_id).connect(will=will(b"first"), session_expiry=expiry_s)
    cluster.cut("n4", "n1", "n2", "n3")
    cluster.cut("n5", "n1", "n2", "n3")
    cluster.advance(5 * SECOND)
    second = cluster["n2"].client(client_id)
    second.connect(will=will(b"second"), session_expiry=expiry_s)
    cluster.advance(SECOND)
    cluster.heal()
    cluster.settle()
    cluster.advance(5 * SECOND)
    assert watcher.payloads() == [b"first"]
    second.lose()
    cluster.advance(5 * SECOND)
    assert watcher.payloads() == [b"second"]


class Halves:
    """n4 and n5 have forked; the partition of client `client_id` is led at both sides, and heals."""

    def __init__(self) -> None:
        self.cluster = cluster = SimulatedCluster(5, partitions=PARTITIONS, replicas=5)
        here = cluster["n1"]
        self.client_id = cluster["n4"].names_led("c")[0]
        self.watcher = here.client(cluster["n1"].names_led("w")[0])
        self.watcher.connect(session_expiry=EVER)
        self.watcher.subscribe("will", qos=1)
        cluster.cut("n4", "n1", "n2", "n3")
        cluster.cut("n5", "n1", "n2", "n3")
        cluster.advance(10 * SECOND)

    def connect(self, at: str, payload: bytes, expiry_s: int = 0) -> Peer:
        """Connect the client at a node, with a will if there is a payload."""
        peer = self.cluster[at].client(self.client_id)
        peer.connect(will=will(payload) if payload else None, session_expiry=expiry_s)
        self.cluster.advance(SECOND)
        return peer

    def heal(self) -> None:
        self.cluster.heal()
        self.cluster.settle()
        self.cluster.advance(5 * SECOND)


@pytest.mark.parametrize("at", ["n4", "n5"])
def test_of_two_connections_of_one_transient_client_one_stays_and_the_will_of_the_other_is_published(at: str) -> None:
    halves = Halves()
    peers = {b"smaller": halves.connect(at, b"smaller"), b"larger": halves.connect("n2", b"larger")}
    halves.heal()
    gone = [name for name, peer in peers.items() if peer.closed]
    assert halves.watcher.payloads() == gone
    (stays,) = [name for name in peers if name not in gone]
    peers[stays].lose()
    halves.cluster.advance(5 * SECOND)
    assert halves.watcher.payloads() == [stays]


@pytest.mark.parametrize("places", [("n4", "n2"), ("n5", "n2"), ("n2", "n4"), ("n2", "n5"), ("n1", "n5")])
@pytest.mark.parametrize("has", [0, 1])
def test_a_connection_without_a_will_does_not_get_that_of_another(places: tuple[str, str], has: int) -> None:
    halves = Halves()
    peers = [halves.connect(at, b"will" if number == has else b"") for number, at in enumerate(places)]
    halves.heal()
    assert halves.watcher.payloads() == ([b"will"] if peers[has].closed else [])
    if not peers[has].closed:
        peers[has].lose()
        halves.cluster.advance(5 * SECOND)
        assert halves.watcher.payloads() == [b"will"]


@pytest.mark.parametrize(("first", "second"), [("n4", "n2"), ("n2", "n4")])
@pytest.mark.parametrize("open_still", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_a_clean_start_ends_a_session_that_only_the_other_side_has(
    first: str, second: str, open_still: bool, clean: bool
) -> None:
    """Its will is due then, delay or not, and its subscriptions are gone; else the client goes on in both."""
    halves = Halves()
    delayed = Will(b"will", b"delayed", 1, False, properties(will_delay=1000))
    before = halves.cluster[first].client(halves.client_id)
    before.connect(will=delayed, session_expiry=EVER)
    before.subscribe("before/#", qos=1)
    if not open_still:
        before.lose()
    halves.cluster.advance(SECOND)
    after = halves.cluster[second].client(halves.client_id)
    assert not after.connect(clean_start=clean, session_expiry=EVER).session_present
    halves.cluster.advance(SECOND)
    halves.heal()
    assert before.closed or not open_still
    assert halves.watcher.payloads() == ([b"delayed"] if clean else [])
    if after.closed:
        assert after.resume().session_present
    publisher = halves.cluster["n1"].client("p")
    publisher.connect()
    publisher.publish("before/x", b"for the session before", qos=1)
    halves.cluster.advance(SECOND)
    assert after.payloads() == ([] if clean else [b"for the session before"])


@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_who_says_goodbye_while_the_sides_are_merged_has_no_will(expiry_s: int) -> None:
    """The other one, at the side that goes over to this one's lineage, is disconnected by its node."""
    places = ("n4", "n2")
    halves = Halves()
    cluster = halves.cluster
    peers = [halves.connect(at, b"will %d" % number, expiry_s) for number, at in enumerate(places)]
    leaves = places.index("n2")
    others = [site for site in cluster.live() if site.name != "n1"]
    cluster.heal()
    for _ in range(1000):
        cluster.advance(SECOND // 100)
        view = cluster["n1"].cluster_node.view
        if view is not None and len(view.members) == 5:
            break
    for site in others:
        site.hold_writes()
    assert not peers[leaves].closed
    peers[leaves].disconnect()
    cluster.advance(SECOND // 10)
    for site in others:
        site.release_writes()
    cluster.settle()
    cluster.advance(5 * SECOND)
    assert peers[1 - leaves].closed
    assert halves.watcher.payloads() == [b"will %d" % (1 - leaves)]


@pytest.mark.parametrize("expiry_s", [0, EVER])
@pytest.mark.parametrize("stays", [False, True])
def test_a_will_that_both_sides_publish_comes_once(stays: bool, expiry_s: int) -> None:
    """The side that does not see the client takes it for gone; its connection ends before the heal, or after it."""
    cluster = SimulatedCluster(5, partitions=PARTITIONS, replicas=5)
    client_id = cluster["n4"].names_led("c")[0]
    watcher = cluster["n1"].client(cluster["n1"].names_led("w")[0])
    watcher.connect(session_expiry=EVER)
    watcher.subscribe("will", qos=1)
    peer = cluster["n2"].client(client_id)
    peer.connect(will=will(b"once"), session_expiry=expiry_s)
    cluster.advance(SECOND)
    cluster.cut("n4", "n1", "n2", "n3")
    cluster.cut("n5", "n1", "n2", "n3")
    came: list[bytes] = []
    if not stays:
        peer.lose()
    for heals in (False, True):
        if heals:
            cluster.heal()
            cluster.settle()
        cluster.advance(10 * SECOND)
        came += watcher.payloads()
    peer.lose()
    cluster.advance(5 * SECOND)
    came += watcher.payloads()
    assert came == [b"once"]


class Healing:
    """n3 was alone; what n2 leads cannot be merged, as n3 does not answer it: not all routes are known."""

    def __init__(self) -> None:
        self.cluster = cluster = SimulatedCluster(3, partitions=PARTITIONS)
        cluster.hand_log_to("n1")
        self.here = here = cluster["n1"]
        third = cluster["n3"]
        of_third = third.names_led("x")[:4]
        cluster.cut("n3", "n1", "n2")
        cluster.advance(10 * SECOND)
        for name in of_third:
            third.client(name).connect(session_expiry=EVER)
            here.client(f"{name}-").connect(session_expiry=EVER)
        for name in here.names_led("y")[:8]:
            here.client(name).connect(session_expiry=EVER)
        cluster.advance(SECOND)
        cluster.heal()
        while "n3" not in cluster["n2"].control.neighbours.links:
            cluster.advance(SECOND // 100)
        cluster.held = {("n3", "n2")}
        while len(here.cluster_node.membership.view.members) < 3:  # type: ignore[union-attr]
            cluster.advance(SECOND // 100)
        cluster.advance(SECOND // 5)
        assert here.node._state.routes_known
        assert not here.node._state.routes_whole
        self.client_id, watching = here.names_led("c")[0], here.names_led("w")[0]
        self.watcher = here.client(watching)
        self.watcher.connect(session_expiry=EVER)
        self.watcher.send(Subscribe(1, [(b"will", 1)]))

    def settle(self) -> None:
        self.cluster.held.clear()
        self.cluster.settle()
        self.cluster.advance(5 * SECOND)


@pytest.mark.parametrize("expiry_s", [0, EVER])
@pytest.mark.parametrize("lost", [True, False])  # or taken over
def test_while_sides_are_merged_elsewhere_a_client_that_comes_again_with_another_will_keeps_it(
    expiry_s: int, lost: bool
) -> None:
    healing = Healing()
    cluster = healing.cluster
    first = healing.here.client(healing.client_id)
    first.connect(will=will(b"first"), session_expiry=expiry_s)
    if lost:
        first.lose()
    second = healing.here.client(healing.client_id)
    second.connect(clean_start=False, will=will(b"second"), session_expiry=expiry_s)
    cluster.advance(SECOND // 2)
    healing.settle()
    assert healing.watcher.payloads() == [b"first"]
    assert not second.closed
    healing.here.kill()
    healing.here.revive()
    cluster.settle()
    cluster.advance(5 * SECOND)
    healing.watcher.resume()
    cluster.advance(SECOND)
    assert healing.watcher.payloads() == [b"second"]


@pytest.mark.parametrize("number", range(6))
def test_a_will_that_a_fork_publishes_for_sessions_without_a_copy_there_comes_after_the_heal(number: int) -> None:
    """A node that is alone leads some partitions only: what it publishes for the others waits in an outbox."""
    cluster = SimulatedCluster(5, partitions=PARTITIONS, replicas=3)
    watcher = cluster["n1"].client(f"w{number}")
    watcher.connect(session_expiry=EVER)
    watcher.subscribe("will", qos=2)
    cluster.advance(SECOND)
    for other in ("n1", "n2", "n3", "n4"):
        cluster.cut("n5", other)
    cluster.advance(10 * SECOND)
    led = [partition for partition, leads in enumerate(cluster["n5"].node._state.leads) if leads]
    names = [f"c{number}" for number in range(100)]
    client_id = next(name for name in names if hash64(name.encode()) % PARTITIONS in led)
    peer = cluster["n5"].client(client_id)
    peer.connect(will=will(b"x"), session_expiry=EVER)
    peer.lose()
    cluster.heal()
    cluster.settle()
    cluster.advance(5 * SECOND)
    assert watcher.payloads() == [b"x"]


@pytest.mark.parametrize("keeper", ["n1", "n3"])
def test_a_will_that_cannot_be_retained_is_published_all_the_same(keeper: str) -> None:
    """The limit is reached at every node; `keeper` leads the partition of the will's topic."""
    cluster = SimulatedCluster(3, limits={"retained_messages_max": 1})
    site = cluster["n1"]
    watcher = cluster["n2"].client("watcher")
    watcher.connect()
    watcher.subscribe("will/#", qos=1)
    full = site.client("full")
    full.connect()
    for other in cluster.live():
        full.publish(other.names_led("full")[0], b"x", qos=1, retain=True)
    topic = cluster[keeper].names_led("will/")[0]
    client = site.client(site.names_led("c")[0])
    client.connect(will=Will(topic.encode(), b"gone", 1, True))
    client.lose()
    cluster.advance(SECOND)
    assert watcher.payloads() == [b"gone"]
    late = cluster["n2"].client("late")
    late.connect()
    late.subscribe("will/#", qos=1)
    assert late.payloads() == []


@pytest.mark.parametrize("order", ["n4 n5", "n5 n4"])
def test_wills_of_two_nodes_that_are_lost_at_once_find_no_subscriber_at_either(order: str) -> None:
    """A group has its only member at one of them, and each has clients of all leaders that stay."""
    cluster = SimulatedCluster(5, partitions=8, replicas=3)
    first, second = order.split()
    watcher = cluster["n1"].client("watcher")
    watcher.connect()
    watcher.subscribe("will", qos=1)
    member = cluster[second].client("member")
    member.connect()
    member.subscribe("$share/g/will", qos=1)
    wills: list[bytes] = []
    for leader in ("n1", "n2", "n3"):
        for node_id in (first, second):
            client_id = cluster[leader].names_led(f"c-{node_id}-")[0]
            wills.append(client_id.encode())
            cluster[node_id].client(client_id).connect(will=will(wills[-1]))
    cluster[first].up = cluster[second].up = False
    cluster.advance(10 * SECOND)
    assert sorted(watcher.payloads()) == sorted(wills)
