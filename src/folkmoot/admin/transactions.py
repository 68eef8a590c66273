"""The HTTP routes of transactions: stage, commit, abort, and queries of operators.

Owns the paths under `/api/v1/transactions`, the validation of names, numbers and packets, and the texts of refusals.
Every node accepts every command; the leader of the app's home partition carries it out (`HomeSource`). All commands are
idempotent. The size of a chunk is bounded, so that a writer needs little memory here; the home partition limits the
total of an app.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from folkmoot.admin.answer import failure
from folkmoot.admin.streams import NoLeader
from folkmoot.admin.token import refusal, still_valid
from folkmoot.kernel.limits import Limits
from folkmoot.mqtt.text import check_utf8, has_discouraged
from folkmoot.partition.staged import CHUNK_BYTES_MAX, check_packets
from folkmoot.query.question import (
    ABORT,
    BUSY,
    COMMIT,
    CONFLICT,
    FORGET,
    FOUND,
    LIST,
    NO_ROOM,
    STAGE,
    TOO_LARGE,
    UNKNOWN,
    Answer,
)
from folkmoot.report.order import encode_chunk, encode_commit
from folkmoot.store.transaction import home_of

__all__ = ["HomeSource", "transaction_routes"]

NAME_BYTES_MAX: Final = 256
NUMBER_MAX: Final = (1 << 62) - 1
CHUNK_MAX: Final = (1 << 32) - 1
PARTS_MAX: Final = 65_536
COMMIT_BYTES_MAX: Final = 16_777_216
JSON: Final = "application/json"
STATUS: Final = {CONFLICT: 409, TOO_LARGE: 413, NO_ROOM: 507, BUSY: 503, UNKNOWN: 404}
FIGURES: Final = (
    "last",
    "committed_us",
    "published",
    "waiting_transactions",
    "waiting_messages",
    "waiting_since_us",
    "staged_transactions",
    "staged_bytes",
    "staged_us",
)


class Wrong(Exception):
    """A command is invalid; the text says why, `status` is 400, 403, 413 or 415."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class HomeSource(ABC):
    """Access to the leaders of all home partitions, at any node."""

    @abstractmethod
    def partitions(self) -> int:
        """Return how many partitions there are."""

    @abstractmethod
    def homes(self) -> list[list[int]]:
        """Return the partitions that have a leader, grouped by leader."""

    @abstractmethod
    async def ask(self, partition: int, what: int, name: bytes, numbers: list[int], key: bytes) -> Answer:
        """Return the answer of the leader of a home partition, see `folkmoot.report.order`; raises NoLeader."""


class TransactionApi:
    """The endpoints; `token` None disables authorization."""

    def __init__(self, source: HomeSource, limits: Limits, token: str | None) -> None:
        self._source = source
        self._limits = limits
        self._token = token

    async def stage(self, request: Request) -> Response:
        """PUT /api/v1/transactions/APP/NUMBER/PART/CHUNK."""
        refused = refusal(request, self._token)
        if refused is not None:
            return refused
        try:
            number, chunk = _number(request, "number", NUMBER_MAX), _number(request, "chunk", CHUNK_MAX)
            part = _name(request, "part")
            limit = self._limits.packet_bytes_max
            packets = await _body(request, max(CHUNK_BYTES_MAX, limit), f"; limits.packet_bytes_max is {limit}")
            count, fault = check_packets(packets, self._limits)
            if fault is not None:
                where = {} if fault.index < 0 else {"packet": fault.index}
                text = fault.why if fault.index < 0 else f"packet {fault.index}: {fault.why}"
                return JSONResponse({"error": text, **where}, 413 if fault.too_large else 400)
            answer = await self._ask(request, STAGE, [number, chunk, count], encode_chunk(part, packets))
        except (Wrong, NoLeader) as problem:
            return _problem(problem)
        return _answer(answer, {"messages": count, "committed": bool(answer.numbers and answer.numbers[0])})

    async def commit(self, request: Request) -> Response:
        """POST /api/v1/transactions/APP/NUMBER/commit with {"parts": [["PART", chunks], ...]}."""
        refused = refusal(request, self._token)
        if refused is not None:
            return refused
        try:
            number = _number(request, "number", NUMBER_MAX)
            given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if given != JSON:  # as for other commands: a web page cannot send this content type with a form
                raise Wrong(f"a commit needs the header 'content-type: {JSON}'", 415)
            parts = _parts(await _body(request, COMMIT_BYTES_MAX))
            answer = await self._ask(request, COMMIT, [number], encode_commit(parts))
        except (Wrong, NoLeader) as problem:
            return _problem(problem)
        return _answer(answer, {"number": number, "repeated": bool(answer.numbers and answer.numbers[0])})

    async def abort(self, request: Request) -> Response:
        """DELETE /api/v1/transactions/APP/NUMBER/PART."""
        refused = refusal(request, self._token)
        if refused is not None:
            return refused
        try:
            number, part = _number(request, "number", NUMBER_MAX), _name(request, "part")
            answer = await self._ask(request, ABORT, [number], part)
        except (Wrong, NoLeader) as problem:
            return _problem(problem)
        return _answer(answer, {"committed": bool(answer.numbers and answer.numbers[0])})

    async def overview(self, request: Request) -> Response:
        """GET /api/v1/transactions; `complete` is false while the leader of some partition does not answer."""
        refused = refusal(request, self._token)
        if refused is not None:
            return refused
        homes = self._source.homes()
        complete = sum(len(home) for home in homes) == self._source.partitions()
        found: list[dict[str, Any]] = []
        for home in homes:
            try:
                answer = await self._source.ask(home[0], LIST, b"", home, b"")
            except NoLeader:
                complete = False
                continue
            found += self._described(answer)
        found.sort(key=lambda app: str(app["app"]))
        return JSONResponse({"transactions": found, "complete": complete})

    async def describe(self, request: Request) -> Response:
        """GET /api/v1/transactions/APP."""
        refused = refusal(request, self._token)
        if refused is not None:
            return refused
        try:
            answer = await self._ask(request, LIST, [], b"")
        except (Wrong, NoLeader) as problem:
            return _problem(problem)
        if answer.status == FOUND and answer.chunks:
            return JSONResponse(self._described(answer)[0])
        return failure(404, f"there is no app {request.path_params['app']!r}")

    async def forget(self, request: Request) -> Response:
        """DELETE /api/v1/transactions/APP."""
        refused = refusal(request, self._token)
        if refused is not None:
            return refused
        try:
            answer = await self._ask(request, FORGET, [], b"")
        except (Wrong, NoLeader) as problem:
            return _problem(problem)
        if answer.status == UNKNOWN:
            return failure(404, f"there is no app {request.path_params['app']!r}")
        return _answer(answer, {"forgotten": request.path_params["app"]})

    async def _ask(self, request: Request, what: int, numbers: list[int], key: bytes) -> Answer:
        app = _name(request, "app")
        home = home_of(app, self._source.partitions())
        return await self._source.ask(home, what, app, [home, *numbers], key)

    def _described(self, answer: Answer) -> list[dict[str, Any]]:
        found = []
        for chunk in answer.chunks:
            name, numbers = msgspec.msgpack.decode(chunk, type=tuple[bytes, list[int]])
            partition = home_of(name, self._source.partitions())
            figures: dict[str, Any] = dict(zip(FIGURES, numbers, strict=False))
            for time in ("committed_us", "waiting_since_us", "staged_us"):
                figures[time] = figures.get(time) or None
            if figures.get("last", -1) < 0:
                figures["last"] = None
            found.append({"app": name.decode(), "partition": partition, **figures})
        return found


