"""Explore Raft with many seeds, compiled: `python -m scripts.raftmodel --seeds 100000`; `--plant NAME` seeks a bug.

Compiles `folkmoot/raft`, what it imports, and the models of `tests/raft` as one unit in `build/raftmodel`, apart from
the compiled tree of the project: that has no tests in it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "raftmodel"
MODELS = ("world", "explore", "timed")
KERNEL = ("pack", "rng", "errors", "clock")

BUILD = """
import sys
from mypyc.build import mypycify
from setuptools import setup
paths = sys.argv[1:]
options = ["--config-file=", "--python-version=3.11", *paths]
modules = mypycify(options, group_name="raftmodel", opt_level="2", multi_file=True, target_dir="c")
setup(name="raftmodel", ext_modules=modules, script_args=["-q", "build_ext", "--inplace", "-j2"])
"""

RUN = """
import sys, time
from tests.raft.explore import Explorer
from tests.raft.timed import Timed
model, first, count, plant = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
began = time.process_time()
elections = commits = 0
for seed in range(first, first + count):
    try:
        if model == "timed":
            run = Timed(seed, plant)
            run.run()
        else:
            run = Explorer(seed, plant)
            run.run(12)
    except Exception as error:
        sys.exit(f"seed {seed}: {type(error).__name__}: {error}")
    elections += run.checker.elections
    commits += run.checker.commit
took = time.process_time() - began
print(f"{count} seeds, {count / took:.0f} in a second, {elections} elections, {commits} commits")
"""


def build() -> None:
    """Compile the sources as they are now."""
    shutil.rmtree(HOME, ignore_errors=True)
    for folder in ("folkmoot/kernel", "folkmoot/raft", "tests/raft"):
        (HOME / folder).mkdir(parents=True)
    for folder in ("folkmoot", "folkmoot/kernel", "folkmoot/raft", "tests", "tests/raft"):
        (HOME / folder / "__init__.py").touch()
    source = ROOT / "src" / "folkmoot"
    sources = [source / "kernel" / f"{name}.py" for name in KERNEL]
    sources += [path for path in sorted((source / "raft").glob("*.py")) if path.stem != "__init__"]
    sources += [ROOT / "tests" / "raft" / f"{name}.py" for name in MODELS]
    paths = []
    for path in sources:
        name = path.relative_to(ROOT / "src" if path.is_relative_to(source) else ROOT)
        shutil.copyfile(path, HOME / name)
        paths.append(str(name))
    subprocess.run([sys.executable, "-c", BUILD, *paths], cwd=HOME, check=True)


def main() -> int:
    """Compile and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("explore", "timed"), default="explore")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--plant", nargs="*", default=[])
    parser.add_argument("--keep", action="store_true", help="do not compile again")
    args = parser.parse_args()
    if not args.keep:
        build()
    command = [sys.executable, "-c", RUN, args.model, str(args.first), str(args.seeds), *args.plant]
    return subprocess.run(command, cwd=HOME, env={**os.environ, "PYTHONPATH": str(HOME)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
