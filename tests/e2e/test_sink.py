"""The sink `folkmoot` in a real Spark: what only the JVM can show. Semantics are tested in tests/pyspark_folkmoot."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from folkmoot.client.streams import StreamClient
from folkmoot.client.transactions import PartWriter, TransactionClient
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, Publish
from folkmoot.store.record import Record
from tests.integration.serving import Serving

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

DRIVER = Path(__file__).with_name("sink_driver.py")
DRIVER_S = 300


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Serving]:
    streams = ["--stream", "in=in/#", "--stream", "out=out/#"]
    streams += ["--stream", "flights=flights/#", "--stream", "alerts=alerts/#"]  # of the documentation
    with Serving(tmp_path / "data", "--mqtt", "127.0.0.1:0", "--admin", "127.0.0.1:0", *streams).start() as serving:
        yield serving


def url_of(node: Serving) -> str:
    return f"http://127.0.0.1:{node.port('admin')}"


def fill(node: Serving, start: int, end: int) -> None:
    """Publish numbers to the stream `in`."""
    client = TransactionClient(url_of(node), patience_s=5)
    part = PartWriter(client, "filler", end, "p")
    for number in range(start, end):
        part.add(encode(Publish(f"in/{number % 5}".encode(), b"%d" % number, 1, False, False, 1), V5))
    part.flush()
    client.commit("filler", end, [("p", part.chunks)])
    client.close()
    assert len(records(node, "in", end)) == end


def records(node: Serving, stream: str, count: int) -> list[int]:
    """The numbers in a stream, when they are at least `count`."""
    client = StreamClient(url_of(node), patience_s=5)
    until = time.monotonic() + 20
    while True:
        ranges = client.describe(stream).ranges
        if sum(part.next for part in ranges) >= count or time.monotonic() > until:
            found = [int(one.record.payload) for part in ranges for one in client.entries(stream, part.partition, 0)]
            client.close()
            return sorted(found)
        time.sleep(0.02)


def evens(end: int) -> list[int]:
    return list(range(0, end, 2))


def rows_of(spark: SparkSession, node: Serving) -> DataFrame:
    rows = spark.readStream.format("folkmoot").options(url=url_of(node), stream="in", startingOffsets="earliest").load()
    return rows.where("cast(cast(payload as string) as int) % 2 = 0").selectExpr("'out/x' as topic", "payload")


def run(frame: DataFrame, node: Serving, folder: Path) -> None:
    writer = frame.writeStream.format("folkmoot").option("url", url_of(node))
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    query.awaitTermination()


def test_a_stream_comes_back_and_a_batch_that_was_not_logged_is_not_published_twice(
    spark: SparkSession, node: Serving, tmp_path: Path
) -> None:
    fill(node, 0, 300)
    run(rows_of(spark, node), node, tmp_path / "c")
    fill(node, 300, 500)
    run(rows_of(spark, node), node, tmp_path / "c")
    assert records(node, "out", 250) == evens(500)
    # A driver killed between the commit at the cluster and the commit log of Spark leaves exactly this.
    newest = max((tmp_path / "c" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    run(rows_of(spark, node), node, tmp_path / "c")
    fill(node, 500, 600)
    run(rows_of(spark, node), node, tmp_path / "c")
    assert records(node, "out", 300) == evens(600)


def test_batches_are_written_once_under_an_app_and_a_version(spark: SparkSession, node: Serving) -> None:
    numbers = spark.range(100).selectExpr("concat('out/', id % 3) as topic", "cast(id as string) as payload")
    for version in ("1", "1", "2"):
        once = {"url": url_of(node), "txnAppId": "nightly", "txnVersion": version}
        numbers.write.format("folkmoot").options(**once).mode("append").save()
    assert records(node, "out", 200) == sorted([*range(100), *range(100)])


def test_what_is_wrong_reaches_the_user(spark: SparkSession, node: Serving, tmp_path: Path) -> None:
    rows = spark.range(3).selectExpr("'out/x' as topic", "id as payload")
    with pytest.raises(PySparkException, match="column 'payload' has type bigint: it must be string or binary"):
        rows.write.format("folkmoot").option("url", url_of(node)).mode("append").save()
    rows = spark.range(3).selectExpr("if(id = 1, null, 'out/x') as topic", "'' as payload")
    with pytest.raises(PySparkException, match="column 'topic' is null"):
        rows.write.format("folkmoot").option("url", url_of(node)).mode("append").save()
    fill(node, 0, 10)
    with pytest.raises(StreamingQueryException, match=r"begins with \$"):
        run(rows_of(spark, node).selectExpr("'$SYS/x' as topic", "payload"), node, tmp_path / "c")
    assert records(node, "out", 0) == []


def test_the_examples_of_the_documentation_work(spark: SparkSession, node: Serving, tmp_path: Path) -> None:
    assert spark is not None  # the examples ask for a session and get this one
    page = (Path(__file__).parents[2] / "docs" / "pipeline" / "mqtt.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    code = code.replace("checkpoints/alerts", str(tmp_path / "alerts")).replace("http://127.0.0.1:8080", url_of(node))
    client = TransactionClient(url_of(node), patience_s=5)
    part = PartWriter(client, "flights", 0, "p")
    for number, delay in ((1, 30), (2, 150), (3, 121)):
        payload = b'{"origin": "JFK", "dest": "LAX", "dep_delay": %d}' % delay
        part.add(encode(Publish(b"flights/UA/%d" % number, payload, 1, False, False, 1), V5))
    part.flush()
    client.commit("flights", 0, [("p", 1)])
    client.close()
    reader = StreamClient(url_of(node), patience_s=5)
    exec(code, {})
    found: list[Record] = []
    until = time.monotonic() + 20
    while len(found) < 5 and time.monotonic() < until:
        ranges = reader.describe("alerts").ranges
        found = [one.record for part in ranges for one in reader.entries("alerts", part.partition, 0)]
    reader.close()
    assert sorted((one.topic, one.payload, one.qos) for one in found) == [
        (b"alerts/UA/2", b"JFK to LAX: 150 minutes late", 2),
        (b"alerts/UA/3", b"JFK to LAX: 121 minutes late", 2),
        *[(b"alerts/total/%d" % n, b"0", 1) for n in range(3)],
    ]


class Door(ThreadingHTTPServer):
    """Passes requests on to a node; `before` and `after` are called when a commit has come, and is carried out."""

    def __init__(self, node: Serving) -> None:
        self.node = node
        self.before: Callable[[], None] | None = None
        self.after: Callable[[], None] | None = None
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        door = self.server
        assert isinstance(door, Door)
        is_commit = self.command == "POST" and self.path.endswith("/commit")
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if is_commit and door.before is not None:
            door.before()
            return
        onward = http.client.HTTPConnection("127.0.0.1", door.node.port("admin"))
        kept = {name: value for name, value in self.headers.items() if name.lower() in ("content-type", "accept")}
        onward.request(self.command, self.path, body, kept)
        answer = onward.getresponse()
        data = answer.read()
        if is_commit and door.after is not None:
            door.after()
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = _pass_on  # noqa: N815

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


def drive(door: Door, folder: Path) -> subprocess.Popen[bytes]:
    """A driver with its JVM and workers, in a group of processes of its own."""
    with (folder / "driver.log").open("ab") as log:
        command = [sys.executable, str(DRIVER), door.url, str(folder)]
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


BEFORE = pytest.mark.soak("a commit that never came is a batch that is repeated; killed after it, one must not be")


@pytest.mark.parametrize("moment", [pytest.param("before", marks=BEFORE), "after"])
def test_a_driver_that_is_killed_around_its_commit_leaves_each_alert_once(
    node: Serving, tmp_path: Path, moment: str
) -> None:
    fill(node, 0, 400)
    door = Door(node)
    killed = threading.Event()
    driver = drive(door, tmp_path)

    def kill() -> None:
        if not killed.is_set():
            killed.set()
            os.killpg(driver.pid, signal.SIGKILL)

    setattr(door, moment, kill)
    try:
        assert driver.wait(DRIVER_S) == -signal.SIGKILL
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
    door.before = door.after = None
    expected = evens(400) if moment == "after" else []
    assert records(node, "out", len(expected)) == expected
    fill(node, 400, 500)
    again = drive(door, tmp_path)
    try:
        assert again.wait(DRIVER_S) == 0, (tmp_path / "driver.log").read_text()[-2000:]
    finally:
        if again.poll() is None:
            os.killpg(again.pid, signal.SIGKILL)
        door.shutdown()
        door.server_close()
    assert records(node, "out", 250) == evens(500)
