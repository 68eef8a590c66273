"""The HTTP routes of the cluster: answers, wrong parameters, who may ask, who may give orders."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp

from folkmoot.admin.cluster import ClusterStatus, OwnStatus, cluster_routes
from folkmoot.status.picture import AlonePicture
from folkmoot.status.status import NodeStatus
from tests.harness.asgi import Reply, ask
from tests.harness.box import Box

TOKEN = "a-token-of-more-than-sixteen-characters"
PATHS = ["status", "partitions", "heals", "where?client=x", "safe-to-stop/n1"]
ORDERS = ["nodes/n1/evict", "nodes/n1/forget", "nodes/n1/leave", "leave"]
JSON = {"content-type": "application/json; charset=utf-8"}


class Told(ClusterStatus):
    """Answers that say which question they belong to; notes orders."""

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.why_not = ""
        self.no_member = ""

    def status(self) -> dict[str, object]:
        return {"node": "n1", "nodes": [{"id": "n1"}, {"id": "n2"}]}

    def partitions(self) -> list[dict[str, object]]:
        return [{"partition": 0}]

    def where_client(self, client_id: str) -> dict[str, object]:
        return {"client": client_id}

    def where_topic(self, topic: str) -> dict[str, object]:
        return {"topic": topic}

    def safe_to_stop(self, node_id: str) -> dict[str, object] | None:
        return {"safe": node_id == "n1"} if self.known(node_id) else None

    def heals(self) -> list[dict[str, object]]:
        return []

    def known(self, node_id: str) -> bool:
        return node_id in ("n1", "n2")

    def outside(self) -> str:
        return self.no_member

    def evict(self, node_id: str, force: bool = False) -> str:
        self.orders.append(f"evict {node_id}{' by force' if force else ''}")
        return self.why_not

    def forget(self, node_id: str, force: bool = False) -> str:
        self.orders.append(f"forget {node_id}{' by force' if force else ''}")
        return self.why_not

    def own_id(self) -> str:
        return "n1"

    def leave(self, node_id: str) -> str:
        self.orders.append(f"leave {node_id}")
        return self.why_not

    def unready(self) -> str:
        return ""


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def app(told: Told) -> ASGIApp:
    return Starlette(routes=cluster_routes(told, lambda: {"uptime_us": 5}))


def get(app: ASGIApp, path: str, status: int = 200) -> Any:
    reply = ask(app, f"/api/v1/{path}")
    assert reply.status == status, reply.content
    return reply.json()


def order(app: ASGIApp, path: str, **headers: str) -> Reply:
    return ask(app, f"/api/v1/{path}", headers={**JSON, **headers}, method="POST")


def test_every_question_has_its_answer(app: ASGIApp) -> None:
    assert get(app, "status") == {"node": "n1", "nodes": [{"id": "n1"}, {"id": "n2"}], "uptime_us": 5}
    assert get(app, "partitions") == [{"partition": 0}]
    assert get(app, "heals") == []
    assert get(app, "where?client=a%2Fb") == {"client": "a/b"}
    assert get(app, "where?topic=%C3%A4%2Fb") == {"topic": "ä/b"}
    assert get(app, "safe-to-stop/n1") == {"safe": True}
    assert get(app, "safe-to-stop/n2") == {"safe": False}


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("where", 400, "'client' and 'topic'"),
        ("where?client=a&topic=b", 400, "'client' and 'topic'"),
        ("where?client=", 400, "'client'"),
        ("where?topic=a/%23", 400, "wildcard"),
        ("where?topic=", 400, "empty"),
        ("where?topic=%ff%fe", 400, "UTF-8"),
        ("where?client=%ff", 400, "UTF-8"),
        ("where?client=" + "x" * 65_536, 400, "65535 bytes"),
        ("safe-to-stop/n3", 404, "no node 'n3'; there are: n1, n2"),
    ],
)
def test_a_wrong_question_is_told_what_is_right(app: ASGIApp, path: str, status: int, word: str) -> None:
    assert word in get(app, path, status)["error"]


def test_orders_are_passed_on_and_accepted(app: ASGIApp, told: Told) -> None:
    assert order(app, "nodes/n2/evict").status == 202
    assert order(app, "nodes/n2/forget").json() == {"accepted": True, "node": "n2"}
    assert order(app, "nodes/n2/leave").json() == {"accepted": True, "node": "n2"}
    assert order(app, "leave").json() == {"accepted": True, "node": "n1"}
    assert told.orders == ["evict n2", "forget n2", "leave n2", "leave n1"]


def test_force_is_asked_for_by_name(app: ASGIApp, told: Told) -> None:
    assert order(app, "nodes/n2/evict?force=true").status == 202
    assert order(app, "nodes/n2/forget?force=true").status == 202
    assert order(app, "nodes/n2/forget?force=false").status == 202
    assert told.orders == ["evict n2 by force", "forget n2 by force", "forget n2"]
    for value in ("", "1", "yes"):
        reply = order(app, f"nodes/n2/evict?force={value}")
        assert (reply.status, reply.json()) == (400, {"error": "parameter 'force': give true or false"})
    assert len(told.orders) == 3


def test_an_order_that_cannot_be_is_refused_with_the_reason(app: ASGIApp, told: Told) -> None:
    told.why_not = "not now"
    for path in ORDERS:
        reply = order(app, path)
        assert (reply.status, reply.json()) == (409, {"error": "not now"})
    assert order(app, "nodes/n3/evict").status == 404


def test_a_node_that_is_no_member_sends_orders_elsewhere(app: ASGIApp, told: Told) -> None:
    told.no_member = "ask another one"
    for path in ORDERS:
        reply = order(app, path)
        assert (reply.status, reply.json()) == (503, {"error": "ask another one"})
    assert told.orders == []
    for path in ("partitions", "where?client=x", "safe-to-stop/n1"):
        assert get(app, path, 503) == {"error": "ask another one"}, "what it knows is old"
    assert get(app, "status")["node"] == "n1"
    assert get(app, "heals") == []


@pytest.mark.parametrize("path", ORDERS)
def test_orders_are_not_given_by_a_link_or_a_form(app: ASGIApp, told: Told, path: str) -> None:
    assert ask(app, f"/api/v1/{path}").status == 405
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert order(app, path, **{"content-type": content_type}).status == 415
    assert told.orders == []


def test_who_has_no_token_learns_nothing_and_orders_nothing(told: Told) -> None:
    app = Starlette(routes=cluster_routes(told, dict, TOKEN))
    for path in PATHS:
        assert get(app, path, 401)
        assert ask(app, f"/api/v1/{path}", headers={"authorization": f"Bearer {TOKEN}"}).status == 200
    for path in ORDERS:
        assert order(app, path).status == 401
        assert order(app, path, authorization="Bearer wrong").status == 403
    assert told.orders == []
    assert order(app, "leave", authorization=f"Bearer {TOKEN}").status == 202


def test_a_real_node_answers_every_question() -> None:
    box = Box()
    begun: list[int] = []

    def begin() -> int:
        begun.append(box.now)
        return box.now

    app = Starlette(routes=cluster_routes(OwnStatus(NodeStatus(AlonePicture(box.node)), begin), dict))
    own = box.config.node_id
    assert get(app, "status")["state"] == "alone"
    assert len(get(app, "partitions")) == box.config.partitions
    assert get(app, "where?client=x")["leader"] == get(app, "where?topic=x")["leader"] == own
    assert get(app, f"safe-to-stop/{own}")["safe"] is False
    assert get(app, "heals") == []
    assert begun == []
    for path in (f"nodes/{own}/evict", f"nodes/{own}/forget", "leave"):
        reply = order(app, path)
        assert reply.status == 409
        assert "no cluster" in reply.json()["error"]
    assert len(begun) == 3, "an order belongs to a turn"
