"""Tables and checkpoints that do not belong together: what is refused before a run, and what is told."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pyspark_folkmoot.pipeline.checkpoint import checkpoint_of
from pyspark_folkmoot.pipeline.engine import Engine
from pyspark_folkmoot.pipeline.fault import PipelineProblem
from pyspark_folkmoot.pipeline.loading import Loaded, load_pipeline
from pyspark_folkmoot.pipeline.match import check_tables, keep_quarantine

FILE = """\
name: p
sources:
  in: {stream: s, decode: [{topic: "a/{b}", view: v, format: number}]}
  again: {sink: out}
steps:
  - {name: counted, sql: SELECT count(*) AS n FROM again}
cluster: {url: "127.0.0.1:1"}
sinks:
  - {name: out, from: v, delta: out}
  - {name: files, from: v, parquet: files}
  - {name: counts, from: counted, delta: counts}
"""


def loaded_of(folder: Path, text: str = FILE) -> Loaded:
    (folder / "p.yaml").write_text(text, encoding="utf-8")
    return load_pipeline(folder / "p.yaml", {})


def batches(loaded: Loaded, name: str, done: int) -> None:
    """Stand for the checkpoint of a query that has done batches, and has one that is not done."""
    checkpoint = checkpoint_of(loaded.state, name)
    for folder, count in (("offsets", done + 1), ("commits", done)):
        (checkpoint / folder).mkdir(parents=True)
        for number in range(count):
            (checkpoint / folder / str(number)).touch()
    (checkpoint / "metadata").touch()


def table(path: Path, rows: int) -> None:
    write_deltalake(str(path), pa.table({"n": list(range(rows))}))


def test_a_delta_table_that_is_gone_is_refused_with_the_choices(tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path)
    check_tables(loaded)
    batches(loaded, "out", 0)
    check_tables(loaded)  # a first batch that is not done need not have made the table
    shutil.rmtree(checkpoint_of(loaded.state, "out"))
    batches(loaded, "out", 3)
    with pytest.raises(PipelineProblem) as refused:
        check_tables(loaded)
    text = str(refused.value)
    assert (
        f"the table at {tmp_path / 'out'} is missing, but according to the checkpoint of sink 'out' 3 batches are"
        in text
    )
    assert "folkmoot pipeline backfill FILE --sink out" in text
    assert f"remove {checkpoint_of(loaded.state, 'out')}: " in text
    (tmp_path / "out").mkdir()
    with pytest.raises(PipelineProblem):  # a folder without the disk that is mounted there otherwise
        check_tables(loaded)
    table(tmp_path / "out", 0)
    check_tables(loaded)


def test_a_table_made_of_tables_may_be_removed(tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path)
    batches(loaded, "counts", 3)
    check_tables(loaded)


def test_parquet_needs_its_checkpoint_and_its_table(tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path)
    batches(loaded, "files", 1)
    with pytest.raises(PipelineProblem, match="checkpoint of sink 'files' 1 batch is in it") as refused:
        check_tables(loaded)
    assert "backfill" not in str(refused.value)
    log = tmp_path / "files" / "_spark_metadata"
    log.mkdir(parents=True)
    check_tables(loaded)
    (log / "0").touch()
    check_tables(loaded)
    shutil.rmtree(loaded.state)
    with pytest.raises(PipelineProblem, match="Spark would mistake the first batches for those and skip them"):
        check_tables(loaded)
    (log / "0").unlink()
    check_tables(loaded)


def test_a_quarantine_that_is_gone_is_refused_unless_the_file_names_another(tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path)
    keep_quarantine(loaded)
    batches(loaded, "quarantine-in", 2)
    with pytest.raises(PipelineProblem, match="according to the checkpoints of quarantine-in 2 batches are in it"):
        check_tables(loaded)
    other = loaded_of(tmp_path, FILE + "quarantine: elsewhere\n")
    check_tables(other)
    keep_quarantine(other)
    with pytest.raises(PipelineProblem, match=r"the quarantine at .*elsewhere is missing"):
        check_tables(other)
    table(tmp_path / "elsewhere", 0)
    check_tables(other)


def test_a_query_that_begins_anew_beside_rows_of_before_is_told(tmp_path: Path) -> None:
    loaded = loaded_of(tmp_path)
    said: list[str] = []
    engine = Engine.__new__(Engine)
    engine.loaded = loaded
    engine._say = said.append
    engine._stages = None
    engine.status = SimpleNamespace(state=lambda _: None)  # type: ignore[assignment]
    engine.running = {}
    query: Any = SimpleNamespace(isActive=False)
    planned: Any = SimpleNamespace(
        name="out", sink=loaded.model.sinks[0], checkpoint=checkpoint_of(loaded.state, "out"), start=lambda: query
    )
    engine.planned = [planned]
    stop: Any = SimpleNamespace(is_set=lambda: False)
    engine._start(stop)
    table(tmp_path / "out", 1234)
    engine._start(stop)
    batches(loaded, "out", 1)
    engine._start(stop)
    lines = [line for line in said if line != "running"]
    assert lines[0] == "begins: out"
    assert lines[1].startswith("begins anew: out, whose table has 1,234 rows already: ")
    assert lines[2] == "goes on: out"
