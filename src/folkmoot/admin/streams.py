"""The HTTP routes of streams: descriptions, offsets by time, ranges of records as chunks or as lines of JSON.

Owns the paths under `/api/v1/streams` and the validation of their parameters. Reads the node's streams and changes
nothing. Each node answers for all stream partitions: it queries the leaders of those that it does not lead
(`LeaderSource`). It runs on the event loop of the node, so every answer is bounded: PAGE_BYTES_MAX of chunks, read from
the store in a few milliseconds. A slow reader holds one page and does not affect others.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from folkmoot.admin.answer import failure
from folkmoot.admin.token import refusal
from folkmoot.client.entry import entry_object
from folkmoot.kernel.errors import CorruptStore
from folkmoot.query.question import BOUNDS, FOUND, READ, SEEK, Answer, page_of
from folkmoot.report.answer import bounds_of
from folkmoot.store.chunk import decode_chunk
from folkmoot.streams.log import StreamLog
from folkmoot.streams.page import OffsetAhead, OffsetGone, Page
from folkmoot.streams.table import Stream, Streams

__all__ = ["LeaderSource", "NoLeader", "Wait", "stream_routes"]

PAGE_BYTES: Final = 1_048_576
PAGE_BYTES_MAX: Final = 4_194_304
WAIT_MS_MAX: Final = 30_000
# A record as a line of JSON costs about 10 us: after this many, MQTT has its turn.
LINES_AT_ONCE: Final = 64
OFFSET_MAX: Final = (1 << 62) - 1

CHUNKS: Final = "application/vnd.folkmoot.chunks"
LINES: Final = "application/x-ndjson"

Wait = Callable[[str, int, int, float], Awaitable[bool]]
"""`await wait(stream, stream partition, offset, seconds)` returns when the offset is readable or the time is over.

False: the reader is not to read any more.
"""


Numbers = list[int]


class Wrong(Exception):
    """A parameter is invalid; the text names it."""


class NoLeader(Exception):
    """A stream partition cannot be read now, because it has no leader; the text names it."""


class LeaderSource(ABC):
    """Access to stream partitions that other nodes lead."""

    @abstractmethod
    def leads(self, log: StreamLog) -> bool:
        """Whether this node leads it."""

    @abstractmethod
    async def ask(self, log: StreamLog, what: int, numbers: list[int]) -> Answer:
        """Return the leader's answer, see `folkmoot.query.question`; raises NoLeader."""

    @abstractmethod
    def holds(self, log: StreamLog) -> bool:
        """Whether this node has a copy to read from."""

    async def read(self, log: StreamLog, start: int, end: int, bytes_max: int) -> Page | OffsetGone | OffsetAhead:
        """Return a page from the local copy, or from the leader; raises NoLeader."""
        return page_of(await self.ask(log, READ, [log.index, start, end, bytes_max]))


