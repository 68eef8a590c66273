"""One HTTP request and its answer, for an ASGI application (spec version 2.3). Owns no socket and no limit."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import h11

__all__ = ["Application", "BadTarget", "Carrier", "Exchange", "response", "scope_of"]

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
STATUSES: Final = frozenset(HTTPStatus)
CLOSE: Final = (b"connection", b"close")


class BadTarget(Exception):
    """The target of a request is no path; the text says what is accepted."""


class Carrier(ABC):
    """The connection that an exchange uses."""

    @abstractmethod
    async def put(self, event: h11.Event) -> None:
        """Send a part of the answer, after what was sent before it is taken."""

    @abstractmethod
    def want(self) -> None:
        """The application waits for the next part of the body."""

    @abstractmethod
    def keeps(self) -> bool:
        """Whether the connection can serve another request after this one."""


class Exchange:
    """A request that is being answered: the `receive` and `send` of the application."""

    def __init__(self, carrier: Carrier, scope: Message) -> None:
        self.scope = scope
        self.task: asyncio.Task[None] | None = None
        self.waiting_bytes = 0  # of the body, for the application
        self.complete = False  # the whole request has been received
        self.started = False
        self.ended = False
        self._carrier = carrier
        self._parts: list[bytes] = []
        self._told = False  # the application has seen the end of the body
        self._something = asyncio.Event()

    def feed(self, data: bytes) -> None:
        """Keep a part of the body for the application."""
        self._parts.append(data)
        self.waiting_bytes += len(data)
        self._something.set()

    def finish(self) -> None:
        """The request is complete."""
        self.complete = True
        self._something.set()

    async def receive(self) -> Message:
        """Return the next part of the body; a connection that is lost cancels the application instead."""
        if self._told:
            await asyncio.get_running_loop().create_future()
        if not self._parts and not self.complete:
            self._something.clear()
            self._carrier.want()
            await self._something.wait()
        body = b"".join(self._parts)
        self._parts.clear()
        self.waiting_bytes = 0
        self._told = self.complete
        return {"type": "http.request", "body": body, "more_body": not self.complete}

    async def send(self, message: Message) -> None:
        """Send the head or a part of the body of the answer."""
        if message["type"] == "http.response.start":
            self.started = True
            headers = list(message.get("headers", ()))
            if not self._carrier.keeps():
                headers.append(CLOSE)
            await self._carrier.put(response(message["status"], headers))
            return
        body = message.get("body", b"")
        if body and self.scope["method"] != "HEAD":
            await self._carrier.put(h11.Data(data=body))
        if not message.get("more_body", False):
            self.ended = True
            await self._carrier.put(h11.EndOfMessage())


def response(status: int, headers: list[tuple[bytes, bytes]]) -> h11.Response:
    """Return the head of an answer, with the reason phrase of its status for people who read it."""
    phrase = HTTPStatus(status).phrase if status in STATUSES else ""
    return h11.Response(status_code=status, headers=headers, reason=phrase.encode())


def scope_of(request: h11.Request, client: tuple[str, int] | None) -> Message:
    """Return the ASGI scope of a request; raises BadTarget.

    A target in absolute form replaces the header Host (RFC 9112 section 3.2.2).
    """
    headers = [(name, value) for name, value in request.headers]  # no list, and in lower case only so
    target = request.target
    if not target.startswith(b"/"):
        try:
            parsed = urlsplit(target.decode("ascii"))
        except ValueError:  # such as http://[
            parsed = urlsplit("")
        if parsed.scheme.lower() not in ("http", "https") or not parsed.netloc:
            raise BadTarget("the target of a request is a path such as /health/live")
        headers = [pair for pair in headers if pair[0] != b"host"] + [(b"host", parsed.netloc.encode())]
        target = (parsed.path or "/").encode() + (b"?" + parsed.query.encode() if parsed.query else b"")
    raw_path, _, query = target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": request.http_version.decode("ascii"),
        "method": request.method.decode("ascii"),
        "scheme": "http",
        "path": unquote(raw_path.decode("ascii")),
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "server": None,
        "client": client,
        "state": {},
    }
