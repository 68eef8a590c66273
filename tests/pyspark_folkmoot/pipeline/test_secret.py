"""Values from the environment are in nothing that is kept or told: status, fingerprints, refusals, reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from folkmoot.cli import pipeline as command
from folkmoot.streams.config import StreamConfig
from pyspark_folkmoot.option import OptionError
from pyspark_folkmoot.pipeline.fault import Faults, PipelineProblem
from pyspark_folkmoot.pipeline.fingerprint import changes, check_fingerprint, fingerprint, keep_fingerprint
from pyspark_folkmoot.pipeline.loading import Loaded, load_pipeline
from pyspark_folkmoot.pipeline.report import report, report_text
from pyspark_folkmoot.pipeline.secret import equal, sealed, shown
from pyspark_folkmoot.pipeline.status import StatusFile
from tests.harness.streamnode import Shelf, StreamNode

FILE = """\
name: p
sources:
  in:
    stream: "${STREAM}"
    decode:
      - {topic: "a/{b}", view: v, format: number, expect: [{name: e, check: "b <> '${KEY}'", otherwise: keep}]}
cluster: {url: "%URL%"}
steps:
  - {name: once, python: "mine:once", inputs: [v], arguments: {key: "${KEY}", pin: "${PIN}", depth: 2}}
  - name: sums
    sql: |
      SELECT b, aes_encrypt(b, '${KEY}') AS c, count(*) FROM v GROUP BY ALL
sinks:
  - {name: out, from: sums, delta: "tables/${FOLDER}", mode: complete}
  - {name: others, from: once, delta: others}
