"""The file that the demonstration runs: the example itself, beside its own tables, with the addresses of its nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from folkmoot.demo import driver
from folkmoot.demo.driver import EXAMPLE, Driver
from folkmoot.kernel.errors import FolkmootError
from pyspark_folkmoot.pipeline.loading import load_pipeline

URLS = "http://127.0.0.1:1,http://127.0.0.1:2"


def test_the_file_is_the_example_with_addresses(tmp_path: Path) -> None:
    made = Driver(tmp_path)
    made.prepare(URLS)
    loaded = load_pipeline(made.file, {})
    assert loaded.model.cluster is not None
    assert loaded.model.cluster.url == URLS
    assert [sink.name for sink in loaded.model.sinks] == ["bronze", "silver", "gold", "alerts"]
    assert Path(loaded.quarantine) == tmp_path / "tables" / "quarantine"
    assert loaded.state.is_relative_to(tmp_path / "state")
    assert made.file.read_text(encoding="utf-8") == EXAMPLE.read_text(encoding="utf-8").replace("${FOLKMOOT_URL}", URLS)


def test_without_a_clone_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "EXAMPLE", tmp_path / "none.yaml")
    with pytest.raises(FolkmootError, match="needs a clone"):
        Driver(tmp_path).prepare(URLS)
