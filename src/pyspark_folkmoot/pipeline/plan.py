"""What Spark knows about a frame and about texts before anything runs.

About the plan of a frame: what keeps state, in which order streams are read, what is refused. About texts: whether they
are queries, and which formats exist.

Only this module and `chance.py` ask the JVM. Without a JVM (Spark Connect) nothing is known, and Spark refuses what it
cannot run at the start.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from pyspark_folkmoot.pipeline.fault import PipelineProblem
from pyspark_folkmoot.pipeline.relation import without_noise

__all__ = ["analysis_text", "format_refusal", "query_text", "refusal", "sources_read", "stateful_parts", "streams_read"]

_END: Final = re.compile(r";(?:\s|;|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*\Z", re.DOTALL)
"""The semicolon that may end a statement, and comments after it; Spark does not accept it in a query."""

# Nodes of a streaming plan that keep state between batches.
_STATEFUL: Final = {
    "Aggregate": "an aggregation",
    "Distinct": "DISTINCT",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "FlatMapGroupsWithState": "a function with state",
    "FlatMapGroupsInPandasWithState": "a function with state",
    "TransformWithState": "a function with state",
    "TransformWithStateInPySpark": "a function with state",
    "TransformWithStateInPandas": "a function with state",
    "GlobalLimit": "LIMIT",
    "SessionWindow": "a session window",
}


def query_text(spark: SparkSession, sql: str) -> str:
    """Return `sql` without the semicolon at its end; nothing is run.

    Raises PipelineProblem if it is not a query: `SparkSession.sql` runs commands (INSERT, DROP, SET, ...) at once.
    """
    # The rule `query` of Spark's grammar decides, not a list of commands: what it refuses is not passed to Spark.
    parser: Any = spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 - there is no public parser
    for text in dict.fromkeys((sql, _END.sub("", sql))):
        with suppress(Exception):  # the parser of statements says why, or that it is a command
            parser.parseQuery(text)
            return text
    parser.parsePlan(sql)
    raise PipelineProblem(
        f"sql is a command ({_command(sql)}), and steps are queries: write a SELECT. Tables are written by sinks, and "
        "settings are in spark.conf"
    )


def _command(sql: str) -> str:
    """Return the word that makes a statement a command; after WITH and FROM it is that of the modification."""
    words = re.findall(r"[A-Za-z]+", without_noise(sql))
    first = words[0].upper() if words else ""
    changes = [word.upper() for word in words if word.upper() in ("INSERT", "UPDATE", "DELETE", "MERGE")]
    return changes[0] if first in ("WITH", "FROM") and changes else first


def stateful_parts(frame: DataFrame) -> list[str]:
    """Return what keeps state in a streaming frame, in words; empty if its batches are independent."""
    found: list[str] = []
    for node in _nodes(_plan(frame)):
        if not node.isStreaming():
            continue
        name = str(node.nodeName())
        if name in _STATEFUL:
            found.append(_STATEFUL[name])
        elif name.startswith("Join") and all(side.isStreaming() for side in _children(node)):
            found.append("a join of two streams")
    return found


def streams_read(frame: DataFrame) -> list[str]:
    """Return the names of the streams that a frame reads, in the order in which a checkpoint has their offsets."""
    return [_stream(node) for node in _relations(frame)]


def sources_read(frame: DataFrame) -> list[tuple[str, int]]:
    """Return the names of the streams that a frame reads, as the progress of its query has them: each source once.

    Each has the number of scans: one for every view that reads it, as in a UNION of views.
    """
    found: list[tuple[Any, int]] = []
    for node in _relations(frame):
        known = [number for number, (other, _) in enumerate(found) if node.equals(other)]
        if known:
            found[known[0]] = (node, found[known[0]][1] + 1)
        else:
            found.append((node, 1))
    return [(_stream(node), scans) for node, scans in found]


def _relations(frame: DataFrame) -> list[Any]:
    return [node for node in _nodes(_plan(frame)) if str(node.nodeName()).startswith("StreamingRelation")]


def _stream(node: Any) -> str:
    options = node.extraOptions()
    return str(options.get("stream") or options.get("path") or node.simpleStringWithNodeId())


def refusal(frame: DataFrame, mode: str) -> str | None:
    """Return why Spark cannot run a streaming frame in an output mode; None when it can."""
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001 - there is no public way to ask before a query starts
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    chosen = {"append": modes.Append, "complete": modes.Complete, "update": modes.Update}[mode]()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(_plan(frame), chosen)
    except Exception as error:  # noqa: BLE001 - whatever Spark says is the answer
        return analysis_text(error)
    return None


def format_refusal(spark: SparkSession, name: str) -> str | None:
    """Return why a stream cannot be written in a format, as far as that is known before; None when it can."""
    if name.lower() == "memory":
        return None  # the writer's own word, and no source
    jvm: Any = spark._jvm  # noqa: SLF001 - see refusal
    datasources = jvm.org.apache.spark.sql.execution.datasources
    conf = spark._jsparkSession.sessionState().conf()  # noqa: SLF001 - see refusal
    try:
        datasources.DataSource.lookupDataSource(name, conf)
    except Exception as error:  # noqa: BLE001 - a class that is not there comes as Java's own error
        known = "_DATA_SOURCE_" in str(error)
        told = analysis_text(error) if known else "Spark has no package with it (spark.jars.packages in spark.conf)"
        return f"there is no format '{name}': {told}"
    return None


def analysis_text(error: BaseException) -> str:
    """Return Spark's error about a query in one line, without its plan and stack trace."""
    text = str(error)
    for mark in (";\n", "\nJVM stacktrace", "\n\tat "):
        text = text.split(mark, maxsplit=1)[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("==", "^", "-----", "'", "+-", ":"))]
    text = re.sub(r" ?SQLSTATE: \w+;?", "", " ".join(kept))
    return re.sub(r"^\[[A-Z0-9_.]+\] ", "", text).removesuffix(";")


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - see refusal


def _children(node: Any) -> list[Any]:
    found = node.children()
    return [found.apply(number) for number in range(found.size())]


def _nodes(plan: Any) -> list[Any]:
    """Return all nodes of a plan, the leaves in the order in which Spark collects them."""
    found = [plan]
    for child in _children(plan):
        found.extend(_nodes(child))
    return found
