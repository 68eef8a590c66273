"""The HTTP routes of streams in a cluster: every node answers for all stream partitions, whoever leads them."""

from __future__ import annotations

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp

from folkmoot.admin.source import NodeSource, answered
from folkmoot.admin.streams import stream_routes
from folkmoot.admin.wait import StreamWaits
from folkmoot.kernel.clock import SECOND
from folkmoot.store.batch import Batch
from folkmoot.store.chunk import decode_chunk, decode_head
from folkmoot.streams.config import StreamConfig
from tests.harness.asgi import ask
from tests.harness.peer import Peer
from tests.harness.simulated_cluster import SimulatedCluster, Site

WIDE = StreamConfig("wide", b"w/#", 6)
BRIEF = StreamConfig("brief", b"b/#", 6, retention_us=5 * SECOND)
TOPICS = 24


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(3, replicas=2, streams=[WIDE, BRIEF])


def publisher(cluster: SimulatedCluster) -> Peer:
    peer = cluster["n1"].client("filler")
    peer.connect()
    return peer


def fill(peer: Peer, count: int, topic: str = "w", size: int = 0) -> None:
    for number in range(count):
        peer.publish(f"{topic}/{number % TOPICS}", b"%d" % number + bytes(size), qos=1)


class Runs:
    """What the event loop does for a site: turns, the ends of calls, and waking those who wait for records."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.waits = StreamWaits(site.node.streams, lambda log: site.node.stream_end(log, self.begin()))

    def begin(self) -> int:
        asyncio.get_running_loop().call_soon(self.end)
        return self.site.cluster.now

    def end(self) -> None:
        self.site.run()
        calls, self.site.calls = self.site.calls, []
        for call in calls:
            answered(call)
        if self.site.grown:
            self.site.grown = False
            self.waits.check()

    def app(self) -> ASGIApp:
        source = NodeSource(self.site.node, self.begin)
        return Starlette(routes=stream_routes(lambda: self.site.node.streams, self.waits.wait, None, source))


def app(site: Site) -> ASGIApp:
    return Runs(site).app()


def payloads(site: Site, stream: str, index: int, start: int, end: int) -> list[bytes]:
    """Read records page by page."""
    found: list[bytes] = []
    at = start
    while at < end:
        answer = ask(app(site), f"/api/v1/streams/{stream}/partitions/{index}/records", {"from": at, "to": end})
        assert answer.status == 200, answer.json()
        position = 0
        for_at = at
        while position < len(answer.content):
            head = decode_head(answer.content, position)
            assert head is not None
            for entry in decode_chunk(answer.content, position):
                if entry.offset == for_at:
                    found.append(entry.record.payload)
                    for_at += 1
            position += head.length
        assert for_at == int(answer.headers["folkmoot-next-offset"])
        assert for_at > at
        at = for_at
    return found


def test_all_nodes_tell_and_give_the_same(cluster: SimulatedCluster) -> None:
    fill(publisher(cluster), 200)
    told = [ask(app(site), "/api/v1/streams").json() for site in cluster.live()]
    assert told[0] == told[1] == told[2]
    ranges = told[0]["streams"][0]["ranges"]
    assert sum(part["next"] for part in ranges) == 200
    assert {part["oldest_time_us"] for part in ranges if part["next"]} == {cluster.now}
    assert ask(app(cluster["n2"]), "/api/v1/streams/wide").json() == told[0]["streams"][0]
    for part in ranges:
        records = [payloads(site, "wide", part["partition"], 0, part["next"]) for site in cluster.live()]
        assert records[0] == records[1] == records[2]
        assert len(records[0]) == part["next"]


def copies_of(site: Site) -> list[int]:
    found: list[int] = ask(app(site), "/api/v1/streams/wide/copies").json()["partitions"]
    return found


def test_every_stream_partition_has_as_many_copies_as_all_else(cluster: SimulatedCluster) -> None:
    told = {site.name: copies_of(site) for site in cluster.live()}
    assert sorted(index for found in told.values() for index in found) == sorted([*range(6), *range(6)])


def test_a_copy_is_read_without_its_leader_once_that_has_told_how_far(cluster: SimulatedCluster) -> None:
    peer = publisher(cluster)
    fill(peer, 60)
    ends = ends_of(cluster["n1"])
    for site in cluster.live():
        pages = app(site)
        for index in copies_of(site):
            log = site.node.streams.streams[0].logs[index]
            if site.node.leads_stream(log) or not ends[index]:
                continue
            path = f"/api/v1/streams/wide/partitions/{index}/records"
            first = ask(pages, path, {"from": 0, "to": ends[index]})
            fabric = site.node.copies.fabric
            fabric.open[log.store_partition] = False  # nobody can be asked any more
            again = ask(pages, path, {"from": 0, "to": ends[index]})
            assert (again.status, again.content) == (200, first.content)
            beyond = ask(pages, path, {"from": 0, "to": ends[index] + 1})
            assert beyond.status == 503, "only the leader knows whether there is more"
            fabric.epoch += 1
            assert ask(pages, path, {"from": 0, "to": ends[index]}).status == 503, "bounds are those of a view"
            fabric.epoch -= 1
            fabric.open[log.store_partition] = True


def test_what_a_copy_lacks_its_leader_has(cluster: SimulatedCluster) -> None:
    fill(publisher(cluster), 60)
    ends = ends_of(cluster["n1"])
    site = cluster["n2"]
    held = [index for index in copies_of(site) if not site.node.leads_stream(site.node.streams.streams[0].logs[index])]
    index = min([index for index in held if ends[index]], key=lambda index: ends[index])
    path, limits = f"/api/v1/streams/wide/partitions/{index}/records", {"from": 0, "to": ends[index]}
    whole = ask(app(site), path, limits).content
    log = site.node.streams.streams[0].logs[index]
    rows = site.store.scan(b"", b"\xff" * 9, 100_000)
    (key, value) = next((key, value) for key, value in rows if value.endswith(whole))
    batch = Batch(0)
    batch.put(key, value[:-1] + bytes([value[-1] ^ 1]))
    site.alter(batch)
    assert site.node.copies.read(log, 0, ends[index], 1 << 20) is None
    assert ask(app(site), path, limits).content == whole


def test_pages_of_others_are_bounded_and_go_on(cluster: SimulatedCluster) -> None:
    fill(publisher(cluster), 48, size=200_000)
    for site in cluster.live():
        ranges = ask(app(site), "/api/v1/streams/wide").json()["ranges"]
        assert sum(len(payloads(site, "wide", part["partition"], 0, part["next"])) for part in ranges) == 48


def test_offsets_by_time_are_found_at_the_leaders(cluster: SimulatedCluster) -> None:
    peer = publisher(cluster)
    fill(peer, TOPICS)
    before = ask(app(cluster["n1"]), "/api/v1/streams/wide").json()["ranges"]
    cluster.advance(10 * SECOND)
    fill(peer, TOPICS)
    for site in cluster.live():
        found = ask(app(site), "/api/v1/streams/wide/offsets", {"time_us": cluster.now - SECOND}).json()["offsets"]
        assert found == {str(part["partition"]): part["next"] for part in before}


def test_gone_and_ahead_name_the_bound_of_the_leader(cluster: SimulatedCluster) -> None:
    peer = publisher(cluster)
    fill(peer, TOPICS, "b")
    cluster.advance(25 * SECOND)
    ranges = ask(app(cluster["n1"]), "/api/v1/streams/brief").json()["ranges"]
    for site in cluster.live():
        for part in ranges:
            path = f"/api/v1/streams/brief/partitions/{part['partition']}/records"
            ahead = ask(app(site), path, {"from": part["next"] + 1})
            assert (ahead.status, ahead.json()["next"]) == (416, part["next"])
            if part["oldest"] > 0:
                gone = ask(app(site), path, {"from": 0})
                assert (gone.status, gone.json()["oldest"]) == (410, part["oldest"])
    assert any(part["oldest"] > 0 for part in ranges)


def test_who_waits_at_the_end_of_a_partition_led_elsewhere_is_woken(cluster: SimulatedCluster) -> None:
    peer = publisher(cluster)
    fill(peer, TOPICS)
    ends = ends_of(cluster["n1"])

    async def wait(site: Site, index: int) -> None:
        runs = Runs(site)
        waiting = asyncio.create_task(runs.waits.wait("wide", index, ends[index], 5.0))
        for _ in range(5):
            await asyncio.wait({waiting}, timeout=0)
        assert not waiting.done(), "there is nothing to read yet"
        fill(peer, TOPICS)
        runs.end()
        runs.waits.check()  # as when rows of this node have become durable
        for _ in range(5):
            await asyncio.wait({waiting}, timeout=0)
        assert waiting.done()

    for site in cluster.live():
        for index in ends:
            asyncio.run(wait(site, index))
            ends = ends_of(site)


def ends_of(site: Site) -> dict[int, int]:
    return {part["partition"]: part["next"] for part in ask(app(site), "/api/v1/streams/wide").json()["ranges"]}


def test_without_an_open_leader_it_says_so_and_when_to_ask_again(cluster: SimulatedCluster) -> None:
    fill(publisher(cluster), TOPICS)
    site = cluster["n1"]
    cluster_node = site.node.cluster_node
    assert cluster_node is not None
    log = next(log for log in site.node.streams.streams[0].logs if not site.node.leads_stream(log))
    cluster_node.fabric.open[log.store_partition] = False  # as between the view and the word of the new leader
    for path in ("", "/offsets?time_us=0", f"/partitions/{log.index}/records?from=0"):
        answer = ask(app(site), "/api/v1/streams/wide" + path)
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert "has no leader" in answer.json()["error"]
    cluster_node.fabric.open[log.store_partition] = True
    assert ask(app(site), "/api/v1/streams/wide").status == 200


def test_a_dead_leader_is_replaced_and_nothing_is_missing(cluster: SimulatedCluster) -> None:
    fill(publisher(cluster), 60)
    before = ask(app(cluster["n1"]), "/api/v1/streams/wide").json()["ranges"]
    cluster["n2"].kill()
    cluster.settle()
    for site in cluster.live():
        after = ask(app(site), "/api/v1/streams/wide").json()["ranges"]
        assert [part["next"] for part in after] == [part["next"] for part in before]
        assert sum(len(payloads(site, "wide", part["partition"], 0, part["next"])) for part in after) == 60


def test_an_answer_that_a_dying_leader_owes_is_not_waited_for(cluster: SimulatedCluster) -> None:
    fill(publisher(cluster), TOPICS)
    site = cluster["n1"]
    log = next(log for log in site.node.streams.streams[0].logs if cluster["n2"].node.leads_stream(log))
    cluster.cut("n2", "n1", "n3")
    call = site.node.ask_stream("mine", log, 3, [log.index], cluster.now)
    cluster.advance(10 * SECOND)
    assert [(ended.handle, ended.answer) for ended in site.calls] == [("mine", None)]
    assert site.calls == [call]
