"""What users install: the wheel of the source archive, in an environment of its own, without the tree and any extra."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from tests.tidy.build import build_file

ROOT = Path(__file__).resolve().parent.parent.parent
UNREACHABLE = ("connection broken", "connection error", "NameResolutionError", "No matching distribution found")


def run(*command: str | Path, folder: Path) -> str:
    """Run a command in `folder` without this process's settings of Python and Folkmoot, and return what it printed."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FOLKMOOT_", "PYTHON", "VIRTUAL_ENV", "COV_"))
    }
    done = subprocess.run(
        command, cwd=folder, env=kept, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode and any(text in done.stdout for text in UNREACHABLE):
        # Nothing was proved. Where the result counts that is a failure.
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say(f"the package index cannot be reached: {done.stdout[-2000:]}")
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-8000:]}"
    return done.stdout


def source_archive(folder: Path) -> Path:
    """The source archive of the tree, unpacked."""
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder, ROOT, folder=folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as members:
        members.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def lend_objects(source: Path) -> None:
    """Let a build of the same C files use the object files of `make build`; others are compiled all the same.

    mypyc runs in full, in the isolated environment. What is saved is ten times as long: the C compiler.
    """
    for kept in (ROOT / "build" / "objects").rglob("*.o"):
        lent = source / kept.relative_to(ROOT)
        lent.parent.mkdir(parents=True, exist_ok=True)
        lent.write_bytes(kept.read_bytes())


@pytest.mark.slow
@pytest.mark.timeout(1800)  # where there is nothing to borrow, the C compiler runs too
def test_the_wheel_of_the_source_archive_runs_alone(tmp_path: Path) -> None:
    source = source_archive(tmp_path)
    lend_objects(source)
    venv.create(tmp_path / "environment", with_pip=True)
    python = tmp_path / "environment" / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check"]
    # With the isolated build environment that `pip install .` has: it is where build requirements are missed.
    run(*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path / "wheels", source, folder=tmp_path)
    (wheel,) = (tmp_path / "wheels").glob("folkmoot-*.whl")
    run(*pip, "install", "--no-compile", wheel, folder=tmp_path)
    found = run(*pip, "list", "--format=freeze", folder=tmp_path)
    names = {line.partition("==")[0].lower() for line in found.splitlines()}
    assert not {"paho-mqtt", "rich", "typer", "pyspark", "mypy"} & names, "a node needs none of these"
    pure = ["--pure"] if build_file().pure_reason() else []
    said = run(python, ROOT / "scripts" / "installed.py", *pure, folder=tmp_path)
    assert "violations 0" in said
