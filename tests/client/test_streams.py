"""The client of streams against a served shelf: pages, typed problems, verification, several nodes, a restart."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from folkmoot.admin.streams import LeaderSource, NoLeader
from folkmoot.client.nodes import Answer, Nodes, split_urls
from folkmoot.client.problem import (
    BadAnswer,
    BadQuestion,
    NoSuchStream,
    NotAuthorised,
    OffsetAhead,
    OffsetGone,
    Unreachable,
)
from folkmoot.client.streams import StreamClient
from folkmoot.query import question
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.log import StreamLog
from tests.harness.streamnode import START_US, Shelf, StreamNode

SECOND = 1_000_000


@pytest.fixture
def node() -> Iterator[StreamNode]:
    with StreamNode(
        Shelf(StreamConfig("s", b"s/#", 1, retention_us=60 * SECOND), StreamConfig("w", b"w/#", 3))
    ) as node:
        yield node


@pytest.fixture
def client(node: StreamNode) -> Iterator[StreamClient]:
    client = StreamClient(node.url, patience_s=5)
    yield client
    client.close()


def test_what_there_is(node: StreamNode, client: StreamClient) -> None:
    node.publish("s/a", [b"1", b"2"])
    assert [info.name for info in client.streams()] == ["s", "w"]
    info = client.describe("s")
    assert (info.partitions, info.filter, info.retention_us, info.retention_bytes) == (1, "s/#", 60 * SECOND, None)
    assert (info.ranges[0].oldest, info.ranges[0].next, info.ranges[0].latest_time_us) == (0, 2, START_US)
    assert client.offsets("s", START_US + 1) == {0: 2}
    assert client.offsets("w", 0) == {0: 0, 1: 0, 2: 0}


def test_all_records_over_many_pages(node: StreamNode, client: StreamClient) -> None:
    for number in range(12):
        node.publish("s/a", [b"%d" % number + bytes(90_000), b"small"])
    payloads = [entry.record.payload for entry in client.entries("s", 0, 3, 21)]
    assert payloads == [b"small" if n % 2 else b"%d" % (n // 2) + bytes(90_000) for n in range(3, 21)]
    page = client.read("s", 0, 0, bytes_max=1)
    assert (len(page.chunks), page.end) == (1, 24)


def test_long_poll_brings_what_comes(node: StreamNode, client: StreamClient) -> None:
    timer = threading.Timer(0.1, node.publish, ("s/a", [b"late"]))
    timer.start()
    page = client.read("s", 0, 0, wait_ms=10_000)
    timer.join()
    assert page.next_offset == 1


def test_problems_have_types(node: StreamNode, client: StreamClient) -> None:
    node.publish("s/a", [b"1"])
    with pytest.raises(OffsetAhead) as ahead:
        client.read("s", 0, 5)
    assert ahead.value.next == 1
    with pytest.raises(NoSuchStream, match="'none'"):
        client.describe("none")
    with pytest.raises(NoSuchStream, match="partitions 0 to 0"):
        client.read("s", 7, 0)
    with pytest.raises(BadQuestion, match="'to'"):
        client.read("s", 0, 1, 0)

    def expire(shelf: Shelf) -> None:
        shelf.now += 100 * SECOND
        shelf.trim()

    node.run(expire)
    with pytest.raises(OffsetGone) as gone:
        client.read("s", 0, 0)
    assert gone.value.oldest == 1


def test_credentials() -> None:
    with StreamNode(Shelf(StreamConfig("s", b"#", 1)), token="right") as node:
        with pytest.raises(NotAuthorised, match="token"):
            StreamClient(node.url).streams()
        with pytest.raises(NotAuthorised, match="token"):
            StreamClient(node.url, token="wrong").streams()
        assert len(StreamClient(node.url, token="right").streams()) == 1


def test_another_node_answers_for_one_that_is_gone(node: StreamNode) -> None:
    with StreamNode(Shelf()) as other:
        gone = other.url
    assert StreamClient([gone, node.url], patience_s=5).describe("s").name == "s"


def test_reads_go_on_at_another_node_when_one_dies_between_two_pages(node: StreamNode) -> None:
    node.publish("s/a", [b"%d" % number + bytes(90_000) for number in range(20)])
    with StreamNode(node.shelf) as second:
        client = StreamClient([second.url, node.url], patience_s=5)
        page = client.read("s", 0, 0, bytes_max=1)
        assert client.nodes.current == second.url
        second.stop()
        offsets = [entry.offset for entry in client.entries("s", 0, page.next_offset)]
        assert offsets == list(range(page.next_offset, 20))
        assert client.nodes.current == node.url, "the dead one is not asked for each page"
        client.close()


class NoneLeads(LeaderSource):
    """Stands for a node between two views: nobody leads, for so many questions."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    def leads(self, log: StreamLog) -> bool:
        return log.index < 0 or self.refusals == 0

    def holds(self, log: StreamLog) -> bool:
        return False

    async def ask(self, log: StreamLog, what: int, numbers: list[int]) -> question.Answer:
        self.refusals -= 1
        raise NoLeader(f"{log} has no open leader, asked {what} {numbers}")