"""
VALUES = {"STREAM": "secret-stream", "KEY": 'a "key"  of mine', "PIN": "12345678", "FOLDER": "secret-folder"}


class Frame:
    dtypes = [("b", "string"), ("_origin", "struct")]


@pytest.fixture(autouse=True)
def plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_folkmoot.pipeline.plan.streams_read", lambda _: ["secret-stream"])


def loaded_of(folder: Path, text: str = FILE, **values: str) -> Loaded:
    (folder / "mine.py").write_text("def once(v, key, pin, depth):\n    return v\n", encoding="utf-8")
    (folder / "p.yaml").write_text(text.replace("%URL%", "127.0.0.1:1"), encoding="utf-8")
    return load_pipeline(folder / "p.yaml", {**VALUES, **values})


def print_of(loaded: Loaded, sink: int = 0) -> dict[str, Any]:
    found = loaded.model.sinks[sink]
    frame: Any = Frame()
    return fingerprint(loaded, found.from_, frame, found, {"sums": ["an aggregation"], "once": ["a function"]}, {})


def no_secret(text: str) -> None:
    for value in VALUES.values():
        assert value not in text
        assert json.dumps(value)[1:-1] not in text


def test_fingerprints_have_no_secrets_and_see_them_change(tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path)
    for sink, told in ((0, "step 'sums', which keeps state (an aggregation)"), (1, "step 'once'")):
        found = print_of(loaded, sink)
        no_secret(json.dumps(found))
        checkpoint = tmp_path / "checkpoints" / f"q{sink}"
        keep_fingerprint(checkpoint, found)
        checkpoint.mkdir()
        (checkpoint / "metadata").touch()
        check_fingerprint(checkpoint, print_of(loaded_of(tmp_path), sink), "q", True)
        with pytest.raises(PipelineProblem) as caught:
            check_fingerprint(checkpoint, print_of(loaded_of(tmp_path, KEY="another key"), sink), "q", True)
        assert f"{told}" in str(caught.value)
        assert "has another value from the environment: " in str(caught.value)
        no_secret(str(caught.value))
        assert "another key" not in str(caught.value)
        assert "sealed" not in str(caught.value)
    moved = print_of(loaded_of(tmp_path, STREAM="other-stream", FOLDER="other-folder"))
    assert [line.split(":")[0] for line in changes(print_of(loaded), moved)][-1] == "sink"


def test_fingerprints_of_an_older_version_follow_and_are_not_shown(tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path)
    clear = "SELECT b, aes_encrypt(b, 'a \"key\" of mine') AS c, count(*) FROM v GROUP BY ALL"
    now = print_of(loaded)
    old = {key: shown(value) for key, value in now.items()}
    old |= {"version": 1, "streams": ["secret-stream"], "sink": {"delta": "tables/secret-folder", "mode": "complete"}}
    old["step 'sums', which keeps state (an aggregation)"] = clear
    assert changes(old, now) == []
    old["step 'sums', which keeps state (an aggregation)"] = "SELECT 'an old secret'"
    (line,) = changes(old, now)
    assert "was another, is SELECT b, aes_encrypt(b, '${KEY}')" in line
    del now["sink"]
    assert "gone: sink" in changes(old, now)


def test_what_is_a_secret_may_change(tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path)
    value = {"a": ["x", "secret-stream"], "b": 5}
    hidden = sealed(loaded, value)
    no_secret(json.dumps(hidden))
    assert shown(hidden) == {"a": ["x", "${STREAM}"], "b": 5}
    assert equal(value, hidden)
    assert equal(hidden, value)
    assert equal(hidden, sealed(loaded_of(tmp_path, FOLDER="stream"), value)), "another mask of the same"
    assert not equal(hidden, {"a": ["x", "secret-streams"], "b": 5})
    assert not equal(hidden, {"a": ["x"], "b": 5})


def test_status_and_report_have_no_secrets(tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path, FILE + 'quarantine: "${FOLDER}/q"\n')
    with StreamNode(Shelf(StreamConfig("secret-stream", b"a/#", 1))) as node:
        node.publish("a/x", [b"1", b"2", b"3"])
        (tmp_path / "p.yaml").write_text(FILE.replace("%URL%", node.url), encoding="utf-8")
        loaded = load_pipeline(tmp_path / "p.yaml", VALUES)
        for _ in range(2):
            status = StatusFile(loaded)
            status.planned({"out": ("sums", ["secret-stream"])}, set())
            assert status.found["queries"]["out"]["ends"] in ({}, {"secret-stream": {"0": 1}})
            metrics = {"expect:v": {"rows": 10, "broken_0": 1}}
            progress = {"batchId": 1, "sources": [{"endOffset": {"0": 1}}], "observedMetrics": metrics}
            status.progress("out", progress)
            status.state("running")
        no_secret((loaded.state / "status.json").read_text(encoding="utf-8"))
        found = report(loaded)
    assert found is not None
    assert found["queries"]["out"]["behind"] == {"${STREAM}": 2}, "the node is asked for the stream by its name"
    no_secret(json.dumps(found))
    text = report_text(found)
    no_secret(text)
    assert "b <> '${KEY}'" in text


@pytest.mark.parametrize(
    "error", [PipelineProblem('no a "key"  of mine'), OSError(28, "No space left on device", "secret-folder/x")]
)
def test_what_ends_a_command_is_masked(tmp_path: Path, error: Exception) -> None:
    loaded = loaded_of(tmp_path)
    with pytest.raises(PipelineProblem) as caught, command.faults_told(loaded):
        raise error
    no_secret(str(caught.value))
    assert str(caught.value) in ("no ${KEY}", "${FOLDER}/x: No space left on device")


def test_faults_of_a_file_are_masked(tmp_path: Path) -> None:
    text = FILE.replace("cluster:", '  rooms: {table: "${FOLDER}", format: parquet}\ncluster:')
    with pytest.raises(Faults, match=r"there is no \$\{FOLDER\} beside"):
        loaded_of(tmp_path, text)


def test_a_wrong_option_ends_a_command_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineProblem, match="option 'x' is wrong"), command.faults_told(loaded_of(tmp_path)):
        raise OptionError("option 'x' is wrong")
