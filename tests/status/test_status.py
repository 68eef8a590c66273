"""What an operator is told, for views that a test makes up: counts, under-replicated, ready, safe to stop."""

from __future__ import annotations

import json

import pytest

from folkmoot.kernel.hash import hash64
from folkmoot.peer.member import ACTIVE, LEAVING, Member
from folkmoot.status.picture import ALONE, EXCLUDED, MEMBER, WAITING, AlonePicture, Picture
from folkmoot.status.status import NodeStatus
from tests.harness.box import Box
from tests.harness.picture import Drawn, Roles

FULL: Roles = [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "c", "b"]]


def test_the_status_counts_roles_and_copies() -> None:
    picture = Drawn([["a", "b", "c"], ["b", "c"], ["b"]], [[], ["a"], []])
    picture.closed = {2}
    picture.members[2].state = LEAVING
    status = NodeStatus(picture).status()
    assert (status["node"], status["software"], status["state"]) == ("a", "1.a", "member")
    assert (status["epoch"], status["counter"], status["controller"]) == (77, 7, "b")
    assert (status["overload"], status["replicas"], status["writable"]) == (3, 3, True)
    assert status["partitions"] == {
        "total": 3,
        "open": 2,
        "under_replicated": 2,
        "moving": 1,
        "refusing": 0,
        "damaged": 1,
        "digest_checked": 4,
        "digest_different": 0,
        "digest_passed_over": 0,
        "digest_round_us": 0,
    }
    assert status["copy"] == {"bytes_left": 10, "bytes_done": 30, "all_left": 0, "all_rate": 0}
    assert status["last_heal"] is None
    nodes = status["nodes"]
    assert isinstance(nodes, list)
    told = [(node["id"], node["state"], node["leads"], node["follows"], node["fills"]) for node in nodes]
    assert told == [("a", "active", 1, 0, 1), ("b", "active", 2, 1, 0), ("c", "leaving", 0, 2, 0)]
    assert nodes[1]["clients"] == ord("b")


def test_the_overload_of_a_cluster_is_the_highest_of_its_members() -> None:
    picture = Drawn(FULL)
    picture.loads = {"b": {"overload": 7}}
    status = NodeStatus(picture).status()
    assert status["overload"] == 7
    nodes = status["nodes"]
    assert isinstance(nodes, list)
    assert [node["overload"] for node in nodes] == [3, 7, 3]


def test_a_node_that_is_expected_back_is_shown_as_away() -> None:
    nodes = NodeStatus(Drawn(FULL, members="ac", known="abc")).status()["nodes"]
    assert isinstance(nodes, list)
    assert [(node["id"], node["state"]) for node in nodes] == [("a", "active"), ("b", "away"), ("c", "active")]
    assert len({tuple(node) for node in nodes if node["state"] == "active"}) == 1
    assert {frozenset(node) for node in nodes} == {frozenset(nodes[0])}, "all have the same fields"


def test_what_was_last_seen_of_a_node_that_is_away_is_told() -> None:
    picture = Drawn(FULL, members="ac", known="abc")
    picture.absent = [Member("b", 4, "b:1", "rack", ACTIVE)]
    nodes = NodeStatus(picture).status()["nodes"]
    assert isinstance(nodes, list)
    assert [nodes[1][name] for name in ("incarnation", "zone", "address", "software", "clients")] == [
        *(4, "rack", "b:1", "1.b", 0)
    ]


def test_before_its_first_view_a_node_knows_nothing() -> None:
    picture = Drawn(FULL, known="")
    picture.there = False
    picture.now_state = WAITING
    status = NodeStatus(picture)
    found = status.status()
    assert (found["epoch"], found["nodes"]) == (0, [])
    assert status.partitions() == []
    assert status.where_client("x")["leader"] is None
    assert status.safe_to_stop("a") is None
    assert "waits" in status.unready()


def test_the_last_heal_is_the_newest() -> None:
    picture = Drawn(FULL)
    picture.receipts = [{"n": 1}, {"n": 2}]
    status = NodeStatus(picture)
    assert status.status()["last_heal"] == {"n": 2}
    assert status.heals() == [{"n": 1}, {"n": 2}]


