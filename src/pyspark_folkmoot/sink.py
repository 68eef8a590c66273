"""Writing with the format `folkmoot`: rows become MQTT messages, published once for each batch.

Tasks stage their rows at the cluster, each attempt under its own name. The driver commits the successful attempts with
one call, under (query id, batch id), and the cluster publishes them once (`folkmoot.client.transactions`). If Spark
repeats a batch after a crash, its number is committed already, and nothing is published. Uncommitted rows expire.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from typing_extensions import override

from folkmoot.client.problem import BadQuestion, StreamProblem
from folkmoot.client.transactions import PartWriter, TransactionClient
from pyspark_folkmoot.option import Options
from pyspark_folkmoot.outgoing import Encoder, check_columns, topic_of

__all__ = ["BatchSink", "SinkPlan", "Staged", "StreamSink", "commit", "drop", "sink_plan", "stage"]

VALID: Final = ("url", "token", "qos", "retain", "txnAppId", "txnVersion", "patienceSeconds")

# Spark adds these of its own to the options of a sink.
IGNORED: Final = ("checkpointLocation", "queryName", "outputMode", "path")

PATIENCE_S: Final = 120
ABORT_S: Final = 5.0
FORGET_S: Final = 5.0

_log: Final = logging.getLogger("pyspark_folkmoot")


class SinkPlan:
    """The options of one write, checked."""

    def __init__(self, given: Mapping[str, str]) -> None:
        options = Options("folkmoot", given, VALID, IGNORED)
        self.options = options
        self.urls = options.urls("url")
        self.token = options.text("token")
        self.qos = 1 if not options.given("qos") else options.integer("qos", 0)
        if self.qos not in (0, 1, 2):
            raise options.wrong("qos", f"is {self.qos}: it must be 0, 1 or 2")
        self.retain = options.boolean("retain", False)
        self.app = options.text("txnAppId")
        self.version = options.integer("txnVersion", 0)
        if (self.app is None) != (self.version is None):
            raise options.wrong("txnAppId", "and 'txnVersion' belong together: give both")
        patience_s = options.integer("patienceSeconds", 0)
        self.patience_s: float = PATIENCE_S if patience_s is None else patience_s

    def client(self, first: int = 0, patience_s: float | None = None) -> TransactionClient:
        """Return a client that begins with the node number `first`."""
        return TransactionClient(self.urls, self.token, self.patience_s if patience_s is None else patience_s, first)


class Staged(WriterCommitMessage):
    """What one task has staged: `chunks` chunks of the part `part` of transaction (`app`, `number`)."""

    def __init__(self, app: str, number: int, part: str, chunks: int, messages: int) -> None:
        self.app = app
        self.number = number
        self.part = part
        self.chunks = chunks
        self.messages = messages


def stage(
    plan: SinkPlan, app: str, number: int, task: int, schema: StructType, batches: Iterable[pa.RecordBatch]
) -> Staged:
    """Stage the rows of one task attempt; raises an error for an invalid row, and then stages nothing."""
    client = plan.client(task)
    part = f"{task}-{uuid4()}"
    writer = PartWriter(client, app, number, part)
    encoder = Encoder(schema.names, plan.qos or 0, plan.retain)
    try:
        for batch in batches:
            for packet in encoder.packets(batch):
                writer.add(packet)
        writer.flush()
    except BadQuestion as problem:
        drop(plan, [Staged(app, number, part, 1, 0)])
        raise _refused(writer, problem) from None
    except Exception:
        drop(plan, [Staged(app, number, part, 1, 0)])
        raise
    finally:
        client.close()
    return Staged(app, number, part, writer.chunks, writer.messages)


def _refused(writer: PartWriter, problem: BadQuestion) -> BadQuestion:
    """Return a node's error about a chunk, with the row and the topic if it concerns one: nodes know the limits."""
    text = str(problem)
    match = re.match(r"packet (\d+): ", text)
    chunk = writer.waiting
    if match is None and not (len(chunk) == 1 and text.startswith("the body has more than")):
        return problem
    index = int(match[1]) if match is not None else 0
    if index >= len(chunk):
        return problem
    row = writer.messages + index
    return BadQuestion(f"row {row} of the task (topic {topic_of(chunk[index])}) is no message for the nodes: {text}")


def commit(plan: SinkPlan, staged: list[Staged]) -> None:
    """Commit what the successful attempts staged, in the order of the tasks; without effect if it was done before."""
    staged = [one for one in staged if one.chunks]
    if not staged:
        return
    client = plan.client()
    try:
        client.commit(staged[0].app, staged[0].number, [(one.part, one.chunks) for one in staged])
    finally:
        client.close()


def drop(plan: SinkPlan, staged: list[Staged]) -> None:
    """Drop what is staged and not committed. If no node answers, it expires."""
    client = plan.client(patience_s=min(ABORT_S, plan.patience_s))
    try:
        for one in staged:
            if one.chunks:
                client.abort(one.app, one.number, one.part)
    except StreamProblem as problem:
        _log.warning("what was staged expires by itself: %s", problem)
    finally:
        client.close()


def _of_tasks(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _task() -> tuple[TaskContext, int]:
    context = TaskContext.get()
    assert context is not None, "Spark runs writers in tasks"
    return context, context.partitionId()


class StreamSink(DataSourceStreamArrowWriter):
    """Publishes the micro-batches of a query: the app is its id, the numbers are those of its batches."""

    def __init__(self, plan: SinkPlan, schema: StructType) -> None:
        self.plan = plan
        self.schema = schema

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context, task = _task()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise RuntimeError("Spark gave no query id to a task of a stream: this version of Spark is not supported")
        return stage(self.plan, query, int(batch), task, self.schema, iterator)

    @override
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commit(self.plan, _of_tasks(messages))

    @override
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # Spark aborts also when a commit failed on its way back: what is committed stays so.
        drop(self.plan, _of_tasks(messages))


class BatchSink(DataSourceArrowWriter):
    """One batch write; with txnAppId and txnVersion published once, however often it is repeated."""

    def __init__(self, plan: SinkPlan, schema: StructType) -> None:
        self.plan = plan
        self.schema = schema
        self.app = f"batch-{uuid4()}" if plan.app is None else plan.app
        self.number = plan.version or 0

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage(self.plan, self.app, self.number, _task()[1], self.schema, iterator)

    @override
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = _of_tasks(messages)
        commit(self.plan, staged)
        if self.plan.app is None and any(one.chunks for one in staged):
            self._forget()

    def _forget(self) -> None:
        """Forget an app that is not used again, if its messages are published soon."""
        client = self.plan.client(patience_s=FORGET_S)
        try:
            until = time.monotonic() + FORGET_S
            while client.describe(self.app)["waiting_messages"] and time.monotonic() < until:
                time.sleep(0.05)
            client.forget(self.app)
        except StreamProblem as problem:
            _log.info("app %s stays in the list of transactions: %s", self.app, problem)
        finally:
            client.close()

    @override
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        drop(self.plan, _of_tasks(messages))


def sink_plan(given: Mapping[str, str], schema: StructType, streaming: bool) -> SinkPlan:
    """Return the plan of a write of rows with this schema; raises OptionError or ColumnError."""
    plan = SinkPlan(given)
    if streaming and plan.app is not None:
        raise plan.options.wrong("txnAppId", "is for a batch write: a stream has its own id and version")
    check_columns(schema)
    return plan
