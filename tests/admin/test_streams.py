"""The HTTP routes of streams: ranges, bounds, parameters, tokens, both formats."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp

from folkmoot.admin.streams import stream_routes
from folkmoot.store.chunk import decode_chunk, decode_head
from folkmoot.store.record import Entry, encode_record
from folkmoot.streams.config import StreamConfig
from tests.harness.asgi import ask
from tests.harness.streamnode import START_US, Shelf

SECOND = 1_000_000
RECORDS = "/api/v1/streams/s/partitions/0/records"


class Waiter:
    """Stands for the runtime's wait: notes what it was asked, and may change the shelf meanwhile."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, float]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def __call__(self, name: str, partition: int, offset: int, timeout_s: float) -> bool:
        self.asked.append((name, partition, offset, timeout_s))
        self.meanwhile()
        return True


@pytest.fixture
def shelf() -> Shelf:
    return Shelf(StreamConfig("s", b"s/#", 1, retention_us=3600 * SECOND), StreamConfig("wide", b"w/#", 4))


@pytest.fixture
def waiter() -> Waiter:
    return Waiter()


@pytest.fixture
def app(shelf: Shelf, waiter: Waiter) -> ASGIApp:
    return Starlette(routes=stream_routes(lambda: shelf.streams, waiter))


def entries(body: bytes) -> list[Entry]:
    found: list[Entry] = []
    position = 0
    while position < len(body):
        head = decode_head(body, position)
        assert head is not None
        found.extend(decode_chunk(body, position))
        position += head.length
    return found


def test_all_streams_and_one(app: ASGIApp, shelf: Shelf) -> None:
    shelf.publish("s/a", b"1", b"2")
    listed = ask(app, "/api/v1/streams").json()["streams"]
    assert [stream["name"] for stream in listed] == ["s", "wide"]
    one = ask(app, "/api/v1/streams/s").json()
    assert one == listed[0]
    assert one["filter"] == "s/#"
    assert one["retention_us"] == 3600 * SECOND
    (part,) = one["ranges"]
    assert (part["oldest"], part["next"], part["oldest_time_us"]) == (0, 2, START_US)
    assert [part["partition"] for part in listed[1]["ranges"]] == [0, 1, 2, 3]


def test_records_as_chunks(app: ASGIApp, shelf: Shelf) -> None:
    shelf.publish("s/a", b"1", b"2", b"3")
    answer = ask(app, RECORDS, {"from": 1})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/vnd.folkmoot.chunks"
    assert [entry.record.payload for entry in entries(answer.content) if entry.offset >= 1] == [b"2", b"3"]
    assert answer.headers["folkmoot-next-offset"] == "3"
    assert answer.headers["folkmoot-oldest"] == "0"
    assert answer.headers["folkmoot-end"] == "3"


def test_pages_are_bounded_and_go_on(app: ASGIApp, shelf: Shelf) -> None:
    for _ in range(30):
        shelf.publish("s/a", bytes(100_000), bytes(100_000))
    at = 0
    pages = 0
    while at < 60:
        answer = ask(app, RECORDS, {"from": at, "to": 60, "max_bytes": 10**9})
        assert len(answer.content) < 5_000_000
        assert int(answer.headers["folkmoot-next-offset"]) > at
        at = int(answer.headers["folkmoot-next-offset"])
        pages += 1
    assert at == 60
    assert pages >= 2


def test_to_ends_the_page(app: ASGIApp, shelf: Shelf) -> None:
    for _ in range(5):
        shelf.publish("s/a", bytes(100_000))
    answer = ask(app, RECORDS, {"from": 1, "to": 3})
    assert answer.headers["folkmoot-next-offset"] == "3"
    assert [entry.offset for entry in entries(answer.content)] == [1, 2]


def test_lines_of_json(app: ASGIApp, shelf: Shelf) -> None:
    properties = b"\x03\x00\x04text\x26\x00\x01k\x00\x01v\x08\x00\x01r\x09\x00\x02\x00\xff"
    shelf.append(
        encode_record(b"s/a", "ä".encode(), 2, True, b"me", properties),
        encode_record(b"s/b", b"\xff", 0, False, b"", b""),
    )
    answer = ask(app, RECORDS, {"from": 0}, {"accept": "application/x-ndjson"})
    first, second = [json.loads(line) for line in answer.content.splitlines()]
    assert first == {
        "partition": 0,
        "offset": 0,
        "time": "2023-11-14T22:13:20.000000Z",
        "time_us": START_US,
        "topic": "s/a",
        "payload": "ä",
        "qos": 2,
        "retain": True,
        "publisher": "me",
        "content_type": "text",
        "user_properties": [["k", "v"]],
        "response_topic": "r",
        "correlation_data_base64": "AP8=",
    }
    assert second["payload_base64"] == "/w=="
    assert "payload" not in second
    assert answer.headers["folkmoot-next-offset"] == "2"


