"""What the start and the end of a run wait for: Python processes, first batches, last events, the end of Java."""

from __future__ import annotations

import subprocess
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["FIRST_S", "first_batch", "initialised", "java_ended", "settled"]

INITIAL_S: Final = 30.0
INITIAL: Final = "Initializing"

FIRST_S: Final = 60.0
"""How long a query that publishes may take for its first batch before the other queries start."""

JAVA_END_S: Final = 10.0
"""How long a Java process may take to end after a signal."""


def initialised(query: StreamingQuery) -> None:
    """Wait until a query has its Python processes: if many start at once, none may start in time."""
    until = time.monotonic() + INITIAL_S
    while query.isActive and time.monotonic() < until:
        if not str(query.status["message"]).startswith(INITIAL):
            return
        time.sleep(0.02)


def first_batch(query: StreamingQuery, stop: threading.Event) -> None:
    """Wait until a query has completed a batch or has nothing to do, for at most FIRST_S."""
    until = time.monotonic() + FIRST_S
    while query.isActive and time.monotonic() < until and not stop.is_set():
        if query.lastProgress is not None or not query.status["isTriggerActive"]:
            return
        time.sleep(0.05)


def java_ended(spark: SparkSession) -> bool:
    """Whether Spark's Java has ended or is ending: a signal to the whole process group reaches it too."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - there is no public way
    process = gateway.proc
    if process is None:
        return False  # another program has started it, such as spark-submit
    with suppress(subprocess.TimeoutExpired):
        process.wait(JAVA_END_S)
    return process.poll() is not None


def settled(spark: SparkSession, listener: Any) -> None:
    """Wait until Spark has delivered the events of ended queries, then remove the listener."""
    # Without the JVM nothing arrives any more; the listener is removed even after a timeout.
    with suppress(Exception):
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(10_000)  # noqa: SLF001 - there is no public way
    with suppress(Exception):
        spark.streams.removeListener(listener)
