"""Whole runs: no violation, and the same run for the same seed, wherever it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from folkmoot.cli.version import is_compiled
from folkmoot.sim import Result, Simulation
from folkmoot.sim.swarm import FAULTS, FEATURES, Swarm

STEPS = 300


def run(seed: int, steps: int = STEPS) -> Result:
    return Simulation(seed, steps).run()


def run_elsewhere(seed: int, steps: int = STEPS, nodes: int = 1, *flags: str, **environment: str) -> str:
    """The last line of `folkmoot simulate` in a process of its own."""
    command = [sys.executable, "-m", "folkmoot", "simulate", *flags]
    command += ["--seed", str(seed), "--steps", str(steps), "--nodes", str(nodes)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.stdout, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("seed", range(1, 31))
def test_no_promise_is_broken(seed: int) -> None:
    assert run(seed).violations == []


def test_the_same_seed_is_the_same_run() -> None:
    first = run(4)
    second = run(4)
    assert first.line == second.line
    assert first.marks == second.marks


def test_another_seed_is_another_run() -> None:
    assert run(4).digest != run(5).digest


def test_the_order_of_hash_tables_does_not_matter() -> None:
    one = run_elsewhere(4, PYTHONHASHSEED="1")
    two = run_elsewhere(4, PYTHONHASHSEED="2")
    assert one == two == run(4).line


def test_the_order_of_hash_tables_does_not_matter_to_a_cluster() -> None:
    one = run_elsewhere(4, 60, 3, PYTHONHASHSEED="1")
    two = run_elsewhere(4, 60, 3, PYTHONHASHSEED="2")
    assert one == two == Simulation(4, 60, nodes=3).run().line


@pytest.mark.skipif(
    not is_compiled(), reason="this is an interpreted run; `make test` compares it with the compiled one"
)
@pytest.mark.parametrize(("nodes", "seed", "steps"), [(1, 7, 300), (3, 4, 150), (5, 4, 60)])
def test_interpreted_and_compiled_are_the_same_run(source_path: Path, nodes: int, seed: int, steps: int) -> None:
    interpreted = run_elsewhere(seed, steps, nodes, PYTHONPATH=str(source_path))
    assert interpreted == Simulation(seed, steps, nodes=nodes).run().line


def everything(swarm: Swarm) -> None:
    """Switch all on, so that what the seeds happen to draw does not decide what is reached."""
    for name in FEATURES + FAULTS:
        swarm.on[name] = True
    swarm.fault_every = 15


def test_runs_reach_the_rare_branches() -> None:
    wanted = {
        "PUBLISH refused 0x97",
        "SUBSCRIBE refused 0x97",
        "QoS 2 duplicate recognised",
        "crash",
        "crash lost unsynced batches",
        "crash kept unreported batches",
        "disk full",
        "graceful stop",
        "group commit",
        "half-open",
        "resent PUBLISH",
        "resent PUBREL",
        "session resumed",
        "takeover",
        "transport full",
        "vandal",
        "will no",
        "will yes",
    }
    for seed in range(1, 25):
        wanted -= Simulation(seed, STEPS, shape=everything).run().marks.keys()
        if not wanted:
            break
    assert wanted == set()