class StreamApi:
    """The endpoints; `streams` returns the current streams of the node; `token` None disables authorization."""

    def __init__(
        self, streams: Callable[[], Streams], wait: Wait, token: str | None, source: LeaderSource | None
    ) -> None:
        self._streams = streams
        self._source = source
        self._wait = wait
        self._token = token
        self._one_by_one = asyncio.Lock()  # one page as lines at a time: the loop is blocked for one slice

    def refusal(self, request: Request) -> Response | None:
        """Return 401 or 403 if the request does not have the right token, else None."""
        return refusal(request, self._token)

    async def list(self, request: Request) -> Response:
        """GET /api/v1/streams."""
        refused = self.refusal(request)
        if refused is not None:
            return refused
        try:
            return JSONResponse({"streams": [await self._described(stream) for stream in self._streams().streams]})
        except (NoLeader, CorruptStore) as problem:
            return _problem(problem)

    async def describe(self, request: Request) -> Response:
        """GET /api/v1/streams/NAME."""
        stream = self._stream(request)
        refused = self.refusal(request)
        if refused is not None or stream is None:
            return refused or _no_stream(request)
        try:
            return JSONResponse(await self._described(stream))
        except (NoLeader, CorruptStore) as problem:
            return _problem(problem)

    async def _described(self, stream: Stream) -> dict[str, object]:
        ranges = await asyncio.gather(*[self._range(log) for log in stream.logs])
        return {**stream.describe(), "ranges": ranges}

    async def _range(self, log: StreamLog) -> dict[str, object]:
        bounds = bounds_of(log) if self._here(log) else (await self._found(log, BOUNDS, [log.index])).numbers
        return {
            "partition": log.index,
            "oldest": bounds[0],
            "next": bounds[1],
            "bytes": bounds[2],
            "oldest_time_us": None if bounds[3] < 0 else bounds[3],
            "latest_time_us": None if bounds[4] < 0 else bounds[4],
        }

    async def _found(self, log: StreamLog, what: int, numbers: Numbers) -> Answer:
        answer = await self._elsewhere.ask(log, what, numbers)
        if answer.status != FOUND:
            raise CorruptStore(f"{log}: {answer.text or answer}")
        return answer

    def _here(self, log: StreamLog) -> bool:
        return self._source is None or self._source.leads(log)

    @property
    def _elsewhere(self) -> LeaderSource:
        assert self._source is not None, "a node without a cluster leads all partitions"
        return self._source

    async def _offset(self, log: StreamLog, time_us: int) -> int:
        if self._here(log):
            return log.offset_at(time_us)
        return (await self._found(log, SEEK, [log.index, time_us])).numbers[0]

    async def copies(self, request: Request) -> Response:
        """GET /api/v1/streams/NAME/copies."""
        stream = self._stream(request)
        refused = self.refusal(request)
        if refused is not None or stream is None:
            return refused or _no_stream(request)
        here = [log.index for log in stream.logs if self._here(log) or self._elsewhere.holds(log)]
        return JSONResponse({"partitions": here})

    async def offsets(self, request: Request) -> Response:
        """GET /api/v1/streams/NAME/offsets?time_us=T."""
        stream = self._stream(request)
        refused = self.refusal(request)
        if refused is not None or stream is None:
            return refused or _no_stream(request)
        try:
            time_us = _number(request, "time_us", None, OFFSET_MAX)
        except Wrong as wrong:
            return failure(400, str(wrong))
        try:
            offsets = await asyncio.gather(*[self._offset(log, time_us) for log in stream.logs])
        except (NoLeader, CorruptStore) as problem:
            return _problem(problem)
        return JSONResponse({"offsets": {str(index): offset for index, offset in enumerate(offsets)}})

    async def records(self, request: Request) -> Response:
        """GET /api/v1/streams/NAME/partitions/P/records?from=A[&to=B][&max_bytes=M][&wait_ms=W]."""
        stream = self._stream(request)
        refused = self.refusal(request)
        if refused is not None or stream is None:
            return refused or _no_stream(request)
        index = _partition(request, len(stream.logs))
        if index < 0:
            return failure(404, f"stream {stream.config.name} has only partitions 0 to {len(stream.logs) - 1}")
        try:
            start = _number(request, "from", None, OFFSET_MAX)
            end = _number(request, "to", OFFSET_MAX, OFFSET_MAX)
            bytes_max = min(_number(request, "max_bytes", PAGE_BYTES, 1 << 40, 1), PAGE_BYTES_MAX)
            wait_ms = min(_number(request, "wait_ms", 0, 1 << 40), WAIT_MS_MAX)
            if end < start:
                raise Wrong(f"parameter 'to' is {end}: it must not be below 'from', {start}")
            as_lines = _wants_lines(request)
        except Wrong as wrong:
            return failure(400, str(wrong))
        try:
            page = await self._read(stream, index, start, end, bytes_max)
            if wait_ms and isinstance(page, Page) and page.end == start < end:
                if await self._wait(stream.config.name, index, start, wait_ms / 1000):
                    page = await self._read(stream, index, start, end, bytes_max)
            if not as_lines:
                return await _answer(page, stream.logs[index], start, False)
            async with self._one_by_one:
                return await _answer(page, stream.logs[index], start, True)
        except (NoLeader, CorruptStore) as problem:
            return _problem(problem)

    async def _read(
        self, stream: Stream, index: int, start: int, end: int, bytes_max: int
    ) -> Page | OffsetGone | OffsetAhead:
        log = stream.logs[index]
        if self._here(log):
            return log.read(start, end, bytes_max)
        return await self._elsewhere.read(log, start, end, bytes_max)

    def _stream(self, request: Request) -> Stream | None:
        return self._streams().get(request.path_params["name"])


