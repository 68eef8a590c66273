"""Declared pipelines in a real Spark, from the stream of a node to tables: exact, restarted, refused, rebuilt."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from folkmoot.demo.broken import broken_events, spread
from folkmoot.demo.expected import alert_counts, differences, expected_alerts, expected_gold
from folkmoot.demo.flight import events
from folkmoot.streams.config import StreamConfig
from pyspark_folkmoot.pipeline.analyse import analyse, known_schemas
from pyspark_folkmoot.pipeline.backfill import backfill
from pyspark_folkmoot.pipeline.engine import run_pipeline
from pyspark_folkmoot.pipeline.explain import explain
from pyspark_folkmoot.pipeline.fault import Faults, PipelineProblem
from pyspark_folkmoot.pipeline.loading import Loaded, load_pipeline
from pyspark_folkmoot.pipeline.report import report, report_text
from tests.docs.page import ROOT, blocks
from tests.harness.streamnode import Shelf, StreamNode

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PIPELINE = """\
name: flights
cluster: {url: "%URL%"}
trigger: once
sources:
  nyc:
    stream: s
    rows_per_trigger: 500
    decode:
      - topic: "s/flights/{origin}/{carrier}"
        view: flights
        format: json
        schema: "time TIMESTAMP, delay DOUBLE"
        expect:
          - {name: sane, check: "delay < 2000"}
          - {name: early, check: "delay >= 0", otherwise: keep}
      - {topic: "s/weather/{origin}", view: weather, format: json, schema: infer}
  airports: {table: airports.csv, format: csv, schema: "faa STRING, name STRING"}
  delays: {sink: silver}
steps:
  - name: late
    sql: |
      SELECT f.time, f.origin, a.name, carrier, delay, f._origin
      FROM flights f JOIN airports a ON f.origin = a.faa
    expect:
      - {name: known, check: "carrier <> 'XX'"}
  - name: doubled
    python: "scoring:double"
    inputs: [late]
    arguments: {factor: 2}
  - name: gold
    sql: SELECT carrier, count(*) AS flights, max(delay) AS worst FROM delays GROUP BY carrier
  - name: counts
    sql: SELECT origin, count(*) AS n FROM flights GROUP BY origin
sinks:
  - {name: bronze, from: nyc, delta: tables/bronze}
  - {name: silver, from: late, delta: tables/silver, partition_by: [origin]}
  - {name: scored, from: doubled, parquet: tables/scored}
  - {name: gold, from: gold, delta: tables/gold}
  - {name: counts, from: counts, delta: tables/counts, mode: update, keys: [origin]}
  - {name: totals, from: counts, delta: tables/totals, mode: complete}
