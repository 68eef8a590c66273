"""One HTTP request at a time over asyncio, for the nodes' HTTP interface."""

from __future__ import annotations

import asyncio
import json
from typing import Any

__all__ = ["ask", "request"]

WAIT_S = 5.0


async def request(
    place: tuple[str, int],
    path: str,
    *,
    token: str = "",
    method: str = "GET",
    accept: str = "application/json",
    body: bytes = b"",
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers in lower case, and body; the status is 0 when there was no whole answer in time."""
    try:
        return await asyncio.wait_for(_request(place, path, token, method, accept, body), WAIT_S)
    except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
        return 0, {}, b""


async def ask(place: tuple[str, int], path: str, token: str) -> Any:
    """The JSON of an answer 200; None for everything else."""
    status, _, body = await request(place, path, token=token)
    return json.loads(body) if status == 200 else None


async def _request(
    place: tuple[str, int], path: str, token: str, method: str, accept: str, content: bytes
) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection(*place)
    try:
        lines = [f"{method} {path} HTTP/1.1", "host: node", "connection: close", f"accept: {accept}"]
        if method != "GET":
            lines += ["content-type: application/json", f"content-length: {len(content)}"]
        lines += [f"authorization: Bearer {token}"] if token else []
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        elif headers.get("transfer-encoding") == "chunked":
            body = await _chunks(reader)
        else:
            body = await reader.read()
        return int(head[0].split()[1]), headers, body
    finally:
        writer.transport.abort()


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    return body
