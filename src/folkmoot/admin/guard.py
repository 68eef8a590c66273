"""Protection of the admin server against web pages that use the browser of somebody who can reach it.

Owns the answers to such requests. Without a token, whoever can send a request is obeyed, and a browser sends requests
for every page: so the header Host must name this server (DNS rebinding), and what changes something must not come from
another origin (forged requests). No answer carries a header that would let other origins read it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from starlette.responses import JSONResponse

from folkmoot.config.unit import Address
from folkmoot.runtime.origin import HostRules, netloc_of

__all__ = ["Guard"]

SAFE: Final = ("GET", "HEAD", "OPTIONS")
REFUSED: Final = (401, 403, 421)
FOREIGN: Final = ("cross-site", "same-site")
HEADERS: Final = [(b"x-content-type-options", b"nosniff"), (b"cross-origin-resource-policy", b"same-origin")]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Guard:
    """An ASGI application in front of another one.

    hosts: the names by which the server may be called; None if requests need a token, which no page has.
    `record(kind, **fields)` gets orders ("order"), and requests that were refused ("admin_refused").
    """

    def __init__(
        self,
        app: Callable[[Message, Receive, Send], Awaitable[None]],
        hosts: HostRules | None,
        record: Callable[..., None] = lambda _kind, **_fields: None,
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._record = record

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        status = 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        refused, why = self.refusal(scope["method"], headers_of(scope))
        try:
            if refused:
                await JSONResponse({"error": why}, refused)(scope, receive, send_guarded)
            else:
                await self._app(scope, receive, send_guarded)
        finally:
            self._audit(scope, status, why)

    def _audit(self, scope: Message, status: int, why: str) -> None:
        """Record an order with its result (status 0: the connection ended before it), or any refusal."""
        order = scope["method"] not in SAFE
        if not order and status not in REFUSED:
            return
        client = scope["client"]
        fields: dict[str, object] = {
            "address": "unknown" if client is None else str(Address(*client)),
            "method": scope["method"],
            "path": scope["path"],
            "query": scope["query_string"].decode("latin-1"),
            "status": status,
            "token": bool(scope["state"].get("trusted")),
        }
        if why:
            fields["why"] = why
        self._record("order" if order and status not in REFUSED else "admin_refused", **fields)

    def refusal(self, method: str, headers: dict[str, str]) -> tuple[int, str]:
        """Return the status and the reason of a refusal; (0, "") admits the request."""
        host = headers.get("host")
        # A client of HTTP/1.0 may leave out Host, a browser never does.
        if self._hosts is not None and host is not None and not self._hosts.allow(host):
            return 421, (
                f"this server is not called {host[:100]!r}: without admin.token_file it answers only to its address, "
                "to localhost and to the names in admin.hosts"
            )
        site = headers.get("sec-fetch-site")
        if method in SAFE:
            if site in FOREIGN and headers.get("sec-fetch-mode") != "navigate":
                return 403, "web pages of other origins may not use this server"
            return 0, ""
        origin = headers.get("origin")
        if site in FOREIGN or (origin is not None and netloc_of(origin) != (host or "").strip().lower()):
            return 403, "web pages of other origins may not use this server"
        return 0, ""


def headers_of(scope: Message) -> dict[str, str]:
    """Return the headers of a request; of several with one name, all values joined by commas."""
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found
