"""Option `table` of the source, called as Spark calls it, against a served node: no JVM."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from folkmoot.streams.config import StreamConfig
from pyspark_folkmoot.option import OptionError
from pyspark_folkmoot.source import FolkmootStreams
from tests.harness.box import START, Box
from tests.harness.peer import EVER
from tests.harness.tablenode import Served, table_app

TOKEN = "a-token-of-more-than-sixteen-characters"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    box = Box(partitions=2, streams=[StreamConfig("s", b"s/#", 3)])
    for number in range(4):
        peer = box.client(f"c{number}")
        peer.connect(session_expiry=EVER if number % 2 else 0)
        peer.subscribe(f"q/{number}", qos=1)
        peer.publish(f"s/{number}", b"\x00\xff", qos=1, retain=True)
        if number == 3:
            peer.lose()
    with Served(table_app(box, TOKEN)) as served:
        yield served.url


def read(url: str, table: str, **options: str) -> list[dict[str, Any]]:
    """Read a table as Spark does: the schema, the tasks, each task from pickles."""
    source = FolkmootStreams({"URL": url, "Table": table, "token": TOKEN, "patienceSeconds": "3", **options})
    reader = source.reader(source.schema())
    rows: list[dict[str, Any]] = []
    for task in reader.partitions():
        copy = pickle.loads(pickle.dumps(reader))
        for batch in copy.read(pickle.loads(pickle.dumps(task))):
            batch.validate(full=True)
            assert batch.schema.names == source.schema().names
            rows.extend(batch.to_pylist())
    return rows


def test_sessions_have_types(url: str) -> None:
    found = {row["client_id"]: row for row in read(url, "sessions")}
    assert set(found) == {"c0", "c1", "c2", "c3"}
    assert found["c3"]["disconnected_at"] == dt.datetime.fromtimestamp(START // 1_000_000, dt.UTC)
    assert found["c0"]["persistent"] is False
    assert found["c1"]["expiry_s"] is None
    assert found["c1"]["node"] == "node1"


@pytest.mark.parametrize(
    ("table", "count"), [("subscriptions", 4), ("queues", 0), ("retained", 4), ("streams", 3), ("partitions", 2)]
)
def test_every_table_can_be_read(url: str, table: str, count: int) -> None:
    assert len(read(url, table)) == count


def test_payloads_and_columns_on_demand(url: str) -> None:
    rows = read(url, "retained", payload="true", columns="payload,topic")
    assert [list(row) for row in rows] == [["topic", "payload"]] * 4
    assert {row["payload"] for row in rows} == {b"\x00\xff"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"table": "session"}, "sessions, subscriptions, queues, retained, streams, partitions"),
        ({"table": "sessions", "startingOffsets": "latest"}, "valid options: url, table, token"),
        ({"table": "sessions", "payload": "true"}, "retained"),
        ({"table": "sessions", "columns": "client"}, "the columns are partition, client_id"),
        ({"table": ""}, "required"),
    ],
)
def test_wrong_options_are_refused_with_the_valid_ones(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        FolkmootStreams({"url": "http://127.0.0.1:1", **options}).schema()


def test_a_table_is_no_stream() -> None:
    source = FolkmootStreams({"url": "http://127.0.0.1:1", "table": "sessions"})
    with pytest.raises(OptionError, match="batch read"):
        source.streamReader(source.schema())
