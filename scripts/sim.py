"""Simulate many seeds, several at a time, with a progress bar; a seed that finds a violation is named."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from rich.progress import track


def simulate(seed: int, steps: int) -> tuple[int, subprocess.CompletedProcess[str]]:
    """Run one seed in a process of its own."""
    command = [sys.executable, "-m", "folkmoot", "simulate", "--seed", str(seed), "--steps", str(steps)]
    return seed, subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> int:
    """Run the seeds; 1 when any of them found a violation or broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--steps", type=int, default=2000, help="steps of each run")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    failed = []
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        runs = pool.map(lambda seed: simulate(seed, options.steps), seeds)
        for seed, run in track(runs, description="simulating", total=len(seeds)):
            if run.returncode:
                failed.append(seed)
                print(f"\nseed {seed}: {run.stdout}{run.stderr}".rstrip())
                print(f"again: folkmoot simulate --seed {seed} --steps {options.steps}")
    print(f"{len(seeds)} seeds of {options.steps} steps, {len(failed)} with violations {failed or ''}".rstrip())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