def transaction_routes(source: HomeSource, limits: Limits, token: str | None = None) -> list[Route]:
    """Return the routes of transactions, for a Starlette application."""
    api = TransactionApi(source, limits, token)
    base = "/api/v1/transactions"
    return [
        Route(base, api.overview),
        Route(f"{base}/{{app}}", api.describe),
        Route(f"{base}/{{app}}", api.forget, methods=["DELETE"]),
        Route(f"{base}/{{app}}/{{number}}/commit", api.commit, methods=["POST"]),
        Route(f"{base}/{{app}}/{{number}}/{{part}}", api.abort, methods=["DELETE"]),
        Route(f"{base}/{{app}}/{{number}}/{{part}}/{{chunk}}", api.stage, methods=["PUT"]),
    ]


async def _body(request: Request, size_max: int, limit: str = "") -> bytes:
    """Return the body of a request of about `size_max` bytes at most; raises Wrong, whose text ends with `limit`."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > size_max + NAME_BYTES_MAX:
            raise Wrong(f"the body has more than {size_max} bytes{limit}", 413)
        parts.append(part)
    if not still_valid(request):
        raise Wrong("the token was replaced before the body was complete", 403)
    return b"".join(parts)


def _parts(body: bytes) -> list[tuple[bytes, int]]:
    """Return the parts of a commit, in order; raises Wrong."""
    try:
        found = json.loads(body)["parts"]
        parts = [(_checked_name(name, "a part"), count) for name, count in found]
    except (ValueError, KeyError, TypeError):
        raise Wrong('give {"parts": [["PART", chunks], ...]}') from None
    if len(parts) > PARTS_MAX:
        raise Wrong(f"{len(parts)} parts, a transaction has at most {PARTS_MAX}", 413)
    if len({name for name, _ in parts}) != len(parts):
        raise Wrong("a part is named twice")
    for name, count in parts:
        if type(count) is not int or not 0 <= count <= CHUNK_MAX:
            raise Wrong(f"part {name.decode()}: {count!r} is not a number of chunks")
    return parts


def _name(request: Request, what: str) -> bytes:
    return _checked_name(request.path_params[what], what)


def _checked_name(name: object, what: str) -> bytes:
    """Return a name as bytes; raises Wrong if it is invalid."""
    if not isinstance(name, str):
        raise Wrong(f"{what} must be a text")
    raw = name.encode("utf-8", "replace")
    if not raw or len(raw) > NAME_BYTES_MAX or "/" in name or not check_utf8(raw) or has_discouraged(name):
        raise Wrong(f"{what} {name[:64]!r}: a name has 1 to {NAME_BYTES_MAX} bytes, no / and no control characters")
    return raw


def _number(request: Request, what: str, largest: int) -> int:
    text: str = request.path_params[what]
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= largest):
        raise Wrong(f"{what} {text[:40]!r}: it must be an integer from 0 to {largest}")
    return int(text)


def _answer(answer: Answer, fields: dict[str, object]) -> Response:
    if answer.status == FOUND:
        return JSONResponse(fields)
    status = STATUS.get(answer.status, 500)
    headers = {"retry-after": "1"} if status in (503, 507) else None
    return JSONResponse({"error": answer.text}, status_code=status, headers=headers)


def _problem(problem: Wrong | NoLeader) -> Response:
    if isinstance(problem, Wrong):
        return failure(problem.status, str(problem))
    return JSONResponse({"error": str(problem)}, status_code=503, headers={"retry-after": "1"})
