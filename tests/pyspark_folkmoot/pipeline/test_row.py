"""Rows that Arrow refuses are reasons, whatever the decoders let through: no Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyspark_folkmoot.pipeline.protobuf import message_class
from pyspark_folkmoot.pipeline.row import structs
from pyspark_folkmoot.pipeline.sparkplug import decode_sparkplug, payload_descriptor

KIND = pa.struct([("n", pa.int64()), ("s", pa.string()), ("_reason", pa.string())])


@pytest.mark.parametrize("wrong", [{"n": 2**63}, {"n": "x"}, {"s": 5}, {"s": "\ud800"}, {"n": [1]}])
def test_one_row_that_does_not_fit_costs_no_other(wrong: dict[str, Any]) -> None:
    rows = [({"n": 1, "s": "a"}, None), (wrong, None), (None, "is nothing"), ({"n": 2, "s": "b"}, None)]
    found = structs(rows, KIND).to_pylist()
    assert [(row["n"], row["s"]) for row in found] == [(1, "a"), (None, None), (None, None), (2, "b")]
    reasons = [row["_reason"] for row in found]
    assert reasons[1].startswith("does not fit its columns: ")
    assert [reasons[0], *reasons[2:]] == [None, "is nothing", None]


def test_reasons_are_text_and_not_long() -> None:
    (row,) = structs([(None, "\ud800" + "x" * 10_000)], KIND).to_pylist()
    assert row["_reason"].startswith("?xxx")
    assert len(row["_reason"]) == 300


def test_sparkplug_numbers_that_no_column_holds() -> None:
    payloads = [bytes.fromhex("18ffffffffffffffffff01"), bytes.fromhex("1807")]
    for field in ("alias", "timestamp"):
        made: Any = message_class(payload_descriptor(), "folkmoot.sparkplug.Payload")(seq=1)
        made.metrics.add(**{field: 2**64 - 1})
        payloads.append(made.SerializeToString())
    rows = decode_sparkplug(payloads)
    assert [None if fields is None else fields["seq"] for fields, _ in rows] == [None, 7, None, None]
    assert [reason for _, reason in rows] == [
        "is no payload of Sparkplug B: seq is 18446744073709551615, which is no BIGINT",
        None,
        "is no payload of Sparkplug B: the alias of a metric is 18446744073709551615, which is no BIGINT",
        "is no payload of Sparkplug B: the timestamp 18446744073709551615 is beyond the year 9999",
    ]
