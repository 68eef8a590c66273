"""A pipeline file is read with its lines; every fault says where it is, what is wrong, and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_folkmoot.pipeline.decode import source_options
from pyspark_folkmoot.pipeline.fault import Faults
from pyspark_folkmoot.pipeline.loading import Loaded, load_pipeline
from pyspark_folkmoot.pipeline.lock import StateLock
from pyspark_folkmoot.pipeline.model import MqttSink, StreamSource

GOOD = """\
name: flights
cluster: {url: "127.0.0.1:8080", token: "${TOKEN}"}
sources:
  nyc:
    stream: nyc
    decode:
      - {topic: "nyc/flights/{origin}/{carrier}", view: flights, format: json, schema: "time TIMESTAMP, delay DOUBLE"}
      - {topic: "nyc/weather/{origin}", view: weather, format: json, schema: infer}
  airports: {table: airports.csv, format: csv, schema: "faa STRING, name STRING"}
steps:
  - name: late
    sql: |
      SELECT f.*, a.name
      FROM flights f JOIN airports a ON f.origin = a.faa
    expect:
      - {name: sane, check: "delay < 2000"}
sinks:
  - {name: bronze, from: nyc, delta: tables/bronze}
  - {name: silver, from: late, delta: tables/silver, partition_by: [origin], compact: 1 hour, vacuum: 7 days}