def test_partitions_say_who_serves_them() -> None:
    picture = Drawn([["a", "b"], ["b", "a"], ["a"]], [["c"], [], []])
    picture.closed = {2}
    found = NodeStatus(picture).partitions()
    assert [entry["state"] for entry in found] == ["open", "elsewhere", "opening"]
    assert found[0] == {
        "partition": 0,
        "leader": "a",
        "replicas": ["a", "b"],
        "learners": ["c"],
        "epoch": 77,
        "sequence": 100,
        "state": "open",
        "refuses": False,
    }


def test_where_things_are_follows_the_hash() -> None:
    status = NodeStatus(Drawn(FULL))
    for name in ("online", "x", "a/b"):
        partition = hash64(name.encode()) % len(FULL)
        for found in (status.where_client(name), status.where_topic(name)):
            assert found["partition"] == partition
            assert [found["leader"], *found["followers"]] == FULL[partition]  # type: ignore[misc]
    assert status.where_client("online")["owner"] == "c"
    assert status.where_client("x")["owner"] is None


# May it be stopped?


def safe(picture: Picture, node_id: str = "b") -> tuple[bool, str, list[int]]:
    found = NodeStatus(picture).safe_to_stop(node_id)
    assert found is not None
    assert found["node"] == node_id
    return found["safe"], found["why"], found["partitions"]  # type: ignore[return-value]


def test_with_all_copies_there_any_one_node_may_go() -> None:
    for node_id in "abc":
        assert safe(Drawn(FULL), node_id)[0]


def test_the_only_copy_may_not_go() -> None:
    ok, why, partitions = safe(Drawn([["a", "b", "c"], ["b"], ["b"]]))
    assert not ok
    assert "only copy of 2 partitions (1, 2)" in why
    assert partitions == [1, 2]
    assert safe(Drawn([["a", "b", "c"], ["b"]]), "c")[0]


def test_while_one_is_away_no_other_may_go() -> None:
    two: Roles = [["a", "b"], ["b", "a"]]
    ok, why, partitions = safe(Drawn(two, members="ab", known="abc"))
    assert (ok, partitions) == (False, [0, 1])
    assert "missing" in why
    assert safe(Drawn(two, members="ab", known="ab"))[0], "two nodes keep two copies, and one of them may restart"
    assert safe(Drawn(two, members="ab", known="abc"), "c") == (True, "it is not up: no node waits for it", [])


def test_what_is_being_taken_over_is_waited_for() -> None:
    picture = Drawn(FULL)
    picture.closed = {3}
    assert safe(picture)[2] == [3]


def test_without_a_lease_what_a_node_knows_is_no_answer() -> None:
    picture = Drawn(FULL)
    picture.leased = False
    assert safe(picture) == (False, "it has no lease: it is not connected to the controller b", [])


def test_many_partitions_are_not_all_named() -> None:
    why = safe(Drawn([["b"]] * 100))[1]
    assert "100 partitions (0, 1, 2, 3, 4, 5, 6, 7 and 92 more)" in why


def test_an_unknown_node_and_an_outsider() -> None:
    assert NodeStatus(Drawn(FULL)).safe_to_stop("x") is None
    picture = Drawn(FULL)
    picture.now_state = EXCLUDED
    assert not safe(picture)[0]


# Is it ready?


def test_a_node_is_ready_when_it_has_its_data() -> None:
    picture = Drawn(FULL, [["a"], [], ["a"], []])
    status = NodeStatus(picture)
    assert "2 partitions to go" in status.unready()
    picture.learners[0] = picture.learners[2] = []
    picture.closed = {0}
    assert "taking over 1" in status.unready()
    picture.closed = set()
    picture.informed = False
    assert "who has subscribed" in status.unready()
    picture.informed = True
    picture.closed = {0}
    picture.closed = set()
    assert status.unready() == ""


def test_new_shares_do_not_make_a_node_that_serves_unready() -> None:
    picture = Drawn(FULL)
    status = NodeStatus(picture)
    assert status.unready() == ""
    picture.learners[1] = ["a"]
    assert status.unready() == ""
    picture.now_state = EXCLUDED
    assert "go on without it" in status.unready()
    picture.now_state = MEMBER
    assert "being filled" in status.unready(), "after that it begins anew"