quarantine: tables/quarantine
"""

SCORING = "def double(late, factor):\n    return late.selectExpr('carrier', f'delay * {factor} AS twice')\n"


@pytest.fixture
def node() -> Iterator[StreamNode]:
    with StreamNode(Shelf(StreamConfig("s", b"s/#", 3))) as node:
        yield node


def write(folder: Path, node: StreamNode, text: str = PIPELINE) -> Loaded:
    (folder / "airports.csv").write_text("faa,name\nJFK,Kennedy\nEWR,Newark\n", encoding="utf-8")
    (folder / "scoring.py").write_text(SCORING, encoding="utf-8")
    file = folder / "flights.yaml"
    file.write_text(text.replace("%URL%", node.url), encoding="utf-8")
    return load_pipeline(file, {})


def fill(node: StreamNode, count: int, first: int = 0) -> None:
    """Flights with the delays 0 to count - 1, of two airports and three airlines."""
    for origin in ("JFK", "EWR"):
        for carrier in ("AA", "UA", "XX"):
            payloads = [
                b'{"time": "2026-03-01T00:00:00Z", "delay": %d}' % number
                for number in range(first, first + count)
                if number % 6 == ("AA", "UA", "XX").index(carrier) * 2 + (origin == "EWR")
            ]
            node.publish(f"s/flights/{origin}/{carrier}", payloads)


def weather(node: StreamNode) -> None:
    node.publish("s/weather/JFK", [b'{"temp": 20.5}', b'{"temp": "hot"}', b'{"temp": 1, "gust": 2}'])


def run(spark: SparkSession, loaded: Loaded, status: int = 0) -> list[str]:
    said: list[str] = []
    assert run_pipeline(spark, loaded, said.append, threading.Event()) == status, "\n".join(said)
    return said


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(folder / "tables" / name)).to_pyarrow_table().to_pylist()
    return found


def test_everything_of_a_pipeline(spark: SparkSession, node: StreamNode, tmp_path: Path) -> None:
    fill(node, 600)
    node.publish("s/flights/JFK/AA", [b'{"delay": 5000}', b"broken"])
    node.publish("s/other", [b"?"])
    node.publish("s/weather/JFK", [b'{"temp": 20.5}'] * 10)
    loaded = write(tmp_path, node)
    said = run(spark, loaded)
    assert said[-1].startswith("finished: ")
    pinned = json.loads((tmp_path / "state/flights/schemas/weather.json").read_text(encoding="utf-8"))
    assert pinned["schema"] == "`temp` DOUBLE"
    fill(node, 60, first=600)
    node.publish("s/weather/JFK", [b'{"temp": "hot"}', b'{"temp": 1, "gust": 2}'])
    run(spark, loaded)

    assert len(table(tmp_path, "bronze")) == 660 + 15
    silver = table(tmp_path, "silver")
    assert sorted(row["delay"] for row in silver) == [number for number in range(660) if number % 6 < 4]
    assert set(silver[0]) == {"time", "origin", "name", "carrier", "delay"}
    assert {row["name"] for row in silver} == {"Kennedy", "Newark"}
    scored = spark.read.parquet(str(tmp_path / "tables/scored"))
    assert scored.selectExpr("sum(twice)").collect()[0][0] == 2 * sum(row["delay"] for row in silver)
    gold = {row["carrier"]: (row["flights"], row["worst"]) for row in table(tmp_path, "gold")}
    assert gold == {"AA": (220, 655.0), "UA": (220, 657.0)}
    for name in ("counts", "totals"):
        assert {row["origin"]: row["n"] for row in table(tmp_path, name)} == {"JFK": 330, "EWR": 330}

    quarantine = table(tmp_path, "quarantine")
    by_reason = sorted((row["step"] or "", row["expectation"] or "", row["reason"]) for row in quarantine)
    dropped = [row for row in by_reason if row[0] == "late"]
    assert dropped == [("late", "known", "not carrier <> 'XX'")] * 220
    assert [row for row in by_reason if row[0] != "late"] == [
        ("", "", "no entry of decode fits its topic"),
        ("flights", "", "the payload is no JSON object"),
        ("flights", "sane", "not delay < 2000"),
        ("weather", "", "field 'temp' is 'hot' and no DOUBLE"),
    ]
    places = [(row["stream"], row["partition"], row["offset"]) for row in quarantine]
    assert len(set(places)) == len(places) == 224
    (sane,) = [row for row in quarantine if row["expectation"] == "sane"]
    assert (sane["source"], sane["topic"], sane["payload"]) == ("nyc", "s/flights/JFK/AA", b'{"delay": 5000}')

    found = report(loaded)
    assert found is not None
    assert found["run"]["state"] == "finished"
    counts = {name: (count["rows"], count["broken"]) for name, count in found["expectations"].items()}
    assert counts == {"flights.sane": (661, 1), "flights.early": (661, 0), "late.known": (660, 220)}
    assert found["views"]["weather"]["with_new_fields"] == 1
    assert found["views"]["weather"]["new_field"] == "gust"
    assert {name: query["rows"] for name, query in found["queries"].items() if "ends" in query} == dict.fromkeys(
        ["bronze", "silver", "scored", "counts", "totals", "quarantine-nyc", "quarantine-flights", "quarantine-late"],
        675,
    )
    assert found["queries"]["bronze"]["behind"] == {"s": 0}
    node.publish("s/other", [b"1", b"2"])
    assert report(loaded)["queries"]["bronze"]["behind"] == {"s": 2}  # type: ignore[index]
    assert "view weather: 1 of 12 messages have fields that are not in its schema, such as 'gust'" in report_text(found)
    text = explain(loaded, analyse(spark, loaded, known_schemas(loaded, pin=False)))
    assert "keeps state an aggregation" in text
    assert "made anew when its tables change" in text


SMALL = """\
name: small
cluster: {url: "%URL%"}
trigger: once
sources:
  in: {stream: s, decode: [{topic: "s/{place}", view: numbers, format: number}]}
