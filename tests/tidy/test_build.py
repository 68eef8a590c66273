"""The build says why it does not compile, and compiles every module that it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

ASK = "import runpy; build = runpy.run_path('setup.py'); print(build['pure_reason']())"


def reason(**environment: str) -> str:
    """What `setup.py` answers in a process of its own, with these variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FOLKMOOT_")}
    run = subprocess.run(
        [sys.executable, "-c", ASK], cwd=ROOT, env={**kept, **environment}, capture_output=True, text=True, check=True
    )
    return run.stdout.strip().splitlines()[-1] if run.stdout.strip() else ""


def test_compiling_can_be_switched_off() -> None:
    assert reason(FOLKMOOT_PURE="1") == "FOLKMOOT_PURE is set"
    assert reason(FOLKMOOT_PURE="0") != "FOLKMOOT_PURE is set"


def test_a_missing_compiler_is_named() -> None:
    assert "no C compiler" in reason(CC="no-such-compiler")
    assert "no-such-compiler" in reason(CC="no-such-compiler")


def test_a_compiler_that_fails_is_a_missing_one(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'Python.h: No such file' >&2\nexit 1\n", encoding="ascii")
    compiler.chmod(0o755)
    assert "no C compiler that finds Python.h" in reason(CC=str(compiler))


@pytest.mark.parametrize("command", ["--version", "--name"])
def test_asking_for_metadata_compiles_nothing(command: str) -> None:
    run = subprocess.run(
        [sys.executable, "setup.py", command], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert "mypyc" not in run.stdout + run.stderr
