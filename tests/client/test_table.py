"""The client of tables against served nodes: whole parts, snapshots that are lost, answers that are none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from folkmoot.client.problem import BadAnswer, BadQuestion, NotAuthorised
from folkmoot.client.table import Part, TableClient
from tests.harness.box import Box
from tests.harness.tablenode import Served, table_app

TOKEN = "a-token-of-more-than-sixteen-characters"


@pytest.fixture
def url() -> Iterator[str]:
    box = Box(partitions=2)
    peer = box.client("filler")
    peer.connect()
    for number in range(1500):
        peer.publish(f"r/{number:05d}", b"%d" % number, retain=True)
    with Served(table_app(box, TOKEN)) as served:
        yield served.url


def test_a_table_is_all_its_parts(url: str) -> None:
    client = TableClient(url, TOKEN, 2.0)
    parts = client.parts("retained")
    assert [part.partition for part in parts] == [0, 1]
    topics = [row["topic"] for part in parts for row in client.rows("retained", part)]
    assert sorted(topics) == [f"r/{number:05d}" for number in range(1500)]
    live = client.parts("sessions")
    assert [(part.partition, part.node) for part in live] == [(0, None), (1, None), (None, "node1")]
    assert [row["client_id"] for part in live for row in client.rows("sessions", part)] == ["filler"]
    assert client.rows("sessions", Part(None, "gone")) == []
    client.close()


def test_the_token_and_the_name_are_checked(url: str) -> None:
    with pytest.raises(NotAuthorised):
        TableClient(url, None, 2.0).parts("sessions")
    with pytest.raises(BadQuestion, match="sessions, subscriptions"):
        TableClient(url, TOKEN, 2.0).rows("session", Part(0, None))


class Forgetful:
    """A node that loses a snapshot so many times between the pages."""

    def __init__(self, times: int) -> None:
        self.times = times

    async def page(self, request: Request) -> Response:
        if "after" not in request.query_params:
            return JSONResponse({"table": "retained", "rows": [{"topic": f"of {self.times}"}], "next": "00"})
        if self.times:
            self.times -= 1
            return JSONResponse({"error": "gone"}, 410)
        return JSONResponse({"table": "retained", "rows": [{"topic": "end"}], "next": None})


@pytest.mark.parametrize("times", [1, 4])
def test_a_lost_snapshot_begins_anew_and_leaves_nothing_behind(times: int) -> None:
    node = Forgetful(times)
    with Served(Starlette(routes=[Route("/api/v1/tables/retained", node.page)])) as served:
        rows = TableClient(served.url, None, 2.0).rows("retained", Part(0, None))
    assert [row["topic"] for row in rows] == ["of 0", "end"]


def test_one_that_is_always_lost_is_told() -> None:
    node = Forgetful(99)
    app = Starlette(routes=[Route("/api/v1/tables/retained", node.page)])
    with Served(app) as served, pytest.raises(BadAnswer, match="snapshot"):
        TableClient(served.url, None, 2.0).rows("retained", Part(0, None))
