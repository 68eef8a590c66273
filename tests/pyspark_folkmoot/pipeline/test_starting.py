"""The beginning of a run, before there is Spark: the lock comes first, and the status says that it starts."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from folkmoot.cli import pipeline as cli
from pyspark_folkmoot.pipeline.fault import PipelineProblem
from pyspark_folkmoot.pipeline.loading import Loaded, load_pipeline
from pyspark_folkmoot.pipeline.lock import StateLock, held
from pyspark_folkmoot.pipeline.report import report, report_text
from pyspark_folkmoot.pipeline.status import StatusFile, starting
from tests.harness.pipeline import SMALL


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    (tmp_path / "p.yaml").write_text(SMALL, encoding="utf-8")
    return load_pipeline(tmp_path / "p.yaml", {})


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sessions of Spark that were asked for; there are none."""
    asked: list[str] = []

    def session(_loaded: object, master: str, *_: object) -> Any:
        asked.append(master)
        raise PipelineProblem("Spark did not start: no memory")

    monkeypatch.setattr(cli, "session", session)
    monkeypatch.setattr(cli, "catch_signals", lambda _: None)
    return asked


def start(*arguments: str) -> None:
    """Run a command of `folkmoot pipeline` in this process, and let what it raises through."""
    cli.pipeline.main(list(arguments), standalone_mode=False)


def told(loaded: Loaded) -> str:
    found = report(loaded)
    assert found is not None
    return report_text(found)


def test_a_second_driver_is_refused_before_it_starts_spark_or_moves_its_log(
    loaded: Loaded, sessions: list[str]
) -> None:
    file = loaded.folder / "p.yaml"
    with StateLock(loaded.state, "folkmoot pipeline run", "p"):
        log = loaded.state / "spark.log"
        log.write_text("of the first", encoding="utf-8")
        with pytest.raises(PipelineProblem, match="a pipeline has one driver"):
            start("run", str(file))
        with pytest.raises(PipelineProblem, match="a pipeline has one driver"):
            start("backfill", str(file), "--sink", "out")
        assert log.read_text(encoding="utf-8") == "of the first"
        assert not list(loaded.state.glob("spark.log.*"))
        assert report(loaded) is None, "the status is that of the first"
    assert sessions == []


def test_a_backfill_of_no_sink_is_refused_before_spark_starts(loaded: Loaded, sessions: list[str]) -> None:
    with pytest.raises(PipelineProblem, match="there is no sink 'nope'"):
        start("backfill", str(loaded.folder / "p.yaml"), "--sink", "nope")
    assert sessions == []


def test_the_status_says_that_a_run_starts_and_keeps_the_figures(loaded: Loaded) -> None:
    before = StatusFile(loaded)
    before.planned({"out": ("v", ["s"])}, set())
    before.progress("out", {"batchId": 4, "numInputRows": 500})
    before.state("stopped")
    with starting(loaded):
        assert held(loaded.state)
        text = told(loaded)
        assert text.startswith("pipeline p: starting, since ")
        assert "500" in text
    # The status of one that was killed there: it says so still, and nobody has the lock.
    text = told(loaded)
    assert text.startswith("pipeline p: killed while it started, since ")
    assert "500" in text
    found = report(loaded)
    assert found is not None
    assert found["run"]["state"] == "killed"


def test_the_status_says_why_a_run_did_not_start(loaded: Loaded, sessions: list[str]) -> None:
    with pytest.raises(PipelineProblem, match="no memory"):
        start("run", str(loaded.folder / "p.yaml"))
    assert sessions == ["local[*]"]
    text = told(loaded)
    assert text.startswith("pipeline p: failed, since ")
    assert "it did not start: Spark did not start: no memory" in text
    assert not held(loaded.state)
    with suppress(RuntimeError), starting(loaded):
        StatusFile(loaded).state("running")
        raise RuntimeError
    assert told(loaded).startswith("pipeline p: killed, since "), "what came later is not about the start"