def test_a_partition_without_a_leader_is_waited_for(node: StreamNode) -> None:
    node.publish("s/a", [b"1"])
    for refusals, patience_s in ((3, 5.0), (1 << 30, 0.1)):
        with StreamNode(node.shelf, source=NoneLeads(refusals)) as other:
            client = StreamClient(other.url, patience_s=patience_s)
            if patience_s < 1:
                with pytest.raises(Unreachable, match=r"503.*stream s partition 0 has no open leader"):
                    client.read("s", 0, 0)
            else:
                assert client.read("s", 0, 0).next_offset == 1
            client.close()


def test_a_restart_is_ridden_out(node: StreamNode, client: StreamClient) -> None:
    node.publish("s/a", [b"1"])
    assert client.read("s", 0, 0).next_offset == 1
    node.stop()
    timer = threading.Timer(0.3, node.start)
    timer.start()
    assert client.read("s", 0, 0).next_offset == 1
    timer.join()


def test_nobody_there_is_said_with_the_address() -> None:
    with StreamNode(Shelf()) as node:
        url = node.url
    with pytest.raises(Unreachable, match=url):
        StreamClient(url, patience_s=0.1).streams()


def test_another_service_is_recognised(node: StreamNode) -> None:
    with pytest.raises(BadAnswer, match="admin address"):
        Nodes([node.url], None, 1).get("/elsewhere", {}).object()


class OneAnswer(Nodes):
    """Gives the same answer to every request."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(["http://127.0.0.1:1"], None, 0)
        self.answer = answer

    def get(self, *_: object) -> Answer:  # type: ignore[override]
        return self.answer


def test_what_comes_is_verified(node: StreamNode, client: StreamClient) -> None:
    node.publish("s/a", [bytes(50_000)])
    node.publish("s/a", [bytes(50_000)])
    good = client.nodes.get("/api/v1/streams/s/partitions/0/records", {"from": "0"})
    broken = bytearray(good.data)
    broken[-10] ^= 1
    half = len(good.data) // 2
    for data, why in ((bytes(broken), "checksum"), (good.data[:-5], "cut short"), (good.data[half:], "instead of")):
        client.nodes = OneAnswer(Answer(good.url, 200, good.headers, data))
        with pytest.raises(BadAnswer, match=f"stream s partition 0.*{why}"):
            client.read("s", 0, 0)
    client.nodes = OneAnswer(Answer(good.url, 200, good.headers, good.data[:half]))
    with pytest.raises(BadAnswer, match="records up to 2 were announced"):
        client.read("s", 0, 0)


@pytest.mark.parametrize("text", ["", " , ", "ftp://a", "http://"])
def test_addresses_that_cannot_be(text: str) -> None:
    with pytest.raises(ValueError, match="address"):
        split_urls(text)


def test_addresses() -> None:
    assert split_urls("localhost:80, https://b/ ,http://c:1") == ["http://localhost:80", "https://b", "http://c:1"]


def test_who_has_copies_is_asked_of_every_node_and_the_dead_are_left_out(node: StreamNode) -> None:
    with StreamNode(node.shelf, source=NoneLeads(1)) as other, StreamNode(node.shelf) as dead:
        dead.stop()
        client = StreamClient([node.url, dead.url, other.url], patience_s=1)
        assert client.copies("s") == {key: [node.url] for key in range(node.shelf.configs[0].partitions)}
        assert client.copies("no-such-stream") == {}
        client.close()


def test_records_that_are_known_are_asked_for_at_every_node(node: StreamNode) -> None:
    node.publish("s/a", [b"%d" % number for number in range(6)])
    with StreamNode(Shelf(StreamConfig("s", b"s/#", 1, retention_us=60 * SECOND))) as smaller:
        smaller.publish("s/a", [b"0", b"1"])
        client = StreamClient(f"{smaller.url},{node.url}", patience_s=0)
        for start in (2, 4):  # its end, and beyond
            client.nodes.prefer(smaller.url)
            assert client.read_known("s", 0, start, 6).next_offset == 6
            assert client.nodes.current == node.url, "it is the one to ask from now on"
        client.nodes.prefer(smaller.url)
        assert client.describe_known("s", {0: 6}).ranges[0].next == 6
        with pytest.raises(OffsetAhead, match="partition 0: it was read up to 7, and now it ends at"):
            client.describe_known("s", {0: 7})
        node.run(expire)
        client.nodes.prefer(node.url)
        with pytest.raises(OffsetGone):
            client.read_known("s", 0, 2, 6)
        client.close()


def expire(shelf: Shelf) -> None:
    shelf.now += 100 * SECOND
    shelf.trim()
