"""The sink `folkmoot`, task by task as Spark runs it, against a real node and without a JVM."""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from folkmoot.client.entry import properties_of
from folkmoot.client.problem import BadQuestion, NotPossible
from folkmoot.client.streams import StreamClient
from folkmoot.client.transactions import CHUNK_BYTES, CHUNK_MESSAGES, TransactionClient
from folkmoot.partition.staged import CHUNK_BYTES_MAX, CHUNK_MESSAGES_MAX
from folkmoot.store.record import Record
from pyspark_folkmoot.option import OptionError
from pyspark_folkmoot.outgoing import ColumnError, Encoder, check_columns
from pyspark_folkmoot.sink import BatchSink, SinkPlan, Staged, commit, drop, sink_plan, stage
from pyspark_folkmoot.source import FolkmootStreams
from tests.integration.serving import Serving

KINDS: dict[str, DataType] = {
    "topic": StringType(),
    "payload": BinaryType(),
    "qos": IntegerType(),
    "retain": BooleanType(),
    "content_type": StringType(),
    "user_properties": MapType(StringType(), StringType()),
    "response_topic": StringType(),
    "correlation_data": BinaryType(),
    "message_expiry": LongType(),
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    data = tmp_path_factory.mktemp("sink") / "data"
    arguments = ["--mqtt", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--stream", "s=t/#"]
    with Serving(data, *arguments).start() as serving:
        yield serving


def schema_of(*names: str) -> StructType:
    return StructType([StructField(name, KINDS[name]) for name in names])


def batch_of(**columns: list[Any]) -> pa.RecordBatch:
    kinds = {"user_properties": pa.map_(pa.string(), pa.string()), "payload": pa.binary(), "qos": pa.int32()}
    arrays = [pa.array(values, kinds.get(name)) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


class Query:
    """One app; `staged` is what came from tasks, through a pickle as Spark passes it on."""

    count = 0

    def __init__(self, node: Serving, **options: str) -> None:
        Query.count += 1
        self.app = f"query{Query.count}"
        self.topic = f"t/{self.app}"
        self.url = f"http://127.0.0.1:{node.port('admin')}"
        self.plan = SinkPlan({"url": self.url, **options})

    def rows(self, *payloads: bytes) -> pa.RecordBatch:
        return batch_of(topic=[self.topic] * len(payloads), payload=list(payloads))

    def task(self, number: int, task: int, *batches: pa.RecordBatch) -> Staged:
        names = batches[0].schema.names if batches else ["topic", "payload"]
        staged = stage(pickle.loads(pickle.dumps(self.plan)), self.app, number, task, schema_of(*names), batches)
        copy: Staged = pickle.loads(pickle.dumps(staged))
        return copy

    def commit(self, *staged: Staged) -> None:
        commit(pickle.loads(pickle.dumps(self.plan)), list(staged))

    def published(self, count: int) -> list[Record]:
        """What the stream has on the topic of this query, when it is at least `count`, and a little later."""
        client = StreamClient(self.url, patience_s=5)
        until = time.monotonic() + 20
        while True:
            found = [
                entry.record
                for part in client.describe("s").ranges
                for entry in client.entries("s", part.partition, 0)
                if entry.record.topic.startswith(self.topic.encode())
            ]
            if len(found) >= count or time.monotonic() > until:
                client.close()
                return found
            time.sleep(0.02)

    def payloads(self, count: int) -> list[bytes]:
        return [record.payload for record in self.published(count)]

    def figures(self) -> dict[str, Any]:
        client = TransactionClient(self.url, patience_s=5)
        try:
            return client.describe(self.app)
        finally:
            client.close()


def test_the_winners_are_published_in_the_order_of_the_tasks(node: Serving) -> None:
    query = Query(node)
    late, loser = query.task(0, 1, query.rows(b"3", b"4")), query.task(0, 0, query.rows(b"never"))
    winner = query.task(0, 0, query.rows(b"1"), query.rows(b"2"))
    assert loser.part != winner.part
    query.commit(winner, query.task(0, 2), late)
    assert query.payloads(4) == [b"1", b"2", b"3", b"4"]
    assert query.figures()["staged_bytes"] == 0  # the loser is gone


def test_a_batch_that_is_repeated_publishes_nothing(node: Serving) -> None:
    query = Query(node)
    query.commit(query.task(0, 0, query.rows(b"1")))
    query.commit(query.task(0, 0, query.rows(b"1")))  # a new driver, which knows nothing of the first
    query.commit(query.task(1, 0, query.rows(b"2")))
    assert query.payloads(2) == [b"1", b"2"]


def test_abort_drops_what_is_not_committed_and_nothing_else(node: Serving) -> None:
    query = Query(node)
    first, second = query.task(0, 0, query.rows(b"1")), query.task(1, 0, query.rows(b"2"))
    query.commit(first)
    drop(query.plan, [first, second])
    with pytest.raises(NotPossible, match=f"lacks {second.part}/0"):
        query.commit(second)
    query.commit(query.task(1, 0, query.rows(b"2")))
    assert query.payloads(2) == [b"1", b"2"]


def test_an_empty_batch_is_none(node: Serving) -> None:
    query = Query(node)
    query.commit(query.task(0, 0), query.task(0, 1))
    query.commit()
    assert query.payloads(0) == []


def test_every_column_reaches_the_message(node: Serving) -> None:
    query = Query(node, qos="2")
    batch = batch_of(
        topic=[f"{query.topic}/{n}" for n in range(2)],
        payload=[b"a", b"b"],
        qos=[0, None],
        retain=[True, None],
        content_type=["text/plain", None],
        user_properties=[[("k", "v"), ("ö", "ü")], None],
        response_topic=["answer", None],
        correlation_data=[b"\x00\xff", None],
        message_expiry=[60, None],
    )
    query.commit(query.task(0, 0, batch))
    first, second = sorted(query.published(2), key=lambda record: record.topic)
    assert (first.payload, first.qos, first.retain) == (b"a", 0, True)
    assert (second.payload, second.qos, second.retain) == (b"b", 2, False)
    assert first.publisher.decode() == f"$transaction/{query.app}"
    properties = properties_of(first.properties)
    assert properties.content_type == "text/plain"
    assert properties.user_properties == [("k", "v"), ("ö", "ü")]
    assert properties.response_topic == b"answer"
    assert properties.correlation_data == b"\x00\xff"


def test_many_rows_become_many_chunks(node: Serving) -> None:
    query = Query(node)
    staged = query.task(0, 0, *[query.rows(*[b"%d" % n for n in range(k, k + 100)]) for k in range(0, 1000, 100)])
    assert staged.chunks == -(-1000 // CHUNK_MESSAGES)
    query.commit(staged)
    assert query.payloads(1000) == [b"%d" % n for n in range(1000)]
    large = Query(node)
    staged = large.task(0, 0, large.rows(*[bytes(50_000)] * 5, bytes(900_000)))
    assert staged.chunks == 4
    large.commit(staged)
    assert [len(payload) for payload in large.payloads(6)] == [50_000] * 5 + [900_000]


def test_the_client_cuts_chunks_as_the_node_takes_them() -> None:
    assert (CHUNK_BYTES, CHUNK_MESSAGES) == (CHUNK_BYTES_MAX, CHUNK_MESSAGES_MAX)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"topic": [None], "payload": [b""]}, "column 'topic' is null"),
        ({"topic": ["t/x"], "payload": [None]}, "column 'payload' is null: .* (topic 't/x')"),
        ({"topic": ["t/x"], "payload": [b""], "qos": [3]}, "column 'qos' is 3: .* (topic 't/x')"),
        ({"topic": ["t/x"], "payload": [b""], "message_expiry": [-1]}, "column 'message_expiry' is -1: "),
        ({"topic": ["t/x"], "payload": [b""], "user_properties": [[("k", None)]]}, "no value for 'k' (topic 't/x')"),
        ({"topic": ["$SYS/x"], "payload": [b""]}, "column 'topic' is '$SYS/x', which begins with $"),
        ({"topic": ["a/#"], "payload": [b""]}, "column 'topic' is 'a/#', which contains a wildcard"),
        ({"topic": [""], "payload": [b""]}, "column 'topic' is empty"),
        ({"topic": ["a\0b"], "payload": [b""]}, r"column 'topic' is 'a\x00b', which contains U+0000"),
        (
            {"topic": ["t/" + "x" * 70_000], "payload": [b""]},
            f"column 'topic' is 't/{'x' * 78}...', which has 70,002 bytes: at most 65,535",
        ),
        (
            {"topic": ["t/x"], "payload": [b""], "content_type": ["x" * 70_000]},
            f"column 'content_type' is '{'x' * 80}...', which has 70,000 bytes: at most 65,535 (topic 't/x')",
        ),
        (
            {"topic": ["t/x"], "payload": [b""], "response_topic": ["a/+"]},
            "column 'response_topic' is 'a/+', which contains a wildcard, + or # (topic 't/x')",
        ),
        ({"topic": ["t/x"], "payload": [b""], "response_topic": [""]}, "column 'response_topic' is empty"),
        (
            {"topic": ["t/x"], "payload": [b""], "correlation_data": [b"x" * 70_000]},
            "column 'correlation_data' has 70,000 bytes: at most 65,535 (topic 't/x')",
        ),
        (
            {"topic": ["t/x"], "payload": [b""], "user_properties": [[("k", "a\0b")]]},
            r"column 'user_properties' is 'a\x00b', which contains U+0000 (topic 't/x')",
        ),
    ],
)
def test_a_row_that_is_no_message_is_named(columns: dict[str, list[Any]], why: str) -> None:
    encoder = Encoder(list(columns), 1, False)
    good = batch_of(topic=["t/x"], payload=[b""])
    assert len(list(Encoder(["topic", "payload"], 1, False).packets(good))) == 1
    encoder.rows = 7
    with pytest.raises(ColumnError) as refused:
        list(encoder.packets(batch_of(**columns)))
    text = str(refused.value)
    assert text.startswith("row 7 of the task: ")
    assert re.search(".*".join(map(re.escape, why.split(".*"))), text), text


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"payload": [b"", bytes(1_048_570)]}, "packet 0: it has 1048582 bytes, the limit is 1048576 (limits.packet_"),
        ({"payload": [b"", bytes(2_000_000)]}, "has more than 1048576 bytes; limits.packet_bytes_max is 1048576"),
        (
            {"payload": [b"", b""], "user_properties": [[], [(f"k{n}", "v") for n in range(100)]]},
            "packet 1: more than 64 user properties (limits.user_properties_max)",
        ),
        ({"payload": [b"", b""], "topic": ["t/x", "t/y" + "/" * 200]}, "128 levels: 't/y////"),
    ],
)
def test_a_row_that_the_nodes_refuse_is_named(node: Serving, columns: dict[str, list[Any]], why: str) -> None:
    query = Query(node)
    with pytest.raises(BadQuestion) as refused:
        query.task(0, 0, batch_of(**{"topic": ["t/x", "t/y"], **columns}))
    assert "row 1 of the task (topic 't/y" in str(refused.value)
    assert why in str(refused.value)