steps:
  - {name: high, sql: "SELECT place, value FROM numbers WHERE value >= 0"}
sinks:
  - {name: out, from: high, delta: out}
"""


def test_changes_that_a_checkpoint_cannot_follow(spark: SparkSession, node: StreamNode, tmp_path: Path) -> None:
    node.publish("s/a", [b"1", b"2"])
    run(spark, write(tmp_path, node, SMALL))
    node.publish("s/a", [b"3"])
    harmless = SMALL.replace("value >= 0", "value >= 3").replace("{stream: s,", "{stream: s, rows_per_trigger: 7,")
    run(spark, write(tmp_path, node, harmless))
    rows = DeltaTable(str(tmp_path / "out")).to_pyarrow_table().to_pylist()
    assert sorted(row["value"] for row in rows) == [1.0, 2.0, 3.0]
    changes = {
        'topic: "s/{place}"': (
            'topic: "s/{place}/#"',
            "decoding of view 'numbers': topic was s/{place}, is s/{place}/#",
        ),
        "SELECT place, value": ("SELECT value", "columns: was place string, value double, is value double"),
        "delta: out": ("delta: other", "sink: delta was out, is other"),
        "WHERE value >= 0": ("GROUP BY place, value", "new: step 'high', which keeps state (an aggregation)"),
    }
    for old, (new, told) in changes.items():
        text = SMALL.replace(old, new)
        if "GROUP" in new:
            text = text.replace("delta: out", "delta: out, mode: complete")
        with pytest.raises(PipelineProblem) as caught:
            run(spark, write(tmp_path, node, text))
        assert told in str(caught.value)
        assert "folkmoot pipeline backfill FILE --sink out" in str(caught.value)


def test_a_table_is_made_anew(spark: SparkSession, node: StreamNode, tmp_path: Path) -> None:
    node.publish("s/a", [b"1", b"-2", b"3"])
    run(spark, write(tmp_path, node, SMALL))
    loaded = write(
        tmp_path, node, SMALL.replace("place, value FROM", "place, value * 10 AS v FROM").replace(" >= 0", " > 1")
    )
    with pytest.raises(PipelineProblem, match="is incompatible with"):
        run(spark, loaded)
    said: list[str] = []
    assert backfill(spark, loaded, "out", None, None, said.append) == 0
    assert [row["v"] for row in DeltaTable(str(tmp_path / "out")).to_pyarrow_table().to_pylist()] == [30.0]
    node.publish("s/a", [b"4"])
    run(spark, loaded)
    found = DeltaTable(str(tmp_path / "out")).to_pyarrow_table().to_pylist()
    assert sorted(row["v"] for row in found) == [30.0, 40.0]
    (old,) = tmp_path.glob("out.before-*")
    assert DeltaTable(str(old)).to_pyarrow_table().num_rows == 2

    def later(shelf: Shelf) -> None:
        shelf.now += 10_000_000
        shelf.publish("s/a", b"5")

    node.run(later)
    assert backfill(spark, loaded, "out", "earliest", "2023-11-14T22:13:25Z", said.append) == 0
    found = DeltaTable(str(tmp_path / "out")).to_pyarrow_table().to_pylist()
    assert sorted(row["v"] for row in found) == [30.0, 40.0]
    run(spark, loaded)
    found = DeltaTable(str(tmp_path / "out")).to_pyarrow_table().to_pylist()
    assert sorted(row["v"] for row in found) == [30.0, 40.0, 50.0]
    with pytest.raises(PipelineProblem, match="did you mean 'out'"):
        backfill(spark, loaded, "oot", None, None, said.append)


def test_what_the_analyzer_finds(spark: SparkSession, node: StreamNode, tmp_path: Path) -> None:
    weather(node)
    text = PIPELINE.replace("carrier <> 'XX'", "carier <> 'XX'").replace("[origin]}", "[orign]}", 1)
    text = text.replace("f.time, f.origin", "f.time,\n        f.orign, f.origin").replace("delay >= 0", "delay + 1")
    text = text.replace("mode: update, keys: [origin]", "mode: append").replace("[late]", "[flights]")
    text = text.replace("max(delay)", "maxx(delay)")
    loaded = write(tmp_path, node, text)
    with pytest.raises(Faults) as caught:
        analyse(spark, loaded, known_schemas(loaded, pin=False))
    lines = text.splitlines()
    found = {lines[fault.line - 1].strip(): fault.text for fault in caught.value.faults}
    for part, told in {
        "f.orign, f.origin": "cannot be resolved. Did you mean",
        "early": "is double: it must be true or false",
    }.items():
        assert any(part in line and told in text for line, text in found.items()), found
    loaded = write(
        tmp_path,
        node,
        text.replace("f.orign, ", "").replace("delay + 1", "delay > 1").replace("carier <>", "carrier <>"),
    )
    with pytest.raises(Faults) as caught:
        analyse(spark, loaded, known_schemas(loaded, pin=False))
    texts = " | ".join(fault.text for fault in caught.value.faults)
    assert "step 'gold': " in texts
    assert "maxx" in texts
    assert "step 'doubled'" not in texts
    assert "partition_by names 'orign', which is no column of 'late'; did you mean 'origin'?" in texts
    assert "needs a watermark in mode append" in texts


def test_faults_of_a_run_are_told(spark: SparkSession, node: StreamNode, tmp_path: Path) -> None:
    node.publish("s/a", [b"1", b"-2"])
    text = SMALL.replace('>= 0"}', '< 9", expect: [{name: positive, check: "value > 0", otherwise: fail}]}')
    said = run(spark, write(tmp_path, node, text), status=1)
    told = "\n".join(said)
    assert "sink 'out' failed in its first batch: " in told
    assert 'expectation \'positive\' of \'high\' does not hold (value > 0): {"place":"a","value":-2.0}' in told
    assert "use 'otherwise: drop'" in told
    found = report(write(tmp_path, node, text))
    assert found is not None
    assert found["run"]["state"] == "failed"
    assert "positive" in found["queries"]["out"]["error"]


def test_a_reader_that_retention_passed(spark: SparkSession, node: StreamNode, tmp_path: Path) -> None:
    node.shelf.configs[0].retention_us = 50_000_000
    node.run(Shelf.reopen)
    node.publish("s/a", [b"1"])
    run(spark, write(tmp_path, node, SMALL))
    node.publish("s/a", [b"2"])

    def later(shelf: Shelf) -> None:
        shelf.now += 100_000_000
        shelf.trim()
        shelf.publish("s/a", b"3")

    node.run(later)
    told = "\n".join(run(spark, write(tmp_path, node, SMALL), status=1))
    assert "are gone by retention" in told
    assert "set 'lost: skip' at the source" in told
    skip = SMALL.replace("{stream: s,", "{stream: s, lost: skip,")
    run(spark, write(tmp_path, node, skip))
    rows = DeltaTable(str(tmp_path / "out")).to_pyarrow_table().to_pylist()
    assert sorted(row["value"] for row in rows) == [1.0, 3.0]


WINDOWS = """\
name: windows
cluster: {url: "%URL%"}
trigger: once
sources:
  in:
    stream: s
    rows_per_trigger: 3
    decode: [{topic: "s/a", view: v, format: json, schema: "t TIMESTAMP", watermark: {t: 1 minute}}]
