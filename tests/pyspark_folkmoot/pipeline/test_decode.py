"""Decoding in a real Spark: each message is in the view of its entry or in the quarantine, with its reason."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_folkmoot.column import COLUMNS, struct
from pyspark_folkmoot.pipeline import decoded, undecoded, with_expectations
from pyspark_folkmoot.pipeline.expect import broken
from pyspark_folkmoot.pipeline.model import Expectation
from pyspark_folkmoot.pipeline.protobuf import ProtobufFault, message_class, message_columns
from pyspark_folkmoot.pipeline.sparkplug import payload_descriptor

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

WHEN = datetime(2026, 3, 1, tzinfo=UTC)


def messages(spark: SparkSession, *found: tuple[str, bytes]) -> DataFrame:
    rows: list[Any] = [
        (0, number, topic, payload, 1, False, "me", None, {}, None, None, WHEN)
        for number, (topic, payload) in enumerate(found)
    ]
    return spark.createDataFrame(rows, struct(COLUMNS))


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def reasons(frame: DataFrame) -> dict[bytes, str]:
    return {row["_origin"]["payload"]: row["_reason"] for row in rows(frame)}


def test_json(spark: SparkSession) -> None:
    good = [b'{"v": 1.5, "t": "2026-03-01T00:00:00Z", "s": "x", "new": 1}', b'{"v": null}', b"{}", b'{"s": 7}']
    good += [b' {"s": "}{", "n": {"a": 1}, "new": [{}]} \r\n', b'{"v": 1, "v": 2, "s": "{"}']
    second = "something behind its first JSON object"
    bad = {
        b"": "the payload is no JSON object",
        b"no": "the payload is no JSON object",
        b"[1]": "the payload is no JSON object",
        b"null": "the payload is no JSON object",
        b'"x"': "the payload is no JSON object",
        b'{"v": 1': "the payload is no JSON object",
        b'{"v": NaN}': "the payload is no JSON object",
        b'{"v": -Infinity}': "the payload is no JSON object",
        b"{'s': '{'}": "the payload is no JSON object",
        b'{"v": "NaN"}': "field 'v' is 'NaN' and no DOUBLE",
        b'{"v": 1e999}': "field 'v' has a number beyond what its type can hold: DOUBLE",
        b'{"f": {"a": [1, -1e39]}, "v": "x"}': "field 'v' is 'x' and no DOUBLE; field 'f' has a number beyond",
        b'{"new": ' + b"[" * 1200 + b"]" * 1200 + b"}": "cannot be read as a JSON object: more than 1,000 levels, or",
        b'{"v": ' + b"1" * 1200 + b"}": "cannot be read as a JSON object: more than 1,000 levels, or digits",
        b'{"v": 1,}' + b" " * 1200: "the payload is no JSON object",
        b'{"v": "hot"}': "field 'v' is 'hot' and no DOUBLE",
        b'{"v": true, "t": "soon"}': "field 'v' is 'true' and no DOUBLE; field 't' is 'soon' and no TIMESTAMP",
        b'{"n": {"a": "x"}}': "field within another",
        b'{"s": "\xff"}': "the payload is no text in UTF-8",
        b'{"v": "a", "v": "b"}': "field 'v' is",
        b'{"v": 1}\n{"v": 2}': second,
        b'{"v": 1},{"v": 2}': second,
        b'{"v": 1}, "new": 1': second,
        b'{"n": {"a": 1}} x': second,
        b'{"v": 1}}': second,
        b'{"v": 1}]': second,
        b'{"v": 1}\x00': second,
    }
    frame = messages(spark, *[("s/hall/x", payload) for payload in [*good, *bad]])
    schema = "v DOUBLE, t TIMESTAMP, s STRING, n STRUCT<a: INT>, f MAP<STRING, ARRAY<FLOAT>>"
    entries = [{"topic": "s/{place}/+", "view": "r", "format": "json", "schema": schema}]
    found = rows(decoded(frame, entries, "s")["r"])
    assert [row["_origin"]["payload"] for row in found] == good
    assert [(row["place"], row["v"], row["s"]) for row in found] == [
        ("hall", 1.5, "x"),
        ("hall", None, None),
        ("hall", None, None),
        ("hall", None, "7"),
        ("hall", None, "}{"),
        ("hall", 2.0, "{"),
    ]
    assert list(found[0]) == ["place", "v", "t", "s", "n", "f", "_origin"]
    assert found[0]["_origin"]["stream"] == "s"
    told = reasons(undecoded(frame, entries, "s"))
    assert list(told) == list(bad)
    for payload, reason in bad.items():
        assert reason in told[payload]


SECONDS = "; a number is seconds since 1970"
FAR = "from year 1 to 9999"


def test_times_of_four_digits(spark: SparkSession) -> None:
    good = [b"1772366400", b"253402300799", b"-62135596800", b'"2026-03-01"', b"null", b'"0001-01-01"']
    good += [b'"9999-12-31T23:59:59.999999Z"', b'"2026"']
    bad = [b"1772366400000", b"253402300800", b"-62135596801", b"9223372036854775807", b"92233720368547758070"]
    bad += [b"18446744073709", b'"58133-01-01"', b'"0000-12-31"', b'"1772366400000"', b"1.5"]
    shapes = [b'{"at": %s}', b'{"n": {"list": [{"at": %s}], "s": "1772366400000"}}', b'{"m": {"k": [1, %s]}, "s": 1}']
    frame = messages(spark, *[("s", shape % value) for shape in shapes for value in [*good, *bad]])
    schema = (
        "at TIMESTAMP, s STRING, n STRUCT<list: ARRAY<STRUCT<at: TIMESTAMP>>, s: STRING>, "
        "m MAP<STRING, ARRAY<TIMESTAMP>>, ms BIGINT"
    )
    entries = [{"topic": "s", "view": "v", "format": "json", "schema": schema}]
    found = decoded(frame, entries)["v"]
    assert [row["_origin"]["payload"] for row in found.select("_origin").collect()] == [
        shape % value for shape in shapes for value in good
    ]
    told = reasons(undecoded(frame, entries))
    assert list(told) == [shape % value for shape in shapes for value in bad]
    assert told[shapes[0] % bad[0]] == f"field 'at' is '1772366400000' and no TIMESTAMP {FAR}{SECONDS}"
    assert told[shapes[0] % bad[3]] == f"field 'at' is '9223372036854775807' and no TIMESTAMP {FAR}{SECONDS}"
    assert told[shapes[0] % b"1.5"] == "field 'at' is '1.5' and no TIMESTAMP"
    for value in bad[:4]:
        assert "field 'n' is '" in told[shapes[1] % value]
        assert told[shapes[2] % value].startswith("field 'm' is '{\"k\":[1,")
        assert told[shapes[1] % value].endswith(SECONDS)
    long = b'{"ms": 1772366400000, "s": "9223372036854775807", "at": 5, "new": [1772366400000]}'
    frame = messages(spark, ("s", long))
    assert [row["ms"] for row in rows(decoded(frame, entries)["v"])] == [1772366400000]


def test_dates_and_times_of_csv(spark: SparkSession) -> None:
    entries: list[dict[str, str]] = [
        {"topic": "json", "view": "j", "format": "json", "schema": "d DATE, n TIMESTAMP_NTZ"},
        {"topic": "csv", "view": "c", "format": "csv", "columns": "t TIMESTAMP, d DATE, v INT"},
    ]
    good = [("json", b'{"d": "2026-03-01", "n": "2026-03-01T01:02:03"}'), ("csv", b"2026-03-01T01:02:03Z,2026-03-01,1")]
    bad = {
        b'{"d": "58133-01-01"}': f"field 'd' is '58133-01-01' and no DATE {FAR}{SECONDS}",
        b'{"d": "1772366400"}': f"field 'd' is '1772366400' and no DATE {FAR}{SECONDS}",
        b"58133-01-01,2026-03-01,1": f"columns: '58133-01-01,2026-03-01,1'; 't' is no TIMESTAMP {FAR}",
        b"2026-03-01,0000-03-01,1": f"columns: '2026-03-01,0000-03-01,1'; 'd' is no DATE {FAR}",
        b"2026-03-01,2026-03-01,x": "the payload does not fit the columns: '2026-03-01,2026-03-01,x'",
    }
    frame = messages(spark, *good, *[("json" if payload[:1] == b"{" else "csv", payload) for payload in bad])
    views = decoded(frame, entries)
    assert [views[name].count() for name in "jc"] == [1, 1]
    told = reasons(undecoded(frame, entries))
    assert list(told) == list(bad)
    assert all(told[payload].endswith(reason) for payload, reason in bad.items())


def test_what_is_no_number(spark: SparkSession) -> None:
    good = [b"1", b" +1.5\r\n", b".5", b"5.", b"-1e3", b"1E+3", b"\x00 7 \x00"]
    bad = [b"1f", b"1d", b"1e5D", b"1e400", b"-1e400", b"NaN", b"Infinity", b"inf", b"0x1f", b"1_0", b"1 2", b"."]
    for kind, more in (("DOUBLE", []), ("FLOAT", [b"1e39"])):
        frame = messages(spark, *[("n", payload) for payload in [*good, *bad, *more]])
        entries = [{"topic": "n", "view": "n", "format": "number", "type": kind}]
        assert [row["value"] for row in rows(decoded(frame, entries)["n"])] == [1, 1.5, 0.5, 5, -1000, 1000, 7]
        told = reasons(undecoded(frame, entries))
        assert told == {payload: f"the payload is '{payload.decode()}' and no {kind}" for payload in [*bad, *more]}


def test_the_first_entry_that_fits_takes_a_message(spark: SparkSession) -> None:
    frame = messages(spark, ("a/b", b"1"), ("a/c", b"2"), ("x", b"3"))
    entries = [
        {"topic": "a/b", "view": "one", "format": "number"},
        {"topic": "a/#", "view": "two", "format": "number", "type": "BIGINT", "column": "n"},
    ]
    views = decoded(frame, entries)
    assert [row["value"] for row in rows(views["one"])] == [1.0]
    assert [row["n"] for row in rows(views["two"])] == [2]
    (rest,) = rows(undecoded(frame, entries))
    assert (rest["_origin"]["offset"], rest["_view"], rest["_reason"]) == (2, None, "no entry of decode fits its topic")


def test_csv_numbers_text_and_bytes(spark: SparkSession) -> None:
    frame = messages(
        spark,
        ("csv", b"1;a"),
        ("csv", b"x;a"),
        ("csv", b"1"),
        ("number", b" -2.5e3\n"),
        ("number", b"high"),
        ("number", b""),
        ("text", "gr\u00fcn".encode()),
        ("text", b"\xff"),
        ("raw", b"\xff"),
    )
    entries = [
        {"topic": "csv", "view": "csv", "format": "csv", "columns": "a INT, `b c` STRING", "separator": ";"},
        {"topic": "number", "view": "number", "format": "number"},
        {"topic": "text", "view": "text", "format": "text"},
        {"topic": "raw", "view": "raw", "format": "raw"},
    ]
    views = {name: rows(view.drop("_origin")) for name, view in decoded(frame, entries).items()}
    assert views == {
        "csv": [{"a": 1, "b c": "a"}],
        "number": [{"value": -2500.0}],
        "text": [{"value": "gr\u00fcn"}],
        "raw": [{"payload": b"\xff"}],
    }
    found = rows(undecoded(frame, entries))
    assert [(row["_view"], row["_origin"]["offset"]) for row in found] == [
        ("csv", 1),
        ("csv", 2),
        ("number", 4),
        ("number", 5),
        ("text", 7),
    ]
    assert found[2]["_reason"] == "the payload is 'high' and no DOUBLE"


def test_csv_is_one_line(spark: SparkSession) -> None:
    payloads = [b"1,a\r\n", b'2,"b\nc"', b"3,", b"4,d\n5", b"6,e\n7,f", b"8,\ng", b"", b"\n"]
    frame = messages(spark, *[("csv", payload) for payload in payloads])
    entries = [{"topic": "csv", "view": "v", "format": "csv", "columns": "a INT, b STRING"}]
    assert [(row["a"], row["b"]) for row in rows(decoded(frame, entries)["v"])] == [(1, "a"), (2, "b\nc"), (3, None)]
    assert list(reasons(undecoded(frame, entries))) == payloads[3:]


def descriptor(folder: Path) -> Path:
    """A descriptor set as protoc writes it: demo.Reading with a scalar of each kind that matters."""
    from google.protobuf import timestamp_pb2
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    file = FileDescriptorProto(name="demo.proto", package="demo", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    level = file.enum_type.add(name="Level")
    for number, name in enumerate(("LOW", "HIGH")):
        level.value.add(name=name, number=number)
    kind = file.message_type.add(name="Reading")
    fields: tuple[tuple[int, str, int, int, str], ...] = (
        (1, "value", 1, 1, ""),
        (2, "big", 1, 4, ""),
        (3, "tags", 3, 9, ""),
        (4, "level", 1, 14, ".demo.Level"),
    )
    fields += ((5, "at", 1, 11, ".google.protobuf.Timestamp"), (6, "inner", 1, 11, ".demo.Inner"))
    for number, name, label, type_, type_name in fields:
        field = kind.field.add(number=number, name=name, type_name=type_name or None)
        field.label = label  # type: ignore[assignment]
        field.type = type_  # type: ignore[assignment]
    inner = file.message_type.add(name="Inner").field.add(number=1, name="n")
    inner.label, inner.type = 1, 5  # type: ignore[assignment]
    stamp = FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    path = folder / "demo.desc"
    path.write_bytes(FileDescriptorSet(file=[stamp, file]).SerializeToString())
    return path


def test_protobuf(spark: SparkSession, tmp_path: Path) -> None:
    file = descriptor(tmp_path)
    reading: Any = message_class(file.read_bytes(), "demo.Reading")(
        value=1.5, big=2**64 - 1, tags=["a", "b"], level=1, at=WHEN, inner={"n": 3}
    )
    far = b"\x2a\x07\x08\xff\xff\xff\xff\xff\x3f"  # at, in seconds beyond the year 9999
    frame = messages(spark, ("p", reading.SerializeToString()), ("p", b"\x09"), ("p", b""), ("q", b"1"), ("p", far))
    entries = [
        {"topic": "p", "view": "p", "format": "protobuf", "descriptor": file.name, "message": "demo.Reading"},
        {"topic": "q", "view": "q", "format": "number"},
    ]
    first, empty = rows(decoded(frame, entries, folder=tmp_path)["p"].drop("_origin"))
    assert first.pop("at").replace(tzinfo=None) == WHEN.replace(tzinfo=None)
    assert first == {"value": 1.5, "big": Decimal(2**64 - 1), "tags": ["a", "b"], "level": "HIGH", "inner": {"n": 3}}
    assert empty == {"value": 0.0, "big": Decimal(0), "tags": [], "level": "LOW", "at": None, "inner": None}
    bad, late = rows(undecoded(frame, entries, folder=tmp_path))
    assert late["_reason"] == "the payload is no Reading in Protobuf: date value out of range"
    assert bad["_origin"]["offset"] == 1
    assert bad["_reason"].startswith("the payload is no Reading in Protobuf: ")


def test_descriptors_that_are_wrong(tmp_path: Path) -> None:
    file = descriptor(tmp_path)
    assert list(message_columns(file, "demo.Inner")) == ["n"]
    with pytest.raises(ProtobufFault, match=r"did you mean 'demo\.Reading'"):
        message_columns(file, "demo.Reding")
    with pytest.raises(ProtobufFault, match="cannot be read"):
        message_columns(tmp_path / "none", "demo.Reading")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ProtobufFault, match="is no descriptor set"):
        message_columns(tmp_path / "text", "demo.Reading")


def test_sparkplug(spark: SparkSession) -> None:
    payload: Any = message_class(payload_descriptor(), "folkmoot.sparkplug.Payload")(
        timestamp=int(WHEN.timestamp() * 1000), seq=7
    )
    payload.metrics.add(name="t", datatype=10, double_value=20.5)
    payload.metrics.add(alias=4, datatype=3, int_value=2**32 - 5)
    payload.metrics.add(name="on", datatype=11, boolean_value=True)
    payload.metrics.add(name="s", datatype=12, is_null=True)
    wrong = [b"\xff\xff", bytes.fromhex("18ffffffffffffffffff01")]
    frame = messages(spark, *[("spBv1.0/g/NDATA/n", one) for one in (payload.SerializeToString(), *wrong)])
    entries = [{"topic": "spBv1.0/{group}/{kind}/{node}", "view": "data", "format": "sparkplug"}]
    (row,) = rows(decoded(frame, entries)["data"])
    assert (row["group"], row["kind"], row["node"], row["seq"]) == ("g", "NDATA", "n", 7)
    assert [(m["name"], m["alias"], m["datatype"], m["number"], m["boolean"]) for m in row["metrics"]] == [
        ("t", None, "Double", 20.5, None),
        (None, 4, "Int32", -5.0, None),
        ("on", None, "Boolean", None, True),
        ("s", None, "String", None, None),
    ]
    assert row["metrics"][3]["is_null"]
    told = reasons(undecoded(frame, entries))
    assert list(told) == wrong
    assert "no payload of Sparkplug B" in told[wrong[0]]
    assert told[wrong[1]].endswith("seq is 18446744073709551615, which is no BIGINT")


def test_expectations(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1,), (-1,), (None,), (200,)], "v INT")
    drop = {"name": "positive", "check": "v > 0"}
    keep = {"name": "odd", "check": "v % 2 = 1", "otherwise": "keep"}
    fail = {"name": "low", "check": "v < 100", "otherwise": "fail"}
    assert [row["v"] for row in rows(with_expectations(frame, "x", [drop, keep]))] == [1, None, 200]
    (gone,) = rows(broken(frame, [Expectation.model_validate(found) for found in (drop, keep)]))
    assert (gone["_expectation"], gone["_reason"], gone["_row"]) == ("positive", "not v > 0", '{"v":-1}')
    with pytest.raises(PySparkException, match=r"expectation 'low' of 'x' does not hold \(v < 100\): \{\"v\":200\}"):
        with_expectations(frame, "x", [drop, fail]).collect()
    dropping = {**drop, "check": "v < 100"}
    assert len(rows(with_expectations(frame, "x", [dropping, fail]))) == 3
