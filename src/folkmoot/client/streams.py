"""Streams over HTTP: descriptions, offsets by time, pages of records. Verifies what it receives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from folkmoot.client.nodes import Answer, Attempts, Nodes, split_urls
from folkmoot.client.problem import BadAnswer, BadQuestion, NoSuchStream, OffsetAhead, OffsetGone
from folkmoot.store.chunk import Head, decode_chunk, decode_head, fault
from folkmoot.store.record import Entry

__all__ = ["ChunkPage", "PartitionRange", "StreamClient", "StreamInfo"]

PAGE_BYTES: Final = 4_194_304
# A node that hangs accepts connections but does not answer: then another one is asked.
TIMEOUT_S: Final = 10.0
COPIES_S: Final = 1.0


class PartitionRange:
    """The readable part of one stream partition: offsets [oldest, next), their size and times."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.partition: int = found["partition"]
        self.oldest: int = found["oldest"]
        self.next: int = found["next"]
        self.bytes: int = found["bytes"]
        self.oldest_time_us: int | None = found["oldest_time_us"]
        self.latest_time_us: int | None = found["latest_time_us"]


class StreamInfo:
    """One stream: its settings and the range of each stream partition, in order."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.name: str = found["name"]
        self.filter: str = found["filter"]
        self.partitions: int = found["partitions"]
        self.retention_us: int | None = found["retention_us"]
        self.retention_bytes: int | None = found["retention_bytes"]
        self.ranges = [PartitionRange(part) for part in found["ranges"]]


class ChunkPage:
    """A verified page: `chunks` has the positions and heads of the chunks in `data`; the next page is at `next_offset`.

    The records from the requested start to `next_offset` are complete and in order. The first chunk may begin earlier,
    and chunks may overlap: the code that decodes them skips records that it already has.
    """

    def __init__(self, data: bytes, chunks: list[tuple[int, Head]], next_offset: int, oldest: int, end: int) -> None:
        self.data = data
        self.chunks = chunks
        self.next_offset = next_offset
        self.oldest = oldest
        self.end = end


class StreamClient:
    """A reader of streams. `urls`: admin addresses, as a list or separated by commas; `token`: the bearer token.

    The first node that answers is used: each serves all streams. A node that is dead, hangs, or cannot read a stream
    partition now (503) is skipped. A request that no node answers is repeated for `patience_s` seconds, so that it
    outlasts the restart of nodes. All methods raise the exceptions of `folkmoot.client.problem`. One instance belongs
    to one thread.
    """

    def __init__(
        self, urls: str | Sequence[str], token: str | None = None, patience_s: float = 60.0, first: int = 0
    ) -> None:
        found = split_urls(urls if isinstance(urls, str) else ",".join(urls))
        self.nodes = Nodes(found, token, patience_s, TIMEOUT_S, first)

    def streams(self) -> list[StreamInfo]:
        """Return all streams."""
        answer = self._ask("/api/v1/streams", {})
        return [_info(answer, found) for found in answer.object().get("streams", [])]

    def describe(self, name: str) -> StreamInfo:
        """Return the stream `name`."""
        answer = self._ask(_path(name), {})
        return _info(answer, answer.object())

    def copies(self, name: str) -> dict[int, list[str]]:
        """Return, by stream partition, the addresses of the nodes that read it from their own disk.

        Nodes that do not answer at once are left out, and so are nodes of versions without this function.
        """
        found: dict[int, list[str]] = {}
        for answer in self.nodes.each(_path(name) + "/copies", COPIES_S):
            for partition in answer.object().get("partitions", []) if answer.status == 200 else []:
                found.setdefault(partition, []).append(answer.url)
        return found

    def offsets(self, name: str, time_us: int) -> dict[int, int]:
        """Return, by stream partition, the first offset with a broker time of `time_us` or later, else the end."""
        answer = self._ask(_path(name) + "/offsets", {"time_us": str(time_us)})
        found = answer.object().get("offsets")
        if not isinstance(found, dict):
            raise BadAnswer(f"{answer.url} answered without offsets")
        return {int(partition): int(offset) for partition, offset in found.items()}

    def read(
        self,
        name: str,
        partition: int,
        start: int,
        end: int | None = None,
        bytes_max: int = PAGE_BYTES,
        wait_ms: int = 0,
    ) -> ChunkPage:
        """Return a page of records from `start` on, before `end`; at the end, wait up to `wait_ms` for more."""
        fields = {"from": str(start), "max_bytes": str(bytes_max)}
        if end is not None:
            fields["to"] = str(end)
        if wait_ms:
            fields["wait_ms"] = str(wait_ms)
        answer = self._ask(f"{_path(name)}/partitions/{partition}/records", fields, wait_ms / 1000)
        next_offset = answer.number("folkmoot-next-offset")
        chunks = _verified(answer, f"stream {name} partition {partition}", start, next_offset)
        page = ChunkPage(
            answer.data, chunks, next_offset, answer.number("folkmoot-oldest"), answer.number("folkmoot-end")
        )
        if next_offset <= start < min(page.end, page.end if end is None else end):
            raise BadAnswer(f"{answer.url}: no records of stream {name} partition {partition} from offset {start} on")
        return page

    def read_known(self, name: str, partition: int, start: int, end: int, bytes_max: int = PAGE_BYTES) -> ChunkPage:
        """Return a page with the record `start`, which is known to exist.

        A node without this record is in a fork, or does not know it yet. The other nodes are asked, within the time
        limit, before OffsetAhead is raised. OffsetGone is raised at once: that is retention.
        """
        attempts = Attempts(self.nodes)
        while True:
            try:
                page = self.read(name, partition, start, end, bytes_max)
            except OffsetAhead as ahead:
                found = ahead
            else:
                if page.next_offset > start:
                    return page
                found = OffsetAhead(f"stream {name} partition {partition} ends at {page.end}", page.end)
            if not attempts.next():
                raise found

    def describe_known(self, name: str, ends: Mapping[int, int]) -> StreamInfo:
        """Return the stream from a node at which it has reached `ends` (by stream partition), as it is known to have.

        Nodes that know less are skipped as in `read_known`; raises OffsetAhead if there is no other node.
        """
        attempts = Attempts(self.nodes)
        while True:
            info = self.describe(name)
            behind = [part for part in info.ranges if part.next < ends.get(part.partition, 0)]
            if not behind:
                return info
            if not attempts.next():
                part = behind[0]
                told = f"was read up to {ends[part.partition]}, and now it ends at {part.next}"
                raise OffsetAhead(f"stream {name} partition {part.partition}: it {told}", part.next)

    def entries(
        self, name: str, partition: int, start: int, end: int | None = None, wait_ms: int = 0
    ) -> Iterator[Entry]:
        """Yield the records [start, end) of a stream partition; without `end`, up to the current end."""
        at = start
        while end is None or at < end:
            page = self.read(name, partition, at, end, wait_ms=wait_ms)
            for position, _head in page.chunks:
                for entry in decode_chunk(page.data, position):
                    if at <= entry.offset < page.next_offset:
                        yield entry
                        at = entry.offset + 1
            if at >= page.end:
                return

    def close(self) -> None:
        """Close all connections."""
        self.nodes.close()

    def _ask(self, path: str, fields: dict[str, str], extra_wait_s: float = 0.0) -> Answer:
        answer = self.nodes.get(path, fields, extra_wait_s)
        if answer.status == 410:
            raise OffsetGone(answer.reason(), int(answer.object()["oldest"]))
        if answer.status == 416:
            raise OffsetAhead(answer.reason(), int(answer.object()["next"]))
        return answer.checked({400: BadQuestion, 404: NoSuchStream})


def _path(name: str) -> str:
    return "/api/v1/streams/" + quote(name, safe="")


def _info(answer: Answer, found: dict[str, Any]) -> StreamInfo:
    try:
        return StreamInfo(found)
    except (KeyError, TypeError) as error:
        raise BadAnswer(f"{answer.url} described a stream without {error}: is the node of another version?") from error


def _verified(answer: Answer, what: str, start: int, next_offset: int) -> list[tuple[int, Head]]:
    """Return the position and head of every chunk in the body; raises BadAnswer if bytes or records are missing."""
    chunks: list[tuple[int, Head]] = []
    at = start
    position = 0
    while position < len(answer.data):
        why = fault(answer.data, position)
        head = decode_head(answer.data, position)
        if why is not None or head is None:
            raise BadAnswer(f"{answer.url}, {what}, offset {at}: {why}")
        if head.first > at or head.end <= at:
            raise BadAnswer(f"{answer.url}, {what}: {head.first} to {head.end} instead of records from {at} on")
        chunks.append((position, head))
        at = head.end
        position += head.length
    if at < next_offset:
        raise BadAnswer(f"{answer.url}, {what}: records up to {next_offset} were announced, the last was {at - 1}")
    return chunks
