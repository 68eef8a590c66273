"""Answers with data leave a node only under its lease, see `folkmoot.node.withheld`.

The lease is looked at when the answer is complete, because what it says was read before. Without a lease the client
gets 503 with `Retry-After`, as without a leader, and asks again, here or at another node: reading changes nothing, and
the orders about transactions may be repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

__all__ = ["leased"]

Endpoint = Callable[[Request], Awaitable[Response]]


def leased(routes: list[Route], silence: Callable[[], str]) -> list[Route]:
    """Return the same routes, answering only while `silence` returns ""; else it is the reason."""
    return [Route(route.path, _leased(route.endpoint, silence), methods=_methods(route)) for route in routes]


def _leased(endpoint: Endpoint, silence: Callable[[], str]) -> Endpoint:
    async def answer(request: Request) -> Response:
        response = await endpoint(request)
        why = silence()
        if not why:
            return response
        text = f"this node cannot answer: {why}; try again, here or at another node"
        return JSONResponse({"error": text}, status_code=503, headers={"retry-after": "1"})

    return answer


def _methods(route: Route) -> list[str] | None:
    return None if route.methods is None else sorted(route.methods)
