"""One request to an ASGI application, in this thread and without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message

__all__ = ["Reply", "ask"]


class Reply:
    """Status, headers and body of an answer."""

    def __init__(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.status = status
        self.headers = headers
        self.content = content

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.content)


def ask(
    app: ASGIApp,
    path: str,
    fields: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    method: str = "GET",
    body: bytes = b"",
) -> Reply:
    """Return the answer to a request for `path`, with `fields` or what follows a `?` as the query."""
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": (urlencode(fields) if fields else query).encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        "server": ("test", 80),
        "client": ("test", 1),
        "state": {},
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    async def call() -> None:
        await app(scope, receive, send)

    asyncio.run(call())
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Reply(sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:]))