def test_a_member_that_joins_is_not_ready_while_it_is_filled() -> None:
    picture = Drawn([["b", "c"]], [["a"]])
    assert "being filled" in NodeStatus(picture).unready()


# Orders


def test_orders_are_for_nodes_that_there_are() -> None:
    picture = Drawn(FULL, members="ab", known="abc")
    status = NodeStatus(picture)
    assert "no node 'x'" in status.evict("x", 1)
    assert "no node 'x'" in status.forget("x", 1)
    assert "evict it first" in status.forget("b", 1)
    assert "is away already" in status.evict("c", 1)
    assert status.evict("b", 1) == ""
    assert status.forget("c", 1) == ""
    assert "no node 'x'" in status.leave("x", 1)
    assert "start it again, or forget it" in status.leave("c", 1)
    assert status.leave("a", 1) == ""
    assert picture.orders == [("evict", "b"), ("forget", "c"), ("leave", "a")]


def test_the_last_node_that_stays_cannot_leave() -> None:
    picture = Drawn([["a", "b"]], members="ab", known="ab")
    status = NodeStatus(picture)
    picture.members[0].state = LEAVING
    assert "the only remaining node" in status.leave("b", 1)
    assert status.leave("a", 1) == "", "it leaves already"
    assert status.unready() == "it is leaving the cluster"


def test_a_node_whose_copies_have_to_be_in_sync_cannot_leave() -> None:
    picture = Drawn([["a", "b"], ["b", "c"]], members="abc", known="abc")
    picture.least = 2
    status = NodeStatus(picture)
    assert status.leave("c", 1) == "", "two are left"
    picture.members[2].state = LEAVING
    refusal = status.leave("b", 1)
    assert "only a would be left, and cluster.min_in_sync is 2" in refusal
    assert "join first" in refusal
    assert status.leave("c", 1) == "", "it leaves already"
    picture.least = 1
    assert status.leave("b", 1) == "", "one is enough"


def test_what_is_left_to_copy_is_told_of_all_nodes() -> None:
    picture = Drawn(FULL)
    picture.loads = {"b": {"copy_left": 300, "copy_rate": 20}, "c": {"copy_left": 4, "copy_rate": 1}}
    status = NodeStatus(picture).status()
    assert status["copy"] == {"bytes_left": 10, "bytes_done": 30, "all_left": 304, "all_rate": 21}
    nodes = status["nodes"]
    assert isinstance(nodes, list)
    assert [node["copy_left"] for node in nodes] == [0, 300, 4]


# A node alone


@pytest.fixture
def box() -> Box:
    return Box()


@pytest.fixture
def alone(box: Box) -> NodeStatus:
    return NodeStatus(AlonePicture(box.node))


def test_a_node_alone_leads_everything_and_is_ready(box: Box, alone: NodeStatus) -> None:
    client = box.client("c1")
    client.connect()
    status = alone.status()
    assert (status["state"], status["policy"], status["replicas"]) == (ALONE, "available", 1)
    nodes = status["nodes"]
    assert isinstance(nodes, list)
    (node,) = nodes
    total = box.node.config.partitions
    assert (node["leads"], node["follows"], node["fills"]) == (total, 0, 0)
    assert node["clients"] == 1
    assert status["partitions"]["under_replicated"] == 0  # type: ignore[index]
    assert {entry["state"] for entry in alone.partitions()} == {"open"}
    assert alone.unready() == ""
    assert json.loads(json.dumps(status)) == status


def test_a_node_alone_knows_who_is_connected(box: Box, alone: NodeStatus) -> None:
    client = box.client("c1")
    client.connect()
    own = box.node.config.node_id
    assert alone.where_client("c1")["owner"] == own
    assert alone.where_client("c2")["owner"] is None
    assert alone.where_topic("a/b")["leader"] == own


def test_a_node_alone_takes_no_orders_and_may_not_be_stopped_unnoticed(box: Box, alone: NodeStatus) -> None:
    own = box.node.config.node_id
    assert "no cluster" in alone.evict(own, 1)
    assert "no cluster" in alone.forget(own, 1)
    assert "no cluster" in alone.leave(own, 1)
    found = alone.safe_to_stop(own)
    assert found is not None
    assert found["safe"] is False
    assert len(found["partitions"]) == box.node.config.partitions  # type: ignore[arg-type]
