"""The source, called as Spark calls it, against a served shelf: no JVM."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from folkmoot.client.problem import NoSuchStream, NotAuthorised, Unreachable
from folkmoot.client.streams import ChunkPage, StreamClient
from folkmoot.streams.config import StreamConfig
from pyspark_folkmoot.option import OptionError
from pyspark_folkmoot.plan import Plan
from pyspark_folkmoot.source import BatchReader, DataLost, FolkmootStreams, NotThere, StreamReader
from tests.harness.streamnode import START_US, Shelf, StreamNode

SECOND = 1_000_000
ALL = ReadAllAvailable()


@pytest.fixture
def node() -> Iterator[StreamNode]:
    with StreamNode(Shelf(StreamConfig("s", b"s/#", 3, retention_us=60 * SECOND))) as node:
        for number in range(30):
            node.publish(f"s/{number}", [b"%d.%d" % (number, i) for i in range(4)])
        yield node


def source(node: StreamNode, **options: str) -> FolkmootStreams:
    return FolkmootStreams({"url": node.url, "stream": "s", "patienceSeconds": "5", **options})


def batch_reader(node: StreamNode, **options: str) -> BatchReader:
    found = source(node, **options)
    reader = found.reader(found.schema())
    assert isinstance(reader, BatchReader)
    return reader


def read(reader: BatchReader | StreamReader, tasks: Any) -> list[dict[str, Any]]:
    """Read the tasks as executors do: from pickles."""
    rows: list[dict[str, Any]] = []
    for task in tasks:
        copy = pickle.loads(pickle.dumps(reader))
        for batch in copy.read(pickle.loads(pickle.dumps(task))):
            rows.extend(batch.to_pylist())
        copy.plan.close()
    return rows


class Query:
    """A streaming query as Spark runs it: a log of offsets outlives the reader, offsets travel as JSON."""

    def __init__(self, node: StreamNode, **options: str) -> None:
        self.node = node
        self.options = options
        self.log: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        self.restart()

    def restart(self) -> None:
        found = source(self.node, **self.options)
        reader = found.streamReader(found.schema())
        assert isinstance(reader, StreamReader)
        self.reader = reader
        self.initial = json.loads(json.dumps(reader.initialOffset()))

    def plan(self) -> bool:
        """Plan the next batch and log it; False when there is nothing new."""
        start = self.log[-1] if self.log else self.initial
        end = self.reader.latestOffset(json.loads(json.dumps(start)), self.reader.getDefaultReadLimit())
        if json.dumps(end) == json.dumps(start):
            return False
        self.log.append(json.loads(json.dumps(end)))
        return True

    def tasks(self, batch: int) -> list[InputPartition]:
        return list(self.reader.partitions(self.log[batch - 1] if batch else self.initial, self.log[batch]))

    def run(self) -> None:
        """Plan and read until there is nothing new."""
        while self.plan():
            self.rows += read(self.reader, self.tasks(len(self.log) - 1))


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in rows)


def ends(node: StreamNode) -> list[int]:
    return [log.readable_end for log in node.shelf.streams.streams[0].logs]


def test_a_batch_has_every_record_once(node: StreamNode) -> None:
    reader = batch_reader(node)
    tasks = reader.partitions()
    rows = read(reader, tasks)
    assert len(tasks) == 1, "they are few"
    assert places(rows) == [(partition, offset) for partition, end in enumerate(ends(node)) for offset in range(end)]
    assert sorted(row["payload"] for row in rows) == sorted(b"%d.%d" % (n, i) for n in range(30) for i in range(4))
    assert {row["timestamp"].timestamp() for row in rows} == {START_US / 1e6}


def test_long_ranges_are_split(node: StreamNode) -> None:
    reader = batch_reader(node, minPartitions="10")
    tasks = reader.partitions()
    assert len(tasks) >= 10
    assert places(read(reader, tasks)) == places(read(reader, batch_reader(node).partitions()))


def test_selection(node: StreamNode) -> None:
    reader = batch_reader(node, topicPrefix="s/2", columns="payload,offset")
    rows = read(reader, reader.partitions())
    assert list(rows[0]) == ["offset", "payload"]
    assert {row["payload"].split(b".")[0] for row in rows} == {b"2", *[b"%d" % n for n in range(20, 30)]}
    reader = batch_reader(node, partitions="0,2")
    assert {row["partition"] for row in read(reader, reader.partitions())} == {0, 2}


def test_a_range_of_offsets(node: StreamNode) -> None:
    reader = batch_reader(node, startingOffsets='{"0":3,"1":0,"2":5}', endingOffsets='{"0":4,"1":0,"2":7}')
    assert places(read(reader, reader.partitions())) == [(0, 3), (2, 5), (2, 6)]


def test_tasks_begin_with_different_nodes(node: StreamNode) -> None:
    with StreamNode(node.shelf) as other:
        urls = [node.url, other.url]
        for partition in range(3):
            plan = pickle.loads(pickle.dumps(Plan({"url": ",".join(urls), "stream": "s"})))
            client = plan.client(partition)
            assert client.nodes.current == urls[partition % 2]
            client.read("s", partition, 0, 1)
            assert client.nodes.current == urls[partition % 2]
            plan.close()


def test_a_query_with_an_end_stops_there(node: StreamNode) -> None:
    def later(shelf: Shelf) -> None:
        shelf.now += 10 * SECOND
        shelf.publish("s/x", b"too late")

    node.run(later)
    query = Query(node, startingOffsets="earliest", endingTimestamp="2023-11-14T22:13:25Z")
    query.run()
    assert len(query.rows) == 120
    assert b"too late" not in {row["payload"] for row in query.rows}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"startingOffsets": '{"0":3}'}, "must have exactly"),
        ({"endingOffsets": '{"0":1,"1":1,"2":100000}'}, "ends at"),
        ({"partitions": "3"}, "has partitions 0 to 2"),
    ],
)
def test_offsets_that_the_stream_does_not_have(node: StreamNode, options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        batch_reader(node, **options).partitions()


def test_options_of_the_other_kind_of_read(node: StreamNode) -> None:
    with pytest.raises(OptionError, match=r"'maxRecordsPerTrigger'.*batch read"):
        batch_reader(node, maxRecordsPerTrigger="5")
    with pytest.raises(OptionError, match=r"'endingOffsets'.*readStream"):
        Query(node, endingOffsets="latest")


def test_a_query_that_ends_at_given_offsets(node: StreamNode) -> None:
    first = dict(enumerate(ends(node)))
    for number in range(30):
        node.publish(f"s/{number}", [b"later"])
    assert all(end > first[partition] for partition, end in enumerate(ends(node)))
    query = Query(node, startingOffsets="earliest", endingOffsets=json.dumps(first), maxRecordsPerTrigger="50")
    for _ in range(2):
        query.reader.prepareForTriggerAvailableNow()
        query.run()
        assert places(query.rows) == [(partition, offset) for partition in first for offset in range(first[partition])]
        query.restart()


def test_a_range_of_times(node: StreamNode) -> None:
    def later(shelf: Shelf) -> None:
        shelf.now += 10 * SECOND
        shelf.publish("s/x", b"later")
        shelf.now += 10 * SECOND
        shelf.publish("s/x", b"too late")

    node.run(later)
    reader = batch_reader(node, startingTimestamp="2023-11-14T22:13:25Z", endingTimestamp="2023-11-14T22:13:35Z")
    assert [row["payload"] for row in read(reader, reader.partitions())] == [b"later"]


def test_a_query_takes_everything_once_and_what_comes(node: StreamNode) -> None:
    query = Query(node, startingOffsets="earliest", maxRecordsPerTrigger="50")
    query.run()
    assert len(query.log) == 3
    node.publish("s/new", [b"new"])
    query.reader.plan._ranges_at = 0.0  # half a tenth of a second has passed
    query.run()
    assert len(query.log) == 4
    assert places(query.rows) == [
        (partition, offset) for partition, end in enumerate(ends(node)) for offset in range(end)
    ]


def test_a_limit_is_kept(node: StreamNode) -> None:
    query = Query(node, startingOffsets="earliest", maxRecordsPerTrigger="50")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(50)
    query.plan()
    assert len(read(query.reader, query.tasks(0))) == 50
    assert Query(node).reader.getDefaultReadLimit() == ALL


@pytest.mark.parametrize("starting", [{"startingOffsets": "latest"}, {}, {"startingTimestamp": "2023-11-14T22:13:21Z"}])
def test_the_first_batch_stays_what_it_was_when_the_driver_dies(node: StreamNode, starting: dict[str, str]) -> None:
    query = Query(node, **starting)
    assert query.plan()
    assert read(query.reader, query.tasks(0)) == []

    def later(shelf: Shelf) -> None:
        shelf.now += 2 * SECOND
        shelf.publish("s/a", b"1", b"2", b"3")

    node.run(later)
    query.restart()  # killed after batch 0 was logged and before it ran
    query.rows += read(query.reader, query.tasks(0))
    query.run()
    assert [row["payload"] for row in query.rows] == [b"1", b"2", b"3"]


def test_the_first_batch_of_earliest_is_the_same_after_retention_moved_on(node: StreamNode) -> None:
    query = Query(node, startingOffsets="earliest")
    query.plan()
    wanted = places(read(query.reader, query.tasks(0)))
    assert len(wanted) == 120
    expire(node)
    query.restart()
    with pytest.raises(DataLost, match="partition 0: offsets 0 to"):
        read(query.reader, query.tasks(0))


def expire(node: StreamNode) -> None:
    def later(shelf: Shelf) -> None:
        shelf.now += 100 * SECOND
        shelf.trim()
        shelf.publish("s/1", b"fresh")

    node.run(later)


def test_a_reader_that_retention_overtook_fails_or_goes_on_as_asked(node: StreamNode) -> None:
    for fail in ("true", "false"):
        query = Query(node, startingOffsets='{"0":1,"1":1,"2":1}', failOnDataLoss=fail)
        expire(node)
        query.reader.plan._ranges_at = 0.0
        if fail == "true":
            with pytest.raises(DataLost, match=r"partition 0: offsets 1 to .* are gone by retention.*failOnDataLoss"):
                query.run()
        else:
            query.run()
            assert {row["payload"] for row in query.rows} == {b"fresh"}


def test_a_task_that_retention_overtook_goes_on_when_asked(node: StreamNode) -> None:
    reader = batch_reader(node, failOnDataLoss="false")
    tasks = reader.partitions()
    expire(node)
    assert read(reader, tasks) == []
    with pytest.raises(DataLost):
        read(batch_reader(node), tasks)


def test_a_batch_that_asks_for_what_is_gone_fails(node: StreamNode) -> None:
    expire(node)
    with pytest.raises(DataLost, match="records before offset"):
        batch_reader(node, startingOffsets='{"0":0,"1":0,"2":0}').partitions()


def test_available_now_ends_at_what_was_there(node: StreamNode) -> None:
    query = Query(node, startingOffsets="earliest", maxRecordsPerTrigger="50")
    query.reader.prepareForTriggerAvailableNow()
    node.publish("s/a", [b"too late"])
    query.run()
    assert len(query.rows) == 120
    assert b"too late" not in {row["payload"] for row in query.rows}
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    query.run()
    assert query.rows[-1]["payload"] == b"too late"


def test_a_log_that_went_back_is_said(node: StreamNode) -> None:
    query = Query(node, startingOffsets="earliest")
    query.run()

    def forget(shelf: Shelf) -> None:
        shelf.store = Shelf().store
        shelf.reopen()
        shelf.publish("s/1", b"again")

    node.run(forget)
    query.options["patienceSeconds"] = "0"
    for fail in ("true", "false"):
        query.options["failOnDataLoss"] = fail
        query.restart()
        with pytest.raises(
            NotThere, match=r"stream s partition 0: it was read up to .* now it ends at 0 at every node"
        ):
            query.plan()


@pytest.fixture
def smaller() -> Iterator[StreamNode]:
    """The smaller side of a split: it has the first messages alone."""
    with StreamNode(Shelf(StreamConfig("s", b"s/#", 3, retention_us=60 * SECOND))) as smaller:
        for number in range(3):
            smaller.publish(f"s/{number}", [b"%d.%d" % (number, i) for i in range(4)])
        yield smaller


def test_offsets_that_one_side_of_a_split_lacks_are_read_at_the_other(node: StreamNode, smaller: StreamNode) -> None:
    tasks = batch_reader(node).partitions()
    reader = batch_reader(smaller, url=f"{smaller.url},{node.url}", failOnDataLoss="false")
    assert len(read(reader, tasks)) == 120


def test_offsets_that_no_node_has_are_never_skipped(node: StreamNode, smaller: StreamNode) -> None:
    tasks = batch_reader(node).partitions()
    alone = batch_reader(smaller, url=f"{smaller.url},{smaller.url}", failOnDataLoss="false", patienceSeconds="0")
    with pytest.raises(NotThere, match=r"offsets \d+ to \d+ were there, it ends at \d+ at every node") as caught:
        read(alone, tasks)
    assert "failOnDataLoss" not in str(caught.value)


def test_a_query_goes_on_at_the_side_that_has_what_it_has_read(node: StreamNode, smaller: StreamNode) -> None:
    query = Query(node, startingOffsets="earliest", failOnDataLoss="false")
    query.run()
    query.options["url"] = f"{smaller.url},{node.url}"
    query.restart()
    assert not query.plan()
    node.publish("s/new", [b"new"])
    query.reader.plan._ranges_at = 0.0
    query.run()
    assert len(query.rows) == 121
    query.options.update(url=smaller.url, patienceSeconds="0")
    query.restart()
    with pytest.raises(NotThere):
        query.plan()


def test_an_end_in_the_future_waits_for_its_time(node: StreamNode) -> None:
    query = Query(node, startingOffsets="earliest", endingTimestamp="2023-11-14T22:13:25Z")
    query.run()
    assert len(query.rows) == 120

    def later(seconds: int, payload: bytes) -> None:
        def publish(shelf: Shelf) -> None:
            shelf.now += seconds * SECOND
            shelf.publish("s/x", payload)

        node.run(publish)
        query.reader.plan._ranges_at = 0.0
        query.run()

    later(3, b"in time")
    assert query.rows[-1]["payload"] == b"in time"
    later(3, b"too late")
    later(3, b"later still")
    assert len(query.rows) == 121


def test_more_partitions_are_read_from_their_beginning(node: StreamNode) -> None:
    query = Query(node, startingOffsets="earliest")
    query.run()

    def grow(shelf: Shelf) -> None:
        shelf.configs[0].partitions = 5
        shelf.reopen()
        for number in range(20):
            shelf.publish(f"s/{number}", b"more")

    node.run(grow)
    query.restart()
    query.run()
    assert places(query.rows) == [
        (partition, offset) for partition, end in enumerate(ends(node)) for offset in range(end)
    ]
    assert len(ends(node)) == 5


def test_an_idle_query_does_not_ask_the_node_all_the_time(node: StreamNode) -> None:
    query = Query(node, startingOffsets="earliest", patienceSeconds="0")
    query.run()
    node.stop()
    query.reader.plan._ranges_at = float("inf")  # asked this very moment
    assert not query.plan()
    query.reader.plan._ranges_at = 0.0
    with pytest.raises(Unreachable):
        query.plan()
    node.start()


def test_a_node_that_restarts_is_ridden_out_and_one_that_stays_away_is_named(node: StreamNode) -> None:
    reader = batch_reader(node, patienceSeconds="0")
    node.stop()
    with pytest.raises(Unreachable, match=node.url):
        reader.partitions()
    node.start()
    assert len(read(reader, reader.partitions())) == 120


def test_lag_is_reported(node: StreamNode) -> None:
    query = Query(node, startingOffsets="latest")
    assert query.reader.reportLatestOffset() == {str(n): end for n, end in enumerate(ends(node))}


def test_streams_and_tokens_that_are_wrong(node: StreamNode) -> None:
    with pytest.raises(NoSuchStream, match="'none'"):
        batch_reader(node, stream="none").partitions()
    with StreamNode(Shelf(StreamConfig("s", b"#", 1)), token="right") as closed:
        with pytest.raises(NotAuthorised):
            batch_reader(closed, token="wrong").partitions()
        assert batch_reader(closed, token="right").partitions() == []


def test_a_task_asks_a_node_that_has_what_it_reads(node: StreamNode, monkeypatch: pytest.MonkeyPatch) -> None:
    with StreamNode(node.shelf) as other:
        asked: list[str] = []
        read_page = StreamClient.read

        def noted(client: StreamClient, *arguments: Any, **named: Any) -> ChunkPage:
            asked.append(client.nodes.current)
            return read_page(client, *arguments, **named)

        monkeypatch.setattr(StreamClient, "read", noted)
        monkeypatch.setattr(StreamClient, "copies", lambda _client, _name: {key: [other.url] for key in range(3)})
        reader = batch_reader(node, url=f"{node.url},{other.url}")
        assert len(read(reader, reader.partitions())) == 120
        assert set(asked) == {other.url}
        asked.clear()
        tasks = reader.partitions()
        other.stop()
        assert len(read(reader, tasks)) == 120, "another one is asked when it is gone"
        reader.plan.close()