steps:
  - {name: minutes, sql: "SELECT window.start AS minute, count(*) AS n FROM v GROUP BY window(t, '1 minute')"}
sinks:
  - {name: out, from: minutes, delta: out}
"""


def test_late_rows_are_counted(spark: SparkSession, node: StreamNode, tmp_path: Path) -> None:
    times = ["12:00:01", "12:00:02", "12:01:00", "12:30:00", "12:30:01", "12:30:02"]
    times += ["12:45:00", "12:45:01", "12:45:02", "12:00:03", "12:46:00", "12:46:01"]
    node.publish("s/a", [b'{"t": "2026-03-01T%sZ"}' % time.encode() for time in times])
    loaded = write(tmp_path, node, WINDOWS)
    run(spark, loaded)
    rows = DeltaTable(str(tmp_path / "out")).to_pyarrow_table().to_pylist()
    assert {row["minute"].strftime("%H:%M"): row["n"] for row in rows} == {"12:00": 2, "12:01": 1, "12:30": 3}
    found = report(loaded)
    assert found is not None
    assert found["queries"]["out"]["late"] == 1
    assert (
        "out: 1 late rows, or groups of them, arrived later than the watermark permits and are in no result"
        in report_text(found)
    )


def test_the_page_for_beginners_is_true(spark: SparkSession, tmp_path: Path) -> None:
    page = ROOT / "docs" / "pipeline" / "start.md"
    (tmp_path / "rooms.csv").write_text(blocks(page, "csv")[0], encoding="utf-8")
    with StreamNode(Shelf(StreamConfig("readings", b"sensors/#", 8))) as node:
        for number in (1, 2, 3):
            payload = f'{{"at": "2026-03-01T12:0{number}:00Z", "value": 2{number}.5}}'
            node.publish("sensors/hall/temperature", [payload.encode()])
        wrong = [b'{"at": "2026-03-01T12:01:00Z", "value": 900}', b"low battery"]
        node.publish("sensors/attic/temperature", wrong)
        file = tmp_path / "rooms.yaml"
        text = blocks(page, "yaml")[0].replace('"127.0.0.1:8080"', f'"{node.url}"')
        file.write_text(text.replace("state:", "trigger: once\nstate:"), encoding="utf-8")
        run(spark, load_pipeline(file, {}))
    (gold,) = table(tmp_path, "gold")
    assert (gold["place"], gold["kind"], gold["readings"], gold["mean"]) == ("hall", "temperature", 3, 22.5)
    told = page.read_text(encoding="utf-8")
    for row in table(tmp_path, "quarantine"):
        assert f"{row['topic']} {row['payload']!r} {row['reason']}" in told
    assert len(table(tmp_path, "bronze")) == 5
    assert {row["floor"] for row in table(tmp_path, "silver")} == {0}


def test_the_flights_as_a_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    found = events(range(1, 2))[:3000]
    broken = broken_events()
    with StreamNode(Shelf(StreamConfig("nyc", b"nyc/#", 4))) as node:
        for event in spread(broken, found):
            node.shelf.publish(event.topic, event.payload)
        file = tmp_path / "flights.yaml"
        text = (ROOT / "examples" / "flights" / "flights.yaml").read_text(encoding="utf-8")
        # This node has no clients; with clients and kills it is `make run`.
        file.write_text(text.replace("mqtt: {qos: 2}", "delta: tables/alerts"), encoding="utf-8")
        loaded = load_pipeline(file, {"FOLKMOOT_URL": node.url})
        loaded.model = loaded.model.model_copy(update={"trigger": "once"})
        run(spark, loaded)
    assert len(table(tmp_path, "silver")) == 3000
    assert len(table(tmp_path, "bronze")) == 3000 + len(broken)
    gold = DeltaTable(str(tmp_path / "tables" / "gold")).to_pyarrow_table().to_pandas()
    assert differences(gold, expected_gold(found)) == 0
    alerts = [(row["topic"], row["payload"].encode()) for row in table(tmp_path, "alerts")]
    assert alert_counts(alerts) == expected_alerts(found)
    assert len(alerts) > 10
    quarantined = table(tmp_path, "quarantine")
    assert Counter((row["topic"], row["payload"]) for row in quarantined) == Counter(
        (event.topic, event.payload) for event in broken
    )
    assert Counter(row["expectation"] for row in quarantined) == {None: 8, "kind_known": 4}
    alone = load_pipeline(ROOT / "examples" / "flights" / "alerts.yaml", {"FOLKMOOT_URL": "127.0.0.1:1"})
    columns = analyse(spark, alone, {}).columns["late"]
    assert columns == [("topic", "string"), ("payload", "string")]


STILL = """\
name: still
cluster: {url: "%URL%"}
trigger: once
sources:
  in: {stream: s, decode: [{topic: "s/{place}", view: numbers, format: number}]}
  written: {sink: out}
