"""Topics, schemas, intervals, and the names in SQL: the small languages of a pipeline file."""

from __future__ import annotations

import pytest

from pyspark_folkmoot.pipeline.ddl import parse_schema
from pyspark_folkmoot.pipeline.infer import infer_schema
from pyspark_folkmoot.pipeline.interval import interval_text, parse_interval
from pyspark_folkmoot.pipeline.relation import relations
from pyspark_folkmoot.pipeline.topic import TopicPattern


@pytest.mark.parametrize(
    ("pattern", "topic", "fits"),
    [
        ("a/{x}/c", "a/b/c", True),
        ("a/{x}/c", "a//c", True),
        ("a/{x}/c", "a/b/c/d", False),
        ("a/{x}/c", "a/b/c\n", False),
        ("a/{x}", "a/b\nc", True),
        ("a/+/c", "a/b/c", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab", False),
        ("#", "x/y", True),
        ("a.b/{x}", "axb/c", False),
        ("$SYS/{x}", "$SYS/c", True),
        ("ö/{x}", "ö/ü", True),
    ],
)
def test_topics(pattern: str, topic: str, fits: bool) -> None:
    assert TopicPattern(pattern).fits(topic) is fits


def test_levels_are_bound() -> None:
    found = TopicPattern("nyc/{kind}/+/{carrier}/#")
    assert (found.names, found.levels, found.prefix) == (["kind", "carrier"], [1, 3], "nyc/")


def test_schemas() -> None:
    text = "a INT, `b c` DECIMAL(10, 2) NOT NULL, d array<struct<e: string, f map<string, double>>> comment 'x', g date"
    assert parse_schema(text) == {
        "a": "INT",
        "b c": "DECIMAL(10,2)",
        "d": "ARRAY<STRUCT<e: STRING, f: MAP<STRING, DOUBLE>>>",
        "g": "DATE",
    }


def test_intervals() -> None:
    for text, milliseconds in (
        ("2 seconds", 2_000),
        ("500ms", 500),
        ("1 h 30 min", 5_400_000),
        ("7 days", 604_800_000),
    ):
        assert parse_interval(text) == milliseconds
        assert parse_interval(interval_text(milliseconds)) == milliseconds
    for wrong in ("", "2", "2 fortnights", "seconds", 2, None, "1 h x"):
        with pytest.raises(ValueError, match="is no time"):
            parse_interval(wrong)


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM a JOIN b ON x = y, c", ["a", "b"]),
        ("SELECT * FROM a, `b-c` AS z, d WHERE x IN (1, e)", ["a", "b-c", "d"]),
        ("WITH x AS (SELECT * FROM a), y AS (SELECT * FROM x) SELECT * FROM y", ["a"]),
        ("SELECT extract(hour FROM t), trim(both from u) FROM a -- FROM b\n/* JOIN c */", ["a"]),
        ("SELECT ' FROM b ' FROM a WHERE x IS DISTINCT FROM y", ["a"]),
        ("SELECT * FROM (SELECT * FROM a) JOIN (b CROSS JOIN c)", ["a", "b", "c"]),
        ("SELECT * FROM STREAM a WATERMARK t DELAY OF INTERVAL 1 MINUTE", ["a"]),
        ("SELECT * FROM STREAM(a)", ["a"]),
        ("SELECT * FROM range(10), catalog.db.t", []),
        ("SELECT * FROM a UNION ALL SELECT * FROM b GROUP BY x, y", ["a", "b"]),
        ("SELECT * FROM a LATERAL VIEW explode(x) t AS u, v", ["a"]),
    ],
)
def test_names_in_sql(sql: str, names: list[str]) -> None:
    assert [name for name, _ in relations(sql)] == names


def test_lines_of_names_in_sql() -> None:
    assert relations("SELECT *\nFROM a\n -- x\nJOIN b") == [("a", 2), ("b", 4)]


def test_schemas_are_inferred() -> None:
    payloads = [b'{"a": 1, "b": null, "d": {"e": [1]}}', b"[1]", b"no", b'{"a": 1.5, "c": true, "d": {"e": ["x"]}}']
    assert infer_schema(payloads) == "`a` DOUBLE, `b` STRING, `c` BOOLEAN, `d` STRUCT<`e`: ARRAY<STRING>>"
    assert infer_schema([b"1", b'{"a": NaN}', b'{"a": ' + b"[" * 100_000]) == ""
