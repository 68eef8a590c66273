"""The program that Spark starts as its Python: Python itself, except for the process that forks workers."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_folkmoot import worker_python as module
from pyspark_folkmoot.worker_python import worker_python


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    found = [tmp_path / "first", tmp_path / "second"]
    monkeypatch.setattr(module, "own_folders", lambda: found)
    return found


def test_it_is_python(folders: list[Path]) -> None:
    program = worker_python()
    assert Path(program).parent == folders[0]
    words = [program, "-c", "import sys; print(sys.executable, sys.argv[1:])", "a b", "-m"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == [sys.executable, "['a b', '-m']\n"]
    assert worker_python() == program
    assert [path.name for path in folders[0].iterdir()] == [Path(program).name]


@pytest.mark.parametrize(
    ("variable", "modules"),
    [({}, True), ({"OMP_NUM_THREADS": "3"}, False)],
    ids=["one thread", "a library starts threads"],
)
def test_workers_come_from_a_process_without_threads(
    folders: list[Path], variable: dict[str, str], modules: bool
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    environment |= variable
    words = [worker_python(), "-m", "pyspark.daemon", "pyspark.sql.worker.plan_data_source_read"]
    with subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        (port,) = struct.unpack("!i", process.stdout.read(4))  # it listens
        assert 0 < port < 65536
        assert len(list(Path(f"/proc/{process.pid}/task").iterdir())) == 1
        maps = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
        words_of = Path(f"/proc/{process.pid}/cmdline").read_text(encoding="utf-8").split("\0")
        assert process.stdin is not None
        process.stdin.close()  # Spark ends it like this
        process.wait(20)
    assert ("libarrow" in maps) == modules
    assert ("pyspark_folkmoot.worker_daemon" in words_of) == modules


def test_where_nothing_can_be_written_it_is_python_itself(folders: list[Path], tmp_path: Path) -> None:
    for folder in folders:
        folder.write_text("a file")
    assert worker_python() == sys.executable


def test_a_program_that_others_could_have_written_is_replaced(folders: list[Path]) -> None:
    program = Path(worker_python())
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o777)
    assert subprocess.run([worker_python(), "-c", ""], check=False).returncode == 0
    assert program.stat().st_mode & 0o777 == 0o755
