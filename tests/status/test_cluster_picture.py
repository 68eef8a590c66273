"""The status of a member from the real parts of a cluster: before its first view, in a view of its own; its orders."""

from __future__ import annotations

import pytest

from folkmoot.auth.access import Access
from folkmoot.auth.policy import Policy
from folkmoot.kernel.limits import Limits
from folkmoot.kernel.rng import Rng
from folkmoot.membership.holding import Holding, HoldingsSource
from folkmoot.membership.logged_membership import LoggedMembership
from folkmoot.merge.heals import Heals
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.member import ACTIVE, Member
from folkmoot.peer.peers import Peers
from folkmoot.replica.replication import Replication
from folkmoot.session.connection import Connection, PeerInfo
from folkmoot.session.relay import Remote
from folkmoot.session.session import Session
from folkmoot.status.cluster_picture import ClusterPicture
from folkmoot.status.status import NodeStatus
from folkmoot.store.epoch import counter_of
from folkmoot.store.memory import MemoryStore
from folkmoot.store.writer import Writer
from folkmoot.turn.state import Identity, State
from tests.harness.box import START

PARTITIONS = 8


class Lonely:
    """The cluster's half of one node that meets nobody, on a store in memory."""

    def __init__(self, seeds: tuple[int, ...] = (1, 2, 3)) -> None:
        self.config = ClusterConfig()
        self.config.peer_address = "127.0.0.1:1"
        self.config.partitions = PARTITIONS
        self.config.seeds = [f"127.0.0.1:{port}" for port in seeds]
        self.now = START
        store = MemoryStore()
        writer = Writer(PARTITIONS, 1)
        self.state = State(Identity(), Limits(), Access(Policy([], True)), PARTITIONS, store, writer, Rng(1))
        me = Member("a", 3, self.config.peer_address, "rack", ACTIVE, 1, 1, "9.9", disk=7)
        self.replication = Replication("a", PARTITIONS, self.config, store, writer)
        self.replication.open(self.now)
        source = _Holdings(self.replication)
        self.membership = LoggedMembership(me, self.config, PARTITIONS, Rng(2), source, store)
        self.membership.open(self.now)
        self.store = store
        self.writer = writer
        peers = Peers(me, self.config, Rng(3))
        parts = (me, self.config, self.membership, peers, self.replication, self.state, Heals("a"))
        self.status = NodeStatus(ClusterPicture(*parts))

    def go_on(self, seconds: int) -> None:
        """Let time pass; install what is agreed on, which alone is what this node wants."""
        until = self.now + seconds * 1_000_000
        while self.now < until:
            self.membership.step(self.writer, self.now)
            for view in self.membership.installs:
                self.replication.install(view, self.now)
            self.membership.installs.clear()
            batch = self.writer.take()
            self.replication.seal(batch, self.now)
            if batch is not None:
                self.store.apply(batch)
                self.membership.written(batch.token, self.now)
                self.replication.written(batch.token, self.now)
            else:
                self.now = min(until, max(self.now + 1, self.membership.next_wake()))

    def serve(self) -> None:
        """Start every partition that is ready."""
        self.replication.seal(None, self.now)  # a view comes to life with the next call
        for partition in list(self.replication.ready):
            self.replication.start(partition, self.now)
        self.replication.ready.clear()


class _Holdings(HoldingsSource):
    def __init__(self, replication: Replication) -> None:
        self.replication = replication

    def holdings(self) -> list[Holding]:
        return self.replication.holdings()


@pytest.fixture
def lonely() -> Lonely:
    return Lonely()


def test_before_its_first_view_it_waits(lonely: Lonely) -> None:
    status = lonely.status
    found = status.status()
    assert (found["node"], found["state"], found["epoch"], found["nodes"]) == ("a", "waiting", 0, [])
    assert found["writable"] is False
    assert "waits" in status.unready()
    for why_not in (status.evict("a", 1), status.forget("a", 1), status.leave("a", 1)):
        assert "no node 'a'" in why_not
    assert "no member of a view" in status.picture.leave("a", 1)


def test_alone_in_a_view_it_takes_over_and_is_ready(lonely: Lonely) -> None:
    status = lonely.status
    lonely.go_on(10)
    assert "taking over 8" in status.unready()
    assert {entry["state"] for entry in status.partitions()} == {"opening"}
    lonely.serve()
    assert status.unready() == ""
    found = status.status()
    assert (found["state"], found["software"], found["replicas"]) == ("member", "9.9", 3)
    assert found["counter"] == counter_of(found["epoch"])  # type: ignore[arg-type]
    assert found["writable"] is True
    nodes = found["nodes"]
    assert isinstance(nodes, list)
    (node,) = nodes
    assert [node[name] for name in ("id", "incarnation", "zone", "leads", "follows")] == ["a", 3, "rack", 8, 0]
    figures = found["partitions"]
    assert isinstance(figures, dict)
    assert (figures["open"], figures["under_replicated"], figures["damaged"]) == (8, 8, 0)
    assert found["copy"] == {"bytes_left": 0, "bytes_done": 0, "all_left": 0, "all_rate": 0}
    assert {entry["leader"] for entry in status.partitions()} == {"a"}
    safe = status.safe_to_stop("a")
    assert safe is not None
    assert safe["safe"] is False


def test_alone_it_waits_on_if_another_one_is_the_first_of_the_seeds() -> None:
    lonely = Lonely((2, 1, 3))
    lonely.go_on(10)
    assert lonely.status.status()["state"] == "waiting"


def test_the_load_that_it_tells_others_is_shown(lonely: Lonely) -> None:
    lonely.membership.set_load({"clients": 4, "sessions": 5, "overload": 6})
    lonely.go_on(10)
    found = lonely.status.status()
    assert found["overload"] == 6
    nodes = found["nodes"]
    assert isinstance(nodes, list)
    (node,) = nodes
    assert (node["clients"], node["sessions"]) == (4, 5)


def test_the_leader_of_a_session_knows_where_its_client_is(lonely: Lonely) -> None:
    lonely.go_on(10)
    assert lonely.status.where_client("c")["owner"] is None
    session = Session("c", 0, True)
    lonely.state.sessions["c"] = session
    assert lonely.status.where_client("c")["owner"] is None
    session.connection = Connection(1, None, PeerInfo("tcp", "192.0.2.1:1", None), lonely.now, [])
    assert lonely.status.where_client("c")["owner"] == "a"
    session.connection.remote = Remote("b", 7, 1)
    assert lonely.status.where_client("c")["owner"] == "b"


def test_orders_reach_the_membership(lonely: Lonely) -> None:
    lonely.go_on(10)
    assert "the only remaining node" in lonely.status.leave("a", lonely.now)
    assert "evict it first" in lonely.status.forget("a", lonely.now)
    assert "no node 'b'" in lonely.status.evict("b", lonely.now)
