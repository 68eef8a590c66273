"""Advice for failed queries: reduces Spark's long errors to the line with the cause, and says what to do."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["advice", "core_text"]

_PYTHON: Final = re.compile(r"^(?:\w+\.)*([A-Z]\w*): (.+)$")
_SPARK: Final = re.compile(r"\[([A-Z0-9_.]+)\] (.+)")
_WRAPPED: Final = (
    "PYTHON_",
    "STREAM_FAILED",
    "FAILED_EXECUTE_UDF",
    "WRITING_JOB_FAILED",
    "TASK_WRITE_FAILED",
    "FOREACH_",
)

_PLAN: Final = "=== Streaming Query ==="
"""The text after these words contains column names and SQL."""

_BEGINNING: Final = re.compile(r"^(?:Caused by: )?(?:([\w.$]+)(?::|$))? ?(?:\[([A-Z0-9_.]+)\])?", re.MULTILINE)
"""Of a line of an error: the class of an exception, the name of a condition of Spark."""

_QUOTED: Final = re.compile(r"(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"")

_OF_ROWS: Final = (
    (
        r"expectation '\w+' of '\w+' does not hold",
        "Fix the source of such rows, and remove or change the expectation; or use 'otherwise: drop' to put them into "
        "the quarantine. Nothing of this batch was written",
    ),
    (
        r"row \d+ of the task",
        "A row that is not a valid message is never published, and the batch is repeated with it. Filter such rows "
        "before the sink with a step (SELECT * FROM VIEW WHERE ...) or an expectation with 'otherwise: drop', or raise "
        "the limit that is named, and start the pipeline again. Nothing of this batch was published",
    ),
)
"""The beginnings of errors about rows: the text after them is data and says nothing about the cause."""

_OF_CLASSES: Final = (
    (
        r"CONCURRENT_QUERY|CONCURRENT_STREAM_LOG_UPDATE|ConcurrentModificationException|CommitFailedError",
        "Another driver uses the same checkpoint or table. Stop one of the two; what was written is exact",
    ),
    (r"OutOfMemoryError", "Set 'rows_per_trigger' at the source, or give Spark more memory"),
    (r"NoSuchStream", "List the streams of the nodes with `folkmoot stream list`"),
)
"""By exception class or Spark error condition, at the beginning of a line."""

_OF_PHRASES: Final = (
    (
        r"^Spark's Java process has ended",
        "It was killed or ran out of memory: see spark.log in the state folder, and spark.driver.memory. "
        "Start the pipeline again: the batch is repeated, nothing is lost or duplicated",
    ),
    (
        r"at every node that answers",
        "The nodes that have these records are down or cut off from those that answered. When they are back, start the "
        "pipeline again: it resumes where it was. If they never come back, or were restored from older data, rebuild "
        "the tables with `folkmoot pipeline backfill`; sinks other than Delta tables need a new name",
    ),
    (
        r"gone by retention",
        "Retention has removed records that this query has not read. To continue without them, set 'lost: skip' at the "
        "source; to avoid this in future, give the stream a longer retention",
    ),
    (
        r"No space left on device|Disk quota exceeded|os error 28\b",
        "The disk is full. Free space and start the pipeline again: the batch is repeated, nothing is lost or "
        "duplicated",
    ),
    (
        r"Permission denied|Read-only file system",
        "The driver or a worker has no permission to write there. Grant it and start the pipeline again",
    ),
    (
        r"File name too long|os error 36\b",
        "A value of 'partition_by' is too long for a folder name. Partition by something shorter, such as a hash of "
        "it, in another folder",
    ),
    (
        r"no answer within|answered 50\d",
        "The nodes, or the leader of a stream partition, were unreachable for longer than 'patience' at the source. "
        "When they are back, start the pipeline again: it resumes where it was",
    ),
    (r"refuses the token", "Set cluster.token to the admin token of the nodes"),
    (
        r"^Multiple streaming queries are concurrently using|a concurrent transaction|^Concurrent update to the log",
        "Another driver uses the same checkpoint or table. Stop one of the two; what was written is exact",
    ),
    (
        r"a table with other columns",
        "The table has other columns. Write to another folder, or rebuild it with `folkmoot pipeline backfill`",
    ),
    (
        r"differs from the table's|a table partitioned by",
        "The table has other partition columns. Write to another folder, or rebuild it with `folkmoot pipeline "
        "backfill`; the table of a view of tables alone is rebuilt when its folder is removed",
    ),
    (
        r"limit transaction_bytes_max",
        "The messages of one batch are larger than the nodes permit in one transaction. The contents of this batch "
        "cannot change: raise limits.transaction_bytes_max at all nodes and start the pipeline again. Then reduce "
        "'rows_per_trigger' at the source, so that the next batches are smaller",
    ),
    (r"^Java heap space", "Set 'rows_per_trigger' at the source, or give Spark more memory"),
    (r"has no stream|no stream '", "List the streams of the nodes with `folkmoot stream list`"),
)
"""By the text of the core of the error, outside of quotes."""

GENERAL: Final = (
    "When the cause is fixed, start the pipeline again: the batch is repeated, nothing is lost or duplicated"
)


def core_text(text: str) -> str:
    """Return the line of a Spark error with the cause: the innermost Python error, otherwise Spark's own."""
    found = ""
    text = text.split(_PLAN, maxsplit=1)[0]
    text = re.sub(r" ?SQLSTATE: \w+", "", text)
    for line in text.splitlines():
        match = _PYTHON.match(line.strip())
        if match and not re.search(r"\b(org|java|scala|py4j)\.", line.split(":")[0]):
            found = match[2]
    if found:
        return found.strip()
    for match in _SPARK.finditer(text):
        if not match[1].startswith(_WRAPPED):
            return match[2].strip()
    causes = re.findall(r"^Caused by: [\w.$]+: (.+)$", text, re.MULTILINE)
    if causes:
        return str(causes[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "no reason given"


def advice(text: str) -> str:
    """Return what to do about an error, as a sentence; general advice for unknown errors.

    The plan and values of rows (in quotes, or after the beginning of an error about rows) are ignored.
    """
    text = text.split(_PLAN, maxsplit=1)[0]
    core = core_text(text)
    for pattern, way_out in _OF_ROWS:
        if re.match(pattern, core):
            return way_out
    told = [core, *re.findall(r"^Caused by: [\w.$]+: (.+)$", text, re.MULTILINE)]
    names = {name.rpartition(".")[2] for found in _BEGINNING.findall(text) for name in found if name}
    for phrase in told:
        plain = _QUOTED.sub("''", phrase)
        for pattern, way_out in _OF_PHRASES:
            if re.search(pattern, plain, re.IGNORECASE):
                return way_out
    for pattern, way_out in _OF_CLASSES:
        if any(re.fullmatch(pattern, name) for name in names):
            return way_out
    return GENERAL