def stream_routes(
    streams: Callable[[], Streams], wait: Wait, token: str | None = None, source: LeaderSource | None = None
) -> list[Route]:
    """Return the routes of streams, for a Starlette application; all paths begin with /api/v1/streams.

    source: access to what other nodes lead; None for a node that leads everything.
    """
    api = StreamApi(streams, wait, token, source)
    return [
        Route("/api/v1/streams", api.list),
        Route("/api/v1/streams/{name}", api.describe),
        Route("/api/v1/streams/{name}/copies", api.copies),
        Route("/api/v1/streams/{name}/offsets", api.offsets),
        Route("/api/v1/streams/{name}/partitions/{partition}/records", api.records),
    ]


async def _answer(page: Page | OffsetGone | OffsetAhead, log: StreamLog, start: int, as_lines: bool) -> Response:
    """Answer with one page of `log`."""
    if isinstance(page, OffsetGone):
        text = f"{log}: offset {start} is gone, retention has removed all before {page.oldest}"
        return failure(410, text, {"oldest": page.oldest})
    if isinstance(page, OffsetAhead):
        return failure(416, f"{log}: offset {start} is beyond the end, {page.next}", {"next": page.next})
    headers = {
        "folkmoot-next-offset": str(page.next_offset),
        "folkmoot-oldest": str(page.oldest),
        "folkmoot-end": str(page.end),
    }
    if as_lines:
        return Response(await _lines(page, log.index, start), media_type=LINES, headers=headers)
    return Response(b"".join(page.chunks), media_type=CHUNKS, headers=headers)


async def _lines(page: Page, partition: int, start: int) -> str:
    lines = []
    at = start
    for chunk in page.chunks:
        for entry in decode_chunk(chunk):
            if at <= entry.offset < page.next_offset:
                lines.append(json.dumps(entry_object(partition, entry), ensure_ascii=False) + "\n")
                at = entry.offset + 1
                if len(lines) % LINES_AT_ONCE == 0:
                    await asyncio.sleep(0)
    return "".join(lines)


def _wants_lines(request: Request) -> bool:
    """Return whether the client requests lines of JSON; the default is chunks."""
    return LINES in request.headers.get("accept", "")


def _partition(request: Request, count: int) -> int:
    """Return the stream partition in the path, below `count`, or -1."""
    text: str = request.path_params["partition"]
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < count):
        return -1
    return int(text)


def _number(request: Request, name: str, default: int | None, largest: int, least: int = 0) -> int:
    """Return the query parameter `name`, an integer from `least` to `largest`; raises Wrong."""
    text = request.query_params.get(name)
    if text is None:
        if default is None:
            raise Wrong(f"parameter '{name}' is missing")
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= largest):
        raise Wrong(f"parameter '{name}' is {text[:40]!r}: it must be an integer from {least} to {largest}")
    return int(text)


def _problem(problem: NoLeader | CorruptStore) -> Response:
    """Return why nothing can be read now; if there is no leader, a new one is found within seconds."""
    if isinstance(problem, NoLeader):
        return JSONResponse({"error": str(problem)}, status_code=503, headers={"retry-after": "1"})
    return failure(500, str(problem))


def _no_stream(request: Request) -> Response:
    return failure(404, f"there is no stream {request.path_params['name']!r}")
