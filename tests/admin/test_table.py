"""The tables of a cluster: every node answers for all partitions, a partition's pages are of one snapshot."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest

from folkmoot.client.column import TABLES, columns_of
from folkmoot.kernel.clock import SECOND
from folkmoot.streams.config import StreamConfig
from tests.harness.asgi import Reply, ask
from tests.harness.box import Box
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster
from tests.harness.tablenode import table_app

TOKEN = "a-token-of-more-than-sixteen-characters"


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(3, replicas=2, streams=[StreamConfig("wide", b"w/#", 6)])


def pages(box: Box, name: str, **fields: object) -> Iterator[list[dict[str, Any]]]:
    while True:
        answer = ask(table_app(box), f"/api/v1/tables/{name}", fields)
        assert answer.status == 200, answer.content
        found = answer.json()
        yield found["rows"]
        if found["next"] is None:
            return
        fields["after"] = found["next"]


def rows(box: Box, name: str, payload: bool = False) -> list[dict[str, Any]]:
    """All rows, asked of one node, as `folkmoot table` does."""
    told = ask(table_app(box), "/api/v1/tables").json()
    live = next(table["live"] for table in told["tables"] if table["name"] == name)
    more: dict[str, object] = {"payload": "true"} if payload else {}
    places: list[dict[str, object]] = [{"partition": number} for number in range(told["partitions"])]
    places += [{"node": node} for node in told["nodes"]] if live else []
    return [row for place in places for page in pages(box, name, **place, **more) for row in page]


def by(found: list[dict[str, Any]], *keys: str) -> dict[Any, dict[str, Any]]:
    named = {tuple(row[key] for key in keys) if len(keys) > 1 else row[keys[0]]: row for row in found}
    assert len(named) == len(found), "twice"
    return named


def test_all_nodes_give_the_same_rows_with_the_documented_columns(cluster: SimulatedCluster) -> None:
    for number in range(12):
        peer = cluster[f"n{number % 3 + 1}"].client(f"c{number}")
        peer.connect(session_expiry=EVER if number % 2 else 0)
        peer.subscribe(f"a/{number}", qos=1)
        peer.publish(f"w/{number}", b"%d" % number, qos=1, retain=True)
        if number in (1, 3):
            peer.lose()
    late = cluster["n2"].client("late")
    late.connect()
    late.publish("a/1", b"x" * 10, qos=1)
    for name in TABLES:
        told = [sorted(map(repr, rows(site, name))) for site in cluster.live()]
        assert told[0] == told[1] == told[2]
        assert told[0], name
        for row in rows(cluster["n1"], name):
            assert set(row) == {column.name for column in columns_of(name)}


def test_sessions_say_who_is_where_and_who_is_away_since_when(cluster: SimulatedCluster) -> None:
    for name, site, expiry in (("ever", "n1", EVER), ("hour", "n2", 3600), ("live", "n3", 0), ("gone", "n3", 60)):
        cluster[site].client(name).connect(session_expiry=expiry, username="u" if name == "live" else None)
    went = cluster.now
    next(peer for peer in cluster["n3"].peers if peer.client_id == "gone").lose()
    next(peer for peer in cluster["n1"].peers if peer.client_id == "ever").lose()
    cluster.advance(5 * SECOND)
    found = by(rows(cluster["n1"], "sessions"), "client_id")
    assert set(found) == {"ever", "hour", "live", "gone"}
    assert (found["hour"]["connected"], found["hour"]["node"], found["hour"]["expiry_s"]) == (True, "n2", 3600)
    assert (found["live"]["persistent"], found["live"]["node"], found["live"]["username"]) == (False, "n3", "u")
    assert (found["gone"]["connected"], found["gone"]["node"]) == (False, None)
    assert found["gone"]["disconnected_at"] == went
    assert found["gone"]["ends_at"] == went + 60 * SECOND
    assert (found["ever"]["expiry_s"], found["ever"]["disconnected_at"]) == (None, went)
    assert found["ever"]["ends_at"] is None
    assert found["hour"]["disconnected_at"] is None
    assert found["hour"]["version"] == 5


def test_a_session_without_an_end_stays_for_ever_and_over_a_takeover(cluster: SimulatedCluster) -> None:
    peer = cluster["n1"].client("ever")
    peer.connect(session_expiry=EVER)
    peer.subscribe("t", qos=1)
    peer.lose()
    cluster.advance(60 * SECOND)
    cluster["n1"].kill()
    cluster.settle()
    found = by(rows(cluster["n2"], "sessions"), "client_id")
    assert found["ever"]["connected"] is False
    assert cluster["n2"].client("ever").connect(clean_start=False, session_expiry=EVER).session_present


def test_subscriptions_are_told_with_their_options(cluster: SimulatedCluster) -> None:
    peer = cluster["n1"].client("p")
    peer.connect(session_expiry=EVER)
    peer.subscribe("$share/g/s/#", qos=2)
    other = cluster["n2"].client("t")
    other.connect()
    other.subscribe("+/x", qos=1)
    found = by(rows(cluster["n3"], "subscriptions"), "client_id")
    assert {key: found["p"][key] for key in ("filter", "share", "qos", "persistent")} == {
        "filter": "s/#",
        "share": "g",
        "qos": 2,
        "persistent": True,
    }
    assert {key: found["t"][key] for key in ("filter", "share", "qos", "persistent")} == {
        "filter": "+/x",
        "share": None,
        "qos": 1,
        "persistent": False,
    }


def test_queues_add_up_whatever_the_pages(cluster: SimulatedCluster) -> None:
    sleeper = cluster["n1"].client("sleeper")
    sleeper.connect(session_expiry=EVER)
    sleeper.subscribe("q", qos=1)
    sleeper.lose()
    empty = cluster["n1"].client("empty")
    empty.connect(session_expiry=EVER)
    empty.subscribe("q/none", qos=1)
    first = cluster.now
    peer = cluster["n2"].client("filler")
    peer.connect()
    for number in range(1203):  # three pages of rows
        peer.publish("q", b"%04d" % number, qos=1)
    cluster.advance(SECOND)
    for site in cluster.live():
        (row,) = rows(site, "queues")
        assert (row["client_id"], row["messages"], row["connected"]) == ("sleeper", 1203, False)
        assert row["bytes"] == 1203 * len("q" + "0000")
        assert row["oldest_at"] == first


def test_a_message_for_many_sessions_counts_for_each(cluster: SimulatedCluster) -> None:
    for number in range(20):
        peer = cluster["n1"].client(f"s{number}")
        peer.connect(session_expiry=EVER)
        peer.subscribe("q", qos=1)
        peer.lose()
    peer = cluster["n3"].client("filler")
    peer.connect()
    at = cluster.now
    peer.publish("q", b"x" * 500, qos=1)
    found = by(rows(cluster["n2"], "queues"), "client_id")
    assert len(found) == 20
    assert {row["bytes"] for row in found.values()} == {501}
    assert {row["oldest_at"] for row in found.values()} == {at}


def test_a_queue_of_an_ended_session_is_not_shown(cluster: SimulatedCluster) -> None:
    peer = cluster["n1"].client("c")
    peer.connect(session_expiry=EVER)
    peer.subscribe("q", qos=1)
    peer.lose()
    filler = cluster["n2"].client("filler")
    filler.connect()
    for _ in range(5):
        filler.publish("q", b"x", qos=1)
    assert [row["messages"] for row in rows(cluster["n1"], "queues")] == [5]
    peer.connect(clean_start=True, session_expiry=0)
    assert rows(cluster["n1"], "queues") == []


def test_retained_messages_with_payloads_only_on_demand(cluster: SimulatedCluster) -> None:
    peer = cluster["n1"].client("p")
    peer.connect()
    at = cluster.now
    peer.publish("r/1", b"\x00\xff", qos=1, retain=True, content_type="text/plain")
    peer.publish("r/2", b"12345", retain=True, message_expiry=10)
    found = by(rows(cluster["n2"], "retained"), "topic")
    assert found["r/1"]["payload_bytes"] == 2
    assert found["r/1"]["content_type"] == "text/plain"
    assert found["r/1"]["publisher"] == "p"
    assert found["r/1"]["expires_at"] is None
    assert found["r/2"]["expires_at"] == at + 10 * SECOND
    assert "payload" not in found["r/1"]
    again = by(rows(cluster["n2"], "retained", payload=True), "topic")
    assert b64decode(again["r/1"]["payload"]) == b"\x00\xff"
    cluster.advance(11 * SECOND)
    assert set(by(rows(cluster["n2"], "retained"), "topic")) == {"r/1"}


def test_streams_and_partitions_count_what_was_published(cluster: SimulatedCluster) -> None:
    peer = cluster["n1"].client("p")
    peer.connect(session_expiry=EVER)
    peer.subscribe("none", qos=1)
    for number in range(60):
        peer.publish(f"w/{number}", b"%02d" % number, qos=1, retain=number < 10)
    streams = by(rows(cluster["n2"], "streams"), "stream", "stream_partition")
    assert sorted(streams) == [("wide", index) for index in range(6)]
    assert sum(row["records"] for row in streams.values()) == 60
    assert all(row["next"] - row["oldest"] == row["records"] for row in streams.values())
    partitions = by(rows(cluster["n2"], "partitions"), "partition")
    assert sorted(partitions) == list(range(8))
    assert sum(row["stream_records"] for row in partitions.values()) == 60
    assert sum(row["retained"] for row in partitions.values()) == 10
    assert sum(row["sessions"] for row in partitions.values()) == 1
    assert sum(row["subscriptions"] for row in partitions.values()) == 1
    assert sum(row["stream_bytes"] for row in partitions.values()) == sum(row["bytes"] for row in streams.values())
    for row in partitions.values():
        assert row["rows"] >= row["sessions"] + row["subscriptions"] + row["retained"]
        assert len(row["followers"]) == 1
        assert row["leader"] not in row["followers"]
        assert row["learners"] == []
    for row in streams.values():
        assert row["leader"] == partitions[row["partition"]]["leader"]


def fill(box: Box, count: int) -> None:
    peer = box.client("filler")
    peer.connect()
    for number in range(count):
        peer.publish(f"r/{number:05d}", b"%d" % number, retain=True)


def page(box: Box, **fields: object) -> Reply:
    return ask(table_app(box), "/api/v1/tables/retained", {"partition": 0, **fields})


def test_pages_are_of_one_snapshot_whatever_is_written_between() -> None:
    box = Box(partitions=1)
    fill(box, 1200)
    first = page(box).json()
    peer = box.client("changer")
    peer.connect()
    for number in range(1200):
        peer.publish(f"r/{number:05d}", b"" if number % 2 else b"changed", retain=True)
    peer.publish("r/new", b"new", retain=True)
    second = page(box, after=first["next"]).json()
    third = page(box, after=second["next"]).json()
    assert third["next"] is None
    found = [row for part in (first, second, third) for row in part["rows"]]
    assert [row["topic"] for row in found] == [f"r/{number:05d}" for number in range(1200)]
    assert [row["payload_bytes"] for row in found] == [len(str(number)) for number in range(1200)]
    assert {row["publisher"] for row in found} == {"filler"}


def test_a_reader_that_sleeps_begins_again() -> None:
    box = Box(partitions=1)
    fill(box, 600)
    first = page(box).json()
    box.advance(25 * SECOND)
    gone = page(box, after=first["next"])
    assert gone.status == 410
    assert "begin again" in gone.json()["error"]
    box.restart()
    assert page(box, after=first["next"]).status == 410


def test_so_many_at_once_and_then_no_more() -> None:
    box = Box(partitions=1)
    fill(box, 600)
    opened = [page(box).json()["next"] for _ in range(16)]
    busy = page(box)
    assert (busy.status, busy.headers["retry-after"]) == (503, "1")
    assert page(box, after=opened[0]).json()["next"] is None
    assert page(box).status == 200
    box.advance(21 * SECOND)
    assert page(box).status == 200, "nobody asked, and they are closed"


def test_large_rows_make_short_pages() -> None:
    box = Box(partitions=1)
    peer = box.client("p")
    peer.connect()
    for number in range(9):
        peer.publish(f"r/{number}", bytes(100_000), retain=True)
    found = list(pages(box, "retained", partition=0))
    assert [len(part) for part in found if part] == [3, 3, 3]


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("nonsense?partition=0", 404, "there are: sessions, subscriptions, queues, retained, streams, partitions"),
        ("sessions", 400, "'partition' and 'node'"),
        ("sessions?partition=0&node=n1", 400, "'partition' and 'node'"),
        ("sessions?partition=8", 400, "an integer from 0 to 7"),
        ("sessions?partition=-1", 400, "an integer from 0 to 7"),
        ("sessions?partition=0&limit=3", 400, "partition, node, after, payload"),
        ("sessions?partition=0&payload=true", 400, "'payload'"),
        ("retained?partition=0&payload=yes", 400, "true or false"),
        ("retained?node=n1", 400, "'partition' only"),
        ("sessions?node=n9", 404, "there are: n1, n2, n3"),
        ("sessions?partition=0&after=zz", 400, "'after'"),
        ("sessions?partition=0&after=00ff", 400, "'after'"),
    ],
)
def test_wrong_questions_are_refused_with_what_is_right(
    cluster: SimulatedCluster, path: str, status: int, text: str
) -> None:
    answer = ask(table_app(cluster["n1"]), "/api/v1/tables/" + path)
    assert answer.status == status
    assert text in answer.json()["error"]


def test_the_token_is_wanted() -> None:
    app = table_app(Box(), TOKEN)
    for path in ("/api/v1/tables", "/api/v1/tables/sessions?partition=0"):
        assert ask(app, path).status == 401
        assert ask(app, path, headers={"authorization": "Bearer wrong-wrong-wrong"}).status == 403
        assert ask(app, path, headers={"authorization": f"Bearer {TOKEN}"}).status == 200


def test_without_an_open_leader_it_says_so(cluster: SimulatedCluster) -> None:
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    partition = next(number for number in range(8) if cluster_node.fabric.leaders[number] != "n1")
    cluster_node.fabric.open[partition] = False  # as between the view and the word of the new leader
    answer = ask(table_app(cluster["n1"]), "/api/v1/tables/sessions", {"partition": partition})
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