steps:
  - {name: few, sql: "SELECT place FROM written"}
sinks:
  - {name: out, from: numbers, delta: tables/out}
  - {name: few, from: few, delta: tables/few}
"""


def test_a_table_made_of_tables_may_get_other_columns(spark: SparkSession, node: StreamNode, tmp_path: Path) -> None:
    node.publish("s/a", [b"1"])
    run(spark, write(tmp_path, node, STILL))
    assert table(tmp_path, "few") == [{"place": "a"}]
    run(spark, write(tmp_path, node, STILL.replace("SELECT place", "SELECT value AS number, place")))
    assert table(tmp_path, "few") == [{"number": 1.0, "place": "a"}]


COUNTS = """\
name: counts
cluster: {url: "%URL%"}
trigger: once
sources:
  in: {stream: s, decode: [{topic: "s/{place}", view: numbers, format: number}]}
steps:
  - {name: counts, sql: "SELECT place, count(*) AS n, max(value) AS high FROM numbers GROUP BY place"}
sinks:
  - {name: counts, from: counts, delta: tables/counts, mode: update, keys: [place], partition_by: [place]}
"""


def test_an_empty_level_is_one_partition(spark: SparkSession, node: StreamNode, tmp_path: Path) -> None:
    for _ in range(2):
        node.publish("s/", [b"1"])
        node.publish("s/a", [b"2"])
        run(spark, write(tmp_path, node, COUNTS))
    assert {row["place"]: row["n"] for row in table(tmp_path, "counts")} == {None: 2, "a": 2}
    assert len(table(tmp_path, "counts")) == 2
    wrong = write(tmp_path, node, COUNTS.replace("partition_by: [place]", "partition_by: [high]"))
    with pytest.raises(Faults, match="partition_by names 'high', which is double: a table can be partitioned by text"):
        analyse(spark, wrong, {})


TWO = """\
name: two
cluster: {url: "%URL%"}
trigger: once
sources:
  both:
    streams: [s, t]
    decode: [{topic: "+/{place}", view: v, format: json, schema: "at TIMESTAMP, id BIGINT", watermark: {at: 1 hour}}]
