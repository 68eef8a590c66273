"""Events as rows: the decoded payloads of a stream of `$events/#`, with the schema of docs/events.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SCHEMA", "decode"]

_SKETCH: Final = "count: bigint, within: bigint, buckets: array<array<bigint>>"

SCHEMA: Final = f"""
    schema int, kind string, node string, incarnation bigint, number bigint, time_us bigint, what string,
    client string, username string, address string, transport string, version int, expiry_s bigint,
    `by` string, clean boolean, code int, reason string, why string, connected_us bigint,
    bytes_in bigint, bytes_out bigint, messages_in bigint,
    prefix string, from_us bigint, to_us bigint, objective_us bigint,
    ack struct<taken: bigint, failed: bigint, waiting: bigint, waiting_us: bigint, {_SKETCH}>,
    deliver struct<sample: int, {_SKETCH}>,
    `view` bigint, epoch bigint, members array<string>, peer string, level int, cluster int
"""
"""The fields of all kinds; fields that a kind does not have are null. Fields of later versions are ignored."""


def decode(messages: DataFrame) -> DataFrame:
    """Return the events in rows of the source `folkmoot` (of those columns, `payload` is needed), each once.

    Payloads that are not events are omitted. Columns: those of SCHEMA.
    """
    parsed = messages.selectExpr(f"from_json(cast(payload as string), '{' '.join(SCHEMA.split())}') as event")
    events = parsed.select("event.*").where("kind IS NOT NULL AND node IS NOT NULL AND time_us IS NOT NULL")
    return events.dropDuplicates(["node", "incarnation", "number"])
