"""The HTTP routes of transactions: every node takes every order, and says what is wrong with one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp

from folkmoot.admin.source import NodeHomes, answered
from folkmoot.admin.transactions import transaction_routes
from folkmoot.mqtt.packet import Properties
from folkmoot.partition.app import CHUNK_BYTES
from tests.harness.asgi import Reply, ask
from tests.harness.box import Box
from tests.harness.desk import app_in, packet, packets
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 8
JSON = {"content-type": "application/json"}
BASE = "/api/v1/transactions"


class Runs:
    """What the event loop does for a box: turns, and the ends of calls."""

    def __init__(self, box: Box) -> None:
        self.box = box

    def begin(self) -> int:
        asyncio.get_running_loop().call_soon(self.end)
        return self.box.cluster.now if isinstance(self.box, Site) else self.box.now

    def end(self) -> None:
        self.box.run()
        calls, self.box.calls = self.box.calls, []
        for call in calls:
            answered(call)


def app_of(box: Box, token: str | None = None) -> ASGIApp:
    homes = NodeHomes(box.node, Runs(box).begin)
    return Starlette(routes=transaction_routes(homes, box.config.limits, token))


def put(box: Box, path: str, body: bytes) -> Reply:
    return ask(app_of(box), f"{BASE}/{path}", method="PUT", body=body)


def commit(box: Box, app: str, number: int, parts: Any) -> Reply:
    body = json.dumps({"parts": parts}).encode()
    return ask(app_of(box), f"{BASE}/{app}/{number}/commit", headers=JSON, method="POST", body=body)


@pytest.fixture
def box() -> Box:
    return Box(partitions=PARTITIONS)


def test_a_transaction_goes_through_any_node() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    reader = cluster["n1"].client("reader")
    reader.connect(session_expiry=EVER)
    reader.subscribe("t/#", qos=2)
    sites = cluster.live()
    for home in range(3):
        app = app_in(home, PARTITIONS)
        staged = put(sites[home], f"{app}/0/part/0", packets("t/x", [b"1", b"2"]))
        assert (staged.status, staged.json()) == (200, {"messages": 2, "committed": False})
        first = commit(sites[(home + 1) % 3], app, 0, [["part", 1]])
        assert (first.status, first.json()) == (200, {"number": 0, "repeated": False})
        again = commit(sites[(home + 2) % 3], app, 0, [["part", 1]])
        assert (again.status, again.json()) == (200, {"number": 0, "repeated": True})
    assert [publish.payload for publish in reader.publishes()] == [b"1", b"2"] * 3
    for site in sites:
        told = ask(app_of(site), BASE).json()
        assert told["complete"]
        assert sorted(app["app"] for app in told["transactions"]) == sorted(app_in(n, PARTITIONS) for n in range(3))
        one = ask(app_of(site), f"{BASE}/{app_in(1, PARTITIONS)}").json()
        assert (one["last"], one["published"], one["waiting_messages"], one["partition"]) == (0, 2, 0, 1)


def test_what_is_missing_is_named(box: Box) -> None:
    put(box, "a/0/p/0", packets("t", [b"1"]))
    refused = commit(box, "a", 0, [["p", 2]])
    assert refused.status == 409
    assert "p/1" in refused.json()["error"]


def test_an_aborted_part_is_gone_and_a_committed_one_is_not(box: Box) -> None:
    put(box, "a/0/p/0", packets("t", [b"1"]))
    gone = ask(app_of(box), f"{BASE}/a/0/p", method="DELETE")
    assert (gone.status, gone.json()) == (200, {"committed": False})
    assert commit(box, "a", 0, [["p", 1]]).status == 409
    put(box, "a/0/p/0", packets("t", [b"1"]))
    assert commit(box, "a", 0, [["p", 1]]).status == 200
    assert ask(app_of(box), f"{BASE}/a/0/p", method="DELETE").json() == {"committed": True}
    assert put(box, "a/0/p/0", packets("t", [b"1"])).json()["committed"]


def test_an_app_is_forgotten(box: Box) -> None:
    assert ask(app_of(box), f"{BASE}/a").status == 404
    assert ask(app_of(box), f"{BASE}/a", method="DELETE").status == 404
    commit(box, "a", 5, [])
    assert ask(app_of(box), f"{BASE}/a").json()["last"] == 5
    assert ask(app_of(box), f"{BASE}/a", method="DELETE").json() == {"forgotten": "a"}
    assert ask(app_of(box), BASE).json() == {"transactions": [], "complete": True}


def with_property(**values: Any) -> bytes:
    made = Properties()
    for name, value in values.items():
        setattr(made, name, value)
    return packet("t", b"x", properties=made)


GOOD = packet("t", b"x")


@pytest.mark.parametrize(
    ("body", "status", "why", "index"),
    [
        (b"", 400, "no packets", None),
        (GOOD + packet("$SYS/x", b""), 400, "begins with $", 1),
        (GOOD + GOOD + packet("a/+/b", b""), 400, "wildcard", 2),
        (b"\x30\x04\x00\x02\xff\xfe", 400, "UTF-8", 0),
        (packet("/".join("abcdefgh" * 20), b""), 400, "levels", 0),
        (GOOD + b"\xc0\x00", 400, "not a PUBLISH", 1),
        (GOOD[:-1], 400, "not whole", 0),
        (b"\x36" + GOOD[1:], 400, "QoS 3", 0),
        (with_property(topic_alias=1), 400, "topic alias", 0),
        (with_property(subscription_ids=[1]), 400, "subscription identifier", 0),
        (with_property(user_properties=[("a", "b")] * 65), 400, "user properties", 0),
        (GOOD * 257, 413, "at most 256", None),
        (packet("t", bytes(70_000)) * 2, 413, "131072", None),
        (packet("t", bytes(1_048_576)), 413, "the limit is 1048576", 0),
    ],
)
def test_what_may_not_be_published_is_refused_with_its_place(
    box: Box, body: bytes, status: int, why: str, index: int | None
) -> None:
    refused = put(box, "a/0/p/0", body)
    assert refused.status == status
    assert why in refused.json()["error"]
    assert refused.json().get("packet") == index
    assert ask(app_of(box), f"{BASE}/a").status == 404


def test_a_packet_as_large_as_may_be_is_a_chunk_of_its_own(box: Box) -> None:
    assert put(box, "a/0/p/0", packet("t", bytes(1_048_000))).status == 200


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("a/x/p/0", "number 'x'"),
        ("a/-1/p/0", "number"),
        (f"a/{1 << 62}/p/0", "number"),
        ("a/0/p/4294967296", "chunk"),
        ("a\x01/0/p/0", "app"),
        (f"{'a' * 257}/0/p/0", "app"),
    ],
)
def test_wrong_names_and_numbers_are_named(box: Box, path: str, why: str) -> None:
    refused = put(box, path, GOOD)
    assert refused.status == 400
    assert why in refused.json()["error"]


@pytest.mark.parametrize(
    ("parts", "why"),
    [("x", "parts"), ([["p", 1], ["p", 1]], "twice"), ([["p", -1]], "-1"), ([["a/b", 1]], "name"), ([[1, 1]], "text")],
)
def test_wrong_commits_are_refused(box: Box, parts: Any, why: str) -> None:
    refused = commit(box, "a", 0, parts)
    assert refused.status == 400
    assert why in refused.json()["error"]


def test_a_commit_cannot_be_sent_by_a_form(box: Box) -> None:
    body = b'{"parts": []}'
    assert ask(app_of(box), f"{BASE}/a/0/commit", method="POST", body=body).status == 415


def test_only_who_has_the_token_gives_orders(box: Box) -> None:
    app = app_of(box, "secret")
    for method, path in [("PUT", "a/0/p/0"), ("POST", "a/0/commit"), ("DELETE", "a/0/p"), ("DELETE", "a"), ("GET", "")]:
        assert ask(app, f"{BASE}/{path}".rstrip("/"), method=method, body=GOOD).status == 401
    right = {"authorization": "Bearer secret"}
    assert ask(app, f"{BASE}/a/0/p/0", headers=right, method="PUT", body=GOOD).status == 200


def test_a_full_disk_and_a_full_app_say_so() -> None:
    box = Box(partitions=PARTITIONS, limits={"transaction_bytes_max": 1000 + CHUNK_BYTES})
    assert put(box, "a/0/p/0", packet("t", bytes(800))).status == 200
    assert put(box, "a/0/p/1", packet("t", bytes(800))).status == 413
    later = put(box, "a/1/p/0", packet("t", bytes(800)))
    assert (later.status, later.headers["retry-after"]) == (507, "1")
    box.storage(True)
    assert put(box, "b/0/p/0", GOOD).status == 507
