"""Answers with data leave only under a lease, which is looked at when they are complete."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from folkmoot.admin.leased import leased
from folkmoot.admin.streams import stream_routes
from folkmoot.streams.config import StreamConfig
from tests.harness.asgi import ask
from tests.harness.streamnode import Shelf

RECORDS = "/api/v1/streams/s/partitions/0/records"


class Lease:
    def __init__(self) -> None:
        self.why = ""

    def silence(self) -> str:
        return self.why


@pytest.fixture
def lease() -> Lease:
    return Lease()


@pytest.fixture
def app(lease: Lease) -> ASGIApp:
    shelf = Shelf(StreamConfig("s", b"s/#", 1))

    async def wait(_name: str, _partition: int, _offset: int, _timeout_s: float) -> bool:
        lease.why = "the lease ended while the reader waited"
        return True

    return Starlette(routes=leased(stream_routes(lambda: shelf.streams, wait), lease.silence))


@pytest.mark.parametrize("path", ["/api/v1/streams", "/api/v1/streams/s", f"{RECORDS}?from=0", f"{RECORDS}?from=5"])
def test_without_a_lease_there_is_no_answer_but_the_reason(app: ASGIApp, lease: Lease, path: str) -> None:
    assert ask(app, path).status in (200, 416)
    lease.why = "it has no lease"
    reply = ask(app, path)
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert "it has no lease" in reply.json()["error"]
    lease.why = ""
    assert ask(app, path).status in (200, 416)


def test_the_lease_is_looked_at_when_the_answer_is_complete(app: ASGIApp) -> None:
    assert ask(app, f"{RECORDS}?from=0").status == 200
    assert ask(app, f"{RECORDS}?from=0&wait_ms=1000").status == 503


def test_routes_keep_their_paths_and_methods(lease: Lease) -> None:
    async def endpoint(_request: object) -> None:
        raise AssertionError("not asked")

    (route,) = leased([Route("/x/{y}", endpoint, methods=["PUT"])], lease.silence)
    assert (route.path, route.methods) == ("/x/{y}", {"PUT"})
