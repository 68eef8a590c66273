"""Every scenario does what its file says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.raft.scenario import play

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 15


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    happens = play(path)
    if os.environ.get("FOLKMOOT_REWRITE", "") not in ("", "0"):
        path.write_text(happens, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == happens