def test_columns_are_checked_before_the_first_task() -> None:
    good = schema_of(*KINDS)
    check_columns(good)
    check_columns(StructType([StructField("topic", StringType()), StructField("payload", StringType())]))
    for bad, why in [
        (schema_of("topic"), "needs column 'payload', there are: topic"),
        (StructType([*good.fields, StructField("offset", LongType())]), "no column 'offset': leave it out"),
        (StructType([StructField("topic", LongType()), *schema_of("payload")]), "'topic' has type bigint.*string"),
        (
            StructType(
                [*schema_of("topic", "payload"), StructField("user_properties", MapType(StringType(), LongType()))]
            ),
            "'user_properties' has type map<string,bigint>: it must be map<string,string>",
        ),
    ]:
        with pytest.raises(ColumnError, match=why):
            check_columns(bad)


@pytest.mark.parametrize(
    ("options", "streaming", "why"),
    [
        ({}, True, "'url' of format 'folkmoot' is required"),
        ({"url": "localhost:1", "stream": "s"}, True, "has no option 'stream'"),
        ({"url": "localhost:1", "qos": "3"}, True, "'qos' of format 'folkmoot' is 3"),
        ({"url": "localhost:1", "txnAppId": "a", "txnVersion": "1"}, True, "is for a batch write"),
        ({"url": "localhost:1", "txnAppId": "a"}, False, "belong together"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], streaming: bool, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        sink_plan(options, schema_of("topic", "payload"), streaming)


def test_messages_are_never_overwritten() -> None:
    source = FolkmootStreams({"url": "localhost:1"})
    with pytest.raises(OptionError, match="append"):
        source.writer(schema_of("topic", "payload"), True)
    with pytest.raises(OptionError, match="append"):
        source.streamWriter(schema_of("topic", "payload"), True)


def test_a_batch_write_with_an_app_and_a_version_is_done_once(node: Serving) -> None:
    query = Query(node, txnAppId="nightly", txnVersion="7")
    for _ in range(2):
        sink = BatchSink(query.plan, schema_of("topic", "payload"))
        staged = stage(query.plan, sink.app, sink.number, 0, sink.schema, [query.rows(b"1")])
        pickle.loads(pickle.dumps(sink)).commit([staged, None])
    assert query.payloads(1) == [b"1"]


def test_a_batch_write_without_an_app_leaves_none(node: Serving) -> None:
    query = Query(node)
    sink = BatchSink(query.plan, schema_of("topic", "payload"))
    sink.commit([stage(query.plan, sink.app, sink.number, 0, sink.schema, [query.rows(b"1")])])
    assert query.payloads(1) == [b"1"]
    client = TransactionClient(query.url, patience_s=5)
    assert sink.app not in [app["app"] for app in client.apps()[0]]
    client.close()