"""


def load(folder: Path, text: str, **environment: str) -> Loaded:
    (folder / "airports.csv").write_text("faa,name\nJFK,Kennedy\n", encoding="utf-8")
    file = folder / "p.yaml"
    file.write_text(text, encoding="utf-8")
    return load_pipeline(file, {"TOKEN": "a-secret-token", **environment})


@pytest.fixture(autouse=True)
def linked(tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(tmp_path / "tables")


def faults(folder: Path, text: str) -> list[tuple[int, str]]:
    with pytest.raises(Faults) as caught:
        load(folder, text)
    return [(fault.line, fault.text) for fault in caught.value.faults]


def test_a_good_file(tmp_path: Path) -> None:
    found = load(tmp_path, GOOD)
    assert list(found.graph.views) == ["nyc", "flights", "weather", "airports", "late"]
    assert found.graph.views["late"].inputs == ["flights", "airports"]
    assert found.graph.needed("late") == ["nyc", "flights", "airports", "late"]
    assert found.graph.streaming("late")
    assert not found.graph.streaming("airports")
    assert found.state == tmp_path / "state" / "flights"
    assert found.quarantine == str(tmp_path / "state" / "flights" / "quarantine")
    assert found.model.trigger == 2_000
    assert found.token == "a-secret-token"
    assert found.masked("x a-secret-token y") == "x ${TOKEN} y"


CASES = [
    ("name: flights", "nmae: flights", 1, "no key 'nmae'; did you mean 'name'?"),
    ("name: flights\n", "", 1, "needs the key 'name'"),
    ("${TOKEN}", "${TOKNE}", 2, "'${TOKNE}' is not set in the environment"),
    ("${TOKEN}", "${a b}", 2, "names no variable"),
    ("cluster: {url", "cluster: {ulr", 2, "no key 'ulr'; did you mean 'url'?"),
    ("127.0.0.1:8080", "http://[", 2, "not an address of a node"),
    ("    stream: nyc\n", "    stream: nyc\n    start: earlyest\n", 6, "start is where to begin"),
    ("    stream: nyc\n", "", 4, "one of 'stream' and 'streams'"),
    ("    stream: nyc\n", "    streams: [a, b]\n    start: {0: 1}\n", 6, "offsets are of one stream"),
    ("    stream: nyc\n", "    stream: nyc\n    stream: b\n", 6, "'stream' comes twice: it is at line 5"),
    ("format: json, schema: infer", "format: jsn, schema: infer", 8, "did you mean 'json'? formats: json, csv"),
    ("format: json, schema: infer", "schema: infer", 8, "needs the key 'format'"),
    ("delay DOUBLE", "delay DUBLE", 7, "'DUBLE' of column 'delay' is no type; did you mean 'DOUBLE'?"),
    ("delay DOUBLE", "delay", 7, "the column 'delay' has no type"),
    ("delay DOUBLE", "delay DOUBLE,", 7, "it ends with a comma"),
    ("delay DOUBLE", "origin DOUBLE", 7, "gets 'origin' twice: from the topic and the payload"),
    ("delay DOUBLE", "delay ARRAY<DOUBLE", 7, "'>' is missing"),
    ("flights/{origin}/{carrier}", "flights/{origin}/{origin}", 7, "the column 'origin' is bound twice"),
    ("flights/{origin}/{carrier}", "flights/x{origin}", 7, "must be a whole level in braces"),
    ("flights/{origin}/{carrier}", "flights/#/{origin}", 7, "# can only be the last level"),
    ("flights/{origin}/{carrier}", "weather/{site}", 8, "never gets a message: line 7 matches the same topics"),
    ("view: weather", "view: Flights", 8, "the name 'Flights' is taken: line 7"),
    ("airports.csv", "airprts.csv", 9, "there is no airprts.csv beside the pipeline's file"),
    ("format: csv", "format: cvs", 9, "did you mean 'csv'? valid: csv, parquet, delta"),
    (', schema: "faa STRING, name STRING"', "", 9, "needs the key 'schema'"),
    ("FROM flights", "FROM flihgts", 14, "reads 'flihgts', and there is no such view; did you mean 'flights'?"),
    ("FROM flights", "FROM late", 11, "'late' is made of itself: late <- late"),
    ("name: sane", "naem: sane", 16, "no key 'naem'; did you mean 'name'? valid keys: name, check, otherwise"),
    ('"delay < 2000"}', '"delay < 2000", otherwise: dorp}', 16, "did you mean 'drop'? valid: drop, keep, fail"),
    ('2000"}', '2000"}\n      - {name: Sane, check: "true"}', 17, "'Sane' comes twice"),
    ("name: silver, from: late", "name: silver, from: layte", 19, "did you mean 'late'? views: nyc, flights"),
    ("name: silver", "name: Bronze", 19, "the name 'Bronze' is taken: line 18"),
    ("tables/silver", "tables/bronze", 19, "sink 'silver' and sink 'bronze' write the same folder"),
    ("partition_by", "partitionBy", 19, "did you mean 'partition_by'?"),
    ("vacuum: 7 days", "vacuum: 6 days", 19, "vacuum is 6 days: at least 7 days"),
    ("vacuum: 7 days", "vacuum: soon", 19, "'soon' is no time"),
    ("vacuum: 7 days", "mode: update", 19, "mode update and 'keys'"),
    ("vacuum: 7 days", "every: 1 hour", 19, "'every' is for views of tables alone"),
    ("tables/silver, partition_by", "x, mqtt: {qos: 3}, partition_by", 19, "has no key 'mqtt'"),
    ("delta: tables/bronze", "mqtt: {qso: 1}", 18, "did you mean 'qos'? valid keys: qos, retain, patience"),
    ("from: late, delta", "from: airports, parquet", 19, "no key 'partition_by'|made of tables alone"),
    ("tables/silver", "s3://b/silver", 19, "must be on a local or mounted disk"),
    ("cluster:", "state: s3://b/x\ncluster:", 2, "state is s3://b/x: it must be a folder on a local or mounted disk"),
    ("cluster:", "quarantine: s3://b/x\ncluster:", 2, "the quarantine is s3://b/x: it must be a folder on a local"),
    ("tables/silver", "tables/bronze/x", 19, "(tables/bronze/x) lies within sink 'bronze' (tables/bronze)"),
    ("tables/silver", "tables", 19, "sink 'silver' (tables) contains sink 'bronze' (tables/bronze)"),
    ("tables/silver", "x/../tables/./bronze/", 19, "sink 'silver' and sink 'bronze' write the same folder"),
    ("tables/silver", "linked/bronze", 19, "sink 'silver' and sink 'bronze' write the same folder"),
    ("tables/silver", ".", 19, "sink 'silver' (.) contains the pipeline's file (p.yaml)"),
    ("tables/silver", "..", 19, "sink 'silver' (..) contains the pipeline's file (p.yaml)"),
    ("tables/silver", "airports.csv", 19, "contains what sources.airports reads (airports.csv)"),
    ("tables/silver", "state", 19, "sink 'silver' (state) contains the state folder (state/flights)"),
    ("tables/silver", "state/flights/x", 19, "lies within the state folder (state/flights)"),
    ("cluster:", "state: tables\ncluster:", 20, "sink 'silver' (tables/silver) lies within the state folder (tables)"),
    ("cluster:", "quarantine: tables/silver/q\ncluster:", 20, "contains the quarantine (tables/silver/q)"),
    ("cluster:", "quarantine: state/flights/x\ncluster:", 2, "the quarantine (state/flights/x) lies within the state"),
    ("delta: tables/bronze", "parquet: tables/silver/b", 19, "contains sink 'bronze' (tables/silver/b)"),
    ("[origin]", "[origin, Origin]", 19, "sink 'silver': partition_by names 'origin' twice"),
    ("vacuum: 7 days", "mode: update, keys: [a, b, a]", 19, "sink 'silver': keys names 'a' twice"),
    ("partition_by: [origin]", "partition_by: origin", 19, "partition_by is 'origin': write a list, such as [a]"),
    ("tables/silver", "airports.csv", 19, "sink 'silver' is airports.csv, and "),
    ("tables/silver", "airports.csv/x", 19, "airports.csv is a file: name a folder"),
    ("cluster:", "state: airports.csv\ncluster:", 2, "the state folder is airports.csv, and "),
    ("cluster:", "quarantine: airports.csv\ncluster:", 2, "the quarantine is airports.csv, and "),
    ("stream: nyc\n", "stream: nyc\n    rows_per_trigger: true\n", 6, "is true, which is no whole number from 1 to"),
    (
        "stream: nyc\n",
        "stream: nyc\n    rows_per_trigger: 9" + "9" * 22 + "\n",
        6,
        "no whole number from 1 to 2,147,483,647",
    ),
    ("stream: nyc\n", "stream: nyc\n    rows_per_trigger: " + "9" * 9_999 + "\n", 6, "no whole number from 1 to"),
    ("stream: nyc\n", "stream: nyc\n    tasks: 1.5\n", 6, "tasks is 1.5, which is no whole number from 1 to 100,000"),
    ("stream: nyc\n", "stream: nyc\n    start: {0: 9" + "9" * 22 + "}\n", 6, "start is where to begin"),
    ("stream: nyc\n", "stream: 5\n", 5, "stream is 5: write a text; a number needs quotes"),
    ("cluster:", "trigger: 99999999999999999999 days\ncluster:", 2, "is too long: 36500 days at most"),
    ("cluster:", "trigger: " + "9" * 999 + " days\ncluster:", 2, "is too long: 36500 days at most"),
    ("delta: tables/bronze", "mqtt: {qos: true}", 18, "mqtt.qos is true, which is no QoS: write the number 0, 1 or 2"),
    ("delta: tables/bronze", "mqtt: {qos: '1'}", 18, "qos is '1', which is no QoS: write the number 1, without quotes"),
    ("delta: tables/bronze", "mqtt: {retain: yes}", 18, "retain is 'yes', which is neither true nor false: write"),
    ("delta: tables/bronze", "mqtt: {retain: 1}", 18, "retain is 1, which is neither true nor false: write true"),
    ("delta: tables/bronze", "mqtt: ", 18, "mqtt is empty: write keys with values: {qos: 1}, or {} for that"),
    ("cluster:", "spark:\ncluster:", 2, "spark is empty: write keys with values: master, conf"),
    ("cluster:", "spark: {conf: {a: [1]}}\ncluster:", 2, "spark.conf.a is a list, which is no setting: write a text"),
    ("cluster:", "spark: {conf: [1]}\ncluster:", 2, "spark.conf is a list: write keys with values"),
    ("cluster:", "<<: {a: 1}\ncluster:", 2, "'<<' (a merge of YAML) is not supported: write the keys out"),
    ("cluster:", "? [a, b]\n: 1\ncluster:", 2, "a list cannot be a key: write a name"),
    ("cluster:", "x: " + "[" * 500 + "]" * 500 + "\ncluster:", 2, "is nested more than 30 levels deep"),
    ("cluster:", "quarantine: \x00\ncluster:", 2, "is no YAML: the character U+0000 cannot stand in it"),
    ("    sql: |", '    inputs: [nyc]\n    python: "no:f"\n    sql: |', 14, "has no key 'sql'"),
]


@pytest.mark.parametrize(("old", "new", "line", "text"), CASES, ids=[case[3][:40] for case in CASES])
def test_a_fault(tmp_path: Path, old: str, new: str, line: int, text: str) -> None:
    assert old in GOOD
    found = faults(tmp_path, GOOD.replace(old, new, 1))
    assert any(at == line and any(part in told for part in text.split("|")) for at, told in found), found


def test_one_fault_is_one_line(tmp_path: Path) -> None:
    for text in ("spark: {conf: {a: [1]}}\n", "spark: {conf: {a: }}\n", "spark: 5\n", "trigger: [1]\n"):
        assert len(faults(tmp_path, text + GOOD)) == 1
    sink = GOOD.replace("delta: tables/bronze", "mqtt: ")
    assert len(faults(tmp_path, sink)) == 1


def test_words_that_quotes_made_texts(tmp_path: Path) -> None:
    text = GOOD.replace("delta: tables/bronze", 'mqtt: {retain: "${R}"}')
    text = text.replace("stream: nyc\n", 'stream: nyc\n    rows_per_trigger: "${N}"\n')
    found = load(tmp_path, text, R="true", N="7").model
    source, sink = found.sources["nyc"], found.sinks[0]
    assert isinstance(source, StreamSource)
    assert isinstance(sink, MqttSink)
    assert (source.rows_per_trigger, sink.mqtt.retain) == (7, True)


def test_aliases_that_grow(tmp_path: Path) -> None:
    lines = ["a: &a [" + ", ".join("x" * 9) + "]"]
    lines += [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in zip("abcdef", "bcdefg", strict=True)]
    ((line, told),) = faults(tmp_path, "\n".join([*lines, GOOD]))
    assert line == 6  # the first five lines are fewer than 9**6
    assert told == "has more than 100,000 values, each alias (*NAME) counted with all that it stands for"
    ((line, told),) = faults(tmp_path, GOOD + "x: &x [*x, *x]\n")
    assert line == GOOD.count("\n") + 1
    assert "more than 100,000 values" in told


def test_all_faults_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = (
        GOOD.replace("partition_by", "partitionBy").replace("FROM flights", "FROM flihgts").replace("${TOKEN}", "${X}")
    )
    assert [line for line, _ in faults(tmp_path, text)] == [2, 14, 19]


def test_cycles_also_through_tables(tmp_path: Path) -> None:
    text = GOOD.replace("sources:\n", "sources:\n  old: {sink: silver}\n").replace("JOIN airports", "JOIN old")
    (line, told), (_, join) = faults(tmp_path, text)
    assert line == 4
    assert "'old' is made of itself: old <- late <- old" in told
    assert "made of a stream and of the table" in join


def test_tables_alone_have_no_quarantine(tmp_path: Path) -> None:
    step = '  - {name: few, sql: "SELECT * FROM airports", expect: [{name: e, check: "true"}]}\n'
    text = GOOD.replace("sinks:\n", step + "sinks:\n  - {name: few, from: few, delta: tables/few}\n")
    ((line, told),) = faults(tmp_path, text)
    assert line == 17
    assert "made of tables alone" in told
    load(tmp_path, text.replace('check: "true"}', 'check: "true", otherwise: fail}'))


def test_places_that_may_be_near_each_other(tmp_path: Path) -> None:
    for text in ("state: s\nquarantine: s/quarantine\n", "quarantine: tables/silver.bad\n", "state: ../elsewhere\n"):
        load(tmp_path, text + GOOD)
    load(tmp_path, GOOD.replace("tables/silver", str(tmp_path / "other")))
    same = GOOD.replace("airports: {table: airports.csv, format: csv", "airports: {table: tables/bronze, format: delta")
    (tmp_path / "tables/bronze").mkdir(parents=True)
    load(tmp_path, same)


def test_a_stream_is_not_joined_with_the_table_of_a_sink(tmp_path: Path) -> None:
    text = GOOD.replace("sources:\n", "sources:\n  old: {sink: bronze}\n").replace("JOIN airports", "JOIN old")
    text = text.replace("steps:\n", "steps:\n  - {name: later, sql: SELECT * FROM late}\n")
    ((line, told),) = faults(tmp_path, text)
    assert text.splitlines()[line - 1].strip() == "- name: late"
    assert told.startswith("'late' is made of a stream and of the table of sink 'bronze', which would stay what it was")
    load(tmp_path, text.replace("FROM flights f", "FROM old f").replace('2000"}', '2000", otherwise: fail}'))


def test_a_state_folder_belongs_to_one_pipeline(tmp_path: Path) -> None:
    shared = "state: state\n" + GOOD
    with StateLock(load(tmp_path, shared).state, "run", "flights"):
        pass
    load(tmp_path, shared)
    told = r"p.yaml:1: the state folder state belongs to the pipeline 'flights': .* remove .*state/pipeline"
    with pytest.raises(Faults, match=told):
        load(tmp_path, shared.replace("name: flights", "name: other"))
    load(tmp_path, GOOD.replace("name: flights", "name: other"))


def test_what_is_published_comes_in_batches_with_a_bound(tmp_path: Path) -> None:
    text = GOOD.replace("delta: tables/bronze}", "mqtt: {}}").replace("stream: nyc\n", "stream: nyc\n%s")
    for written, rows in (("", 100_000), ("    rows_per_trigger: 7\n", 7)):
        found = load(tmp_path, text % written)
        source = found.graph.views["nyc"].made_by
        assert isinstance(source, StreamSource)
        assert source is found.model.sources["nyc"]
        assert source.rows_per_trigger == rows
        assert source_options(source, "u", None, "nyc")["maxRecordsPerTrigger"] == str(rows)
    source = load(tmp_path, GOOD).model.sources["nyc"]
    assert isinstance(source, StreamSource)
    assert source.rows_per_trigger is None


@pytest.mark.parametrize("token", ["01234567", "123e5", "true", "0.10", "a-word"])
def test_a_token_may_look_like_a_number(tmp_path: Path, token: str) -> None:
    for written in ('cluster: {url: "127.0.0.1:8080", token: "${TOKEN}"}', "cluster:\n  url: n:1\n  token: ${TOKEN}"):
        found = load(tmp_path, GOOD.replace(GOOD.splitlines()[1], written), TOKEN=token)
        assert found.token == token
    numbers = GOOD.replace("stream: nyc\n", "stream: ${S}\n    rows_per_trigger: ${N}\n")
    numbers = numbers.replace('token: "${TOKEN}"', "url_: 1").replace(", url_: 1", "")
    source = load(tmp_path, numbers, S="007", N="9").model.sources["nyc"]
    assert isinstance(source, StreamSource)
    assert (source.names, source.rows_per_trigger) == (["007"], 9)


def test_secrets_that_are_numbers_are_still_checked(tmp_path: Path) -> None:
    text = GOOD.replace("stream: nyc\n", "stream: ${S}\n    rows_per_trigger: ${N}\n")
    with pytest.raises(Faults, match=r"p.yaml:6: sources.nyc.rows_per_trigger is '\$\{N\}', which is no whole number"):
        load(tmp_path, text, S="12345", N="-1")


def test_a_variable_within_braces_needs_quotes(tmp_path: Path) -> None:
    ((line, told),) = faults(tmp_path, GOOD.replace('"${TOKEN}"', "${TOKEN}"))
    assert line == 2
    assert told.startswith("is no YAML: ")
    assert told.endswith('; within braces a variable needs quotes: {token: "${NAME}"}')


def test_secrets_are_not_in_messages(tmp_path: Path) -> None:
    for place in ("trigger: ${SECRET}\n", "spark: {master: [${SECRET}]}\n", "quarantine: {a: '${SECRET}'}\n"):
        with pytest.raises(Faults) as caught:
            load(tmp_path, place + GOOD, SECRET="hush-hush-hush")
        assert "hush" not in str(caught.value)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    assert faults(tmp_path, "") == [(1, "is empty: a pipeline has name, sources and sinks")]
    assert "is no YAML" in faults(tmp_path, "a: [1")[0][1]
    for text, what in (("# x\n- 1\n", "a list"), ("# x\nhello\n", "a text")):
        assert faults(tmp_path, text) == [(2, f"is {what}: a pipeline has keys, among them name, sources and sinks")]
    with pytest.raises(Faults, match=r"none\.yaml: cannot be read: No such file"):
        load_pipeline(tmp_path / "none.yaml")


def test_words_of_yaml_stay_words(tmp_path: Path) -> None:
    found = load(tmp_path, GOOD.replace("stream: nyc", "stream: no\n    start: 2026-03-01"))
    source = found.model.sources["nyc"]
    assert isinstance(source, StreamSource)
    assert source.names == ["no"]
    assert source.start == "2026-03-01"


def test_functions_are_looked_for(tmp_path: Path) -> None:
    step = '  - {name: scored, python: "scoring:scoer", inputs: [late]}\n'
    text = GOOD.replace("sinks:\n", step + "sinks:\n")
    assert "scoring.py is missing" in faults(tmp_path, text)[0][1]
    (tmp_path / "scoring.py").write_text("def score(late):\n    return late\n", encoding="utf-8")
    assert "did you mean 'score'?" in faults(tmp_path, text)[0][1]
    (tmp_path / "scoring.py").write_text("def score(:\n", encoding="utf-8")
    assert "scoring.py:1" in faults(tmp_path, text)[0][1]