steps:
  - {name: fresh, python: "once:fresh", inputs: [v]}
  - {name: found, sql: "SELECT _origin.stream, place, id FROM fresh"}
sinks:
  - {name: raw, from: both, delta: raw}
  - {name: out, from: found, delta: out}
  - {name: lines, from: found, format: json, options: {path: "%FOLDER%/lines"}}
"""


def test_several_streams_a_function_with_state_and_any_format(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "once.py").write_text("def fresh(v):\n    return v.dropDuplicatesWithinWatermark(['id'])\n")
    with StreamNode(Shelf(StreamConfig("s", b"s/#", 2), StreamConfig("t", b"t/#", 1))) as node:
        payloads = [b'{"at": "2026-03-01T12:00:00Z", "id": %d}' % number for number in (1, 2, 2, 3)]
        node.publish("s/a", payloads)
        node.publish("t/b", payloads[2:])
        node.publish("t/b", [b'{"at": "2026-03-01T12:00:00Z", "id": 4}', b"no"])
        text = TWO.replace("%FOLDER%", str(tmp_path))
        loaded = write(tmp_path, node, text)
        run(spark, loaded)
        node.publish("s/c", [*payloads, b'{"at": "2026-03-01T12:00:00Z", "id": 5}'])
        run(spark, loaded)
        dropping = text.replace("inputs: [v]", 'inputs: [v], expect: [{name: e, check: "id > 1"}]')
        wrong = write(tmp_path, node, dropping)
        with pytest.raises(Faults, match=r"drops rows of 'fresh', which keeps state .dropDuplicatesWithinWatermark."):
            analyse(spark, wrong, {})
        with pytest.raises(PipelineProblem, match="streams: was s, t, is t, s"):
            run(spark, write(tmp_path, node, text.replace("[s, t]", "[t, s]")))
    rows = DeltaTable(str(tmp_path / "out")).to_pyarrow_table().to_pylist()
    assert sorted(row["id"] for row in rows) == [1, 2, 3, 4, 5]
    assert {row["stream"] for row in rows if row["id"] in (1, 4, 5)} == {"s", "t"}
    assert sorted(row.id for row in spark.read.json(str(tmp_path / "lines")).collect()) == [1, 2, 3, 4, 5]
    raw = DeltaTable(str(tmp_path / "raw")).to_pyarrow_table().to_pylist()
    assert len({(row["stream"], row["partition"], row["offset"]) for row in raw}) == len(raw) == 13
    (bad,) = DeltaTable(str(tmp_path / "state" / "two" / "quarantine")).to_pyarrow_table().to_pylist()
    assert (bad["stream"], bad["topic"], bad["step"]) == ("t", "t/b", "v")