def test_gone_and_ahead_name_the_bound(app: ASGIApp, shelf: Shelf) -> None:
    shelf.publish("s/a", b"1", b"2")
    ahead = ask(app, RECORDS, {"from": 3})
    assert (ahead.status, ahead.json()["next"]) == (416, 2)
    shelf.now += 7200 * SECOND
    shelf.trim()
    gone = ask(app, RECORDS, {"from": 1})
    assert (gone.status, gone.json()["oldest"]) == (410, 2)
    assert "stream s partition 0: offset 1 is gone" in gone.json()["error"]


def test_the_end_is_empty_after_waiting(app: ASGIApp, shelf: Shelf, waiter: Waiter) -> None:
    shelf.publish("s/a", b"1")
    answer = ask(app, RECORDS, {"from": 1})
    assert (answer.status, answer.content, waiter.asked) == (200, b"", [])
    ask(app, RECORDS, {"from": 1, "wait_ms": 250})
    ask(app, RECORDS, {"from": 1, "wait_ms": 10**9})
    assert waiter.asked == [("s", 0, 1, 0.25), ("s", 0, 1, 30.0)]
    waiter.meanwhile = lambda: shelf.publish("s/a", b"2")
    answer = ask(app, RECORDS, {"from": 1, "wait_ms": 250})
    assert [entry.record.payload for entry in entries(answer.content) if entry.offset >= 1] == [b"2"]


def test_nobody_waits_for_what_is_there(app: ASGIApp, shelf: Shelf, waiter: Waiter) -> None:
    shelf.publish("s/a", b"1")
    ask(app, RECORDS, {"from": 0, "wait_ms": 250})
    assert waiter.asked == []


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("", "from"),
        ("from=x", "from"),
        ("from=-1", "from"),
        ("from=1.5", "from"),
        ("from=%C2%B2", "from"),
        (f"from={1 << 63}", "from"),
        ("from=5&to=4", "to"),
        ("from=0&max_bytes=many", "max_bytes"),
        ("from=0&max_bytes=0", "max_bytes"),  # would be answered with nothing for ever
        ("from=0&wait_ms=-5", "wait_ms"),
    ],
)
def test_a_wrong_parameter_names_itself(app: ASGIApp, query: str, name: str) -> None:
    answer = ask(app, f"{RECORDS}?{query}")
    assert answer.status == 400
    assert f"parameter '{name}'" in answer.json()["error"]


def test_what_is_not_there_is_404(app: ASGIApp) -> None:
    assert ask(app, "/api/v1/streams/none").status == 404
    assert ask(app, "/api/v1/streams/none/offsets?time_us=0").status == 404
    assert ask(app, "/api/v1/streams/none/partitions/0/records?from=0").status == 404
    for partition in ("one", "-1", "\u0661", "9" * 5000):
        assert ask(app, f"/api/v1/streams/s/partitions/{partition}/records?from=0").status == 404
    answer = ask(app, "/api/v1/streams/wide/partitions/4/records?from=0")
    assert answer.status == 404
    assert "partitions 0 to 3" in answer.json()["error"]


def test_offsets_by_time(app: ASGIApp, shelf: Shelf) -> None:
    shelf.publish("s/a", b"1", b"2")
    shelf.now += SECOND
    shelf.publish("s/a", b"3")
    path = "/api/v1/streams/s/offsets"
    assert ask(app, path, {"time_us": START_US + 1}).json() == {"offsets": {"0": 2}}
    assert ask(app, path, {"time_us": START_US + 2 * SECOND}).json() == {"offsets": {"0": 3}}
    assert ask(app, path).status == 400


def test_a_token_is_asked_for_everywhere(shelf: Shelf, waiter: Waiter) -> None:
    app = Starlette(routes=stream_routes(lambda: shelf.streams, waiter, token="secret"))
    for path in ("", "/s", "/s/offsets?time_us=0", "/s/partitions/0/records?from=0", "/none"):
        url = "/api/v1/streams" + path
        assert ask(app, url).status == 401
        assert ask(app, url, None, {"authorization": "Bearer wrong"}).status == 403
        right = ask(app, url, None, {"authorization": "Bearer secret"})
        assert right.status == (404 if path == "/none" else 200)
