"""Where queries begin and end together, and by what rows are dropped, without Spark: from state and a node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from folkmoot.client.problem import StreamProblem
from folkmoot.streams.config import StreamConfig
from pyspark_folkmoot.pipeline.checkpoint import begun, checkpoint_of, position
from pyspark_folkmoot.pipeline.fault import PipelineProblem
from pyspark_folkmoot.pipeline.loading import Loaded, load_pipeline
from pyspark_folkmoot.pipeline.query import beside, query_views
from pyspark_folkmoot.pipeline.rule import check_rules, keep_rules, rules_of
from pyspark_folkmoot.pipeline.start import begins, common_ends
from tests.harness.streamnode import Shelf, StreamNode

FILE = """\
name: p
cluster: {url: "%URL%"}
sources:
  in:
    stream: s
    patience: 1 second
    start: latest
    decode:
      - {topic: "s/{b}", view: v, format: number, expect: [{name: e, check: "value < ${LIMIT}"}]}
steps:
  - {name: w, sql: "SELECT value * 2 AS x, _origin FROM v", expect: [{name: even, check: "x % 4 = 0"}]}
sinks:
  - {name: raw, from: v, delta: raw}
  - {name: out, from: w, delta: out}
"""


@pytest.fixture
def node() -> Iterator[StreamNode]:
    with StreamNode(Shelf(StreamConfig("s", b"s/#", 2))) as node:
        node.publish("s/a", [b"1", b"2", b"3"])
        yield node


def loaded_of(folder: Path, node: StreamNode, old: str = "", new: str = "", limit: str = "9000") -> Loaded:
    (folder / "p.yaml").write_text(FILE.replace("%URL%", node.url).replace(old, new), encoding="utf-8")
    return load_pipeline(folder / "p.yaml", {"LIMIT": limit})


def starts_of(loaded: Loaded) -> dict[str, Any]:
    views = query_views(loaded)
    return begins(loaded, views, beside(loaded, views))


def ends_of(node: StreamNode) -> dict[int, int]:
    return {log.index: log.readable_end for log in node.shelf.streams.streams[0].logs}


def at(loaded: Loaded, name: str, *batches: dict[int, int], done: bool = True) -> None:
    """Make the checkpoint of a query that reads stream s, with these ends of its batches."""
    checkpoint = checkpoint_of(loaded.state, name)
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    checkpoint.with_name(f"{name}.json").write_text('{"streams": ["s"]}', encoding="utf-8")
    for number, batch in enumerate(batches):
        end: dict[str, Any] = {str(partition): offset for partition, offset in batch.items()}
        text = f"v1\n{{}}\n{json.dumps({**end, 'start': {'0': 0}} if number == 0 else end)}"
        (checkpoint / "offsets" / str(number)).write_text(text, encoding="utf-8")
        if done or number < len(batches) - 1:
            (checkpoint / "commits" / str(number)).write_text("v1\n{}", encoding="utf-8")


def test_queries_and_what_they_stand_beside(node: StreamNode, tmp_path: Path) -> None:
    views = query_views(loaded_of(tmp_path, node))
    assert views == {"raw": "v", "out": "w", "quarantine-in": "in", "quarantine-v": "v", "quarantine-w": "w"}
    assert beside(loaded_of(tmp_path, node), views) == {
        "quarantine-in": ["raw", "out"],
        "quarantine-v": ["raw", "out"],
        "quarantine-w": ["out"],
    }


def test_all_queries_begin_at_one_latest_place(node: StreamNode, tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path, node)
    here = {"in": {"s": ends_of(node)}}
    assert starts_of(loaded) == dict.fromkeys(query_views(loaded), here)
    node.publish("s/a", [b"4", b"5"])
    assert starts_of(loaded) == dict.fromkeys(query_views(loaded), here), "kept until they have begun, and afterwards"
    at(loaded, "raw", {0: 90, 1: 80})
    assert starts_of(loaded) == dict.fromkeys(query_views(loaded), here)


def test_a_time_is_one_place_too_and_another_one_is_asked_anew(node: StreamNode, tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path, node, "start: latest", "start: 2030-01-01T00:00:00Z")
    here = {"in": {"s": ends_of(node)}}
    assert starts_of(loaded)["out"] == here, "nothing of that time is there yet"
    node.publish("s/a", [b"4", b"5"])
    assert starts_of(loaded)["quarantine-w"] == here
    past = loaded_of(tmp_path, node, "start: latest", "start: 2020-01-01T00:00:00Z")
    assert starts_of(past)["out"] == {"in": {"s": {0: 0, 1: 0}}}
    two = "sources:\n  other: {stream: s}"
    assert starts_of(loaded_of(tmp_path, node, "sources:", two))["out"] == {"in": {"s": ends_of(node)}}


def test_a_new_sink_begins_at_the_end_and_a_new_quarantine_where_its_sinks_are(
    node: StreamNode, tmp_path: Path
) -> None:
    first = loaded_of(tmp_path, node, ', expect: [{name: even, check: "x % 4 = 0"}]')
    starts_of(first)
    begin = ends_of(node)
    at(first, "out", {partition: end + 1 for partition, end in begin.items()})
    for number in range(20):
        node.publish(f"s/{number}", [b"4", b"5"])
    now = ends_of(node)
    assert all(now[partition] > begin[partition] + 1 for partition in begin)
    found = starts_of(loaded_of(tmp_path, node, "sinks:", "sinks:\n  - {name: third, from: v, delta: third}"))
    assert found["third"] == {"in": {"s": now}}
    assert found["quarantine-w"] == {"in": {"s": {partition: end + 1 for partition, end in begin.items()}}}
    assert found["quarantine-v"] == {"in": {"s": begin}}


def test_a_new_quarantine_beside_a_sink_whose_place_is_not_sure_begins_where_that_began(
    node: StreamNode, tmp_path: Path
) -> None:
    first = loaded_of(tmp_path, node, ', expect: [{name: even, check: "x % 4 = 0"}]')
    starts_of(first)
    begin = ends_of(node)
    at(first, "out", begin, {0: 500, 1: 500}, done=False)
    node.publish("s/a", [b"4"])
    assert starts_of(loaded_of(tmp_path, node))["quarantine-w"] == {"in": {"s": begin}}


def test_nobody_begins_where_nobody_knows(node: StreamNode, tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path, node)
    node.stop()
    with pytest.raises(StreamProblem):
        starts_of(loaded)
    assert common_ends(loaded) == {}, "the queries say what is wrong"
    node.start()
    assert common_ends(loaded) == {"s": ends_of(node)}
    earliest = loaded_of(tmp_path, node, "start: latest", "start: earliest")
    assert not any(starts_of(earliest).values())
    (loaded.state / "starts.json").parent.mkdir(parents=True, exist_ok=True)
    (loaded.state / "starts.json").write_text("[", encoding="utf-8")
    with pytest.raises(PipelineProblem, match=r"starts.json is damaged"):
        starts_of(loaded)


def test_the_place_of_a_query(node: StreamNode, tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path, node)
    checkpoint = checkpoint_of(loaded.state, "raw")
    assert not begun(checkpoint)
    assert position(checkpoint, ["s"]) is None
    at(loaded, "raw", {0: 1, 1: 0}, {0: 5, 1: 6})
    assert begun(checkpoint)
    assert position(checkpoint, ["s"]) == {"s": {0: 5, 1: 6}}
    assert position(checkpoint, ["s", "t"]) is None
    newest = checkpoint / "offsets" / "1"
    newest.write_text('v1\n{}\n{"0": 5, "1": 6}\n{"0": 5, "1": 7}', encoding="utf-8")
    assert position(checkpoint, ["s", "s"]) is None, "at two places"
    assert position(checkpoint, ["s", "t"]) == {"s": {0: 5, 1: 6}, "t": {0: 5, 1: 7}}
    for text in ("v2\n{}\n{}", "v1\n{}\n-", "v1\n{}\n7"):
        newest.write_text(text, encoding="utf-8")
        assert position(checkpoint, ["s"]) is None
    at(loaded, "raw", {0: 1, 1: 0}, {0: 5, 1: 6}, {0: 7, 1: 7}, done=False)
    assert position(checkpoint, ["s"]) is None, "a batch is not done"


def check(loaded: Loaded) -> None:
    check_rules(loaded, rules_of(loaded))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("x % 4 = 0", "x % 2 = 0", "expectation 'even' of 'w': was x % 4 = 0, is x % 2 = 0"),
        (
            "value * 2 AS x",
            "value * 3 AS x",
            "step 'w': was SELECT value * 2 AS x, _origin FROM v, is SELECT value * 3",
        ),
        (', expect: [{name: even, check: "x % 4 = 0"}]', "", "gone: expectation 'even' of 'w' (x % 4 = 0)"),
    ],
)
def test_rules_change_only_where_the_queries_are_together(
    node: StreamNode, tmp_path: Path, old: str, new: str, told: str
) -> None:
    before = loaded_of(tmp_path, node)
    check(before)
    keep_rules(before, rules_of(before))
    after = loaded_of(tmp_path, node, old, new)
    check(after)  # nobody has begun
    for name in ("raw", "out", "quarantine-v"):
        at(before, name, {0: 1, 1: 1})
    at(before, "out", {0: 5, 1: 5})
    with pytest.raises(PipelineProblem) as caught:
        check(after)  # there are rows of the sink that its quarantine has not looked at
    assert told in str(caught.value)
    assert "`folkmoot pipeline run FILE --once`" in str(caught.value)
    at(before, "quarantine-w", {0: 5, 1: 4})
    with pytest.raises(PipelineProblem, match="out, quarantine-w are not at the same position"):
        check(after)
    check(before)
    at(before, "quarantine-w", {0: 5, 1: 5})
    check(after)
    at(before, "quarantine-w", {0: 5, 1: 5}, {0: 9, 1: 9}, done=False)
    with pytest.raises(PipelineProblem, match="one of them has an incomplete batch"):
        check(after)
    (before.state / "rules.json").unlink()
    check(after)


def test_a_rule_that_only_the_environment_changes(node: StreamNode, tmp_path: Path) -> None:
    before = loaded_of(tmp_path, node)
    keep_rules(before, rules_of(before))
    assert "9000" not in (before.state / "rules.json").read_text(encoding="utf-8")
    at(before, "raw", {0: 1, 1: 1})
    check(loaded_of(tmp_path, node))
    with pytest.raises(PipelineProblem) as caught:
        check(loaded_of(tmp_path, node, limit="8000"))
    assert "expectation 'e' of 'v': has another value from the environment: value < ${LIMIT}" in str(caught.value)


def test_a_sink_that_is_no_more_holds_up_nothing(node: StreamNode, tmp_path: Path) -> None:
    before = loaded_of(tmp_path, node)
    keep_rules(before, rules_of(before))
    at(before, "raw", {0: 1, 1: 1})
    for name in ("out", "quarantine-v", "quarantine-w"):
        at(before, name, {0: 5, 1: 5})
    after = loaded_of(tmp_path, node, "  - {name: raw, from: v, delta: raw}\n")
    check_rules(after, rules_of(loaded_of(tmp_path, node, "${LIMIT}", "7")))
    with pytest.raises(PipelineProblem, match="raw, out, quarantine-v are not at the same position"):
        check(loaded_of(tmp_path, node, "${LIMIT}", "7"))


def test_the_choices_of_changed_rules_name_all_that_is_to_be_made_anew(node: StreamNode, tmp_path: Path) -> None:
    """The second one needs no batch by the old rules: after it nothing is left that was judged by them."""
    mqtt = "\n  - {name: told, from: topics, mqtt: {}}\n"
    topics = "  - {name: topics, sql: \"SELECT 't' AS topic, CAST(x AS STRING) AS payload FROM w\"}\n"
    text = FILE.replace("sinks:\n", topics + "sinks:\n").rstrip() + mqtt
    (tmp_path / "p.yaml").write_text(text.replace("%URL%", node.url), encoding="utf-8")
    before = load_pipeline(tmp_path / "p.yaml", {"LIMIT": "9000"})
    keep_rules(before, rules_of(before))
    at(before, "raw", {0: 1, 1: 1})
    for name in ("out", "told", "quarantine-v", "quarantine-w"):
        at(before, name, {0: 5, 1: 5})
    with pytest.raises(PipelineProblem) as caught:
        check(load_pipeline(tmp_path / "p.yaml", {"LIMIT": "7"}))
    (way,) = [line for line in str(caught.value).splitlines() if line.startswith("  - if that is no longer possible")]
    folder = before.state / "checkpoints"
    assert f"remove {before.state / 'rules.json'} and {folder / 'quarantine-v'}, {folder / 'quarantine-w'}; " in way
    assert "`expectation IS NOT NULL AND (step = 'v' OR step = 'w')`" in way
    assert "`folkmoot pipeline backfill FILE --sink raw`, `folkmoot pipeline backfill FILE --sink out`" in way
    assert "What told has cannot be taken back" in way
    (last,) = [line for line in str(caught.value).splitlines() if "rules.json alone" in line]
    assert "are then in neither table, or in both" in last
