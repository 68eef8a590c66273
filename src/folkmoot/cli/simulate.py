"""`folkmoot simulate`: run seeds in the simulator and say what broke; owns printing and processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from hashlib import blake2b
from multiprocessing import get_context

import typer

from folkmoot.cli.error import Refusal
from folkmoot.sim import Result, Simulation

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

TAIL_LINES = 60
SHOWN_FAILURES = 10


@app.command()
def simulate(
    seed: int = typer.Option(1, "--seed", min=0, help="The seed; everything in the run follows from it."),
    steps: int = typer.Option(2_000, "--steps", min=1, help="Actions of clients in the run."),
    seeds: int = typer.Option(1, "--seeds", min=1, help="Run this many seeds, from --seed on."),
    trace: bool = typer.Option(False, "--trace", help="Print every line of what happens."),
    verbose: bool = typer.Option(False, "--verbose", help="Say what the seed has drawn: features, faults, limits."),
    marks: bool = typer.Option(False, "--marks", help="Count the rare branches that were reached."),
    jobs: int = typer.Option(0, "--jobs", min=0, help="Processes for many seeds; 0 is one per core."),
) -> int:
    """Run a node with simulated clients, network, disk and faults, and check that every promise holds.

    The last line is `digest HEX events N violations N`; the exit status is 1 if there was a violation.
    """
    if seeds == 1:
        return run_one(seed, steps, trace=trace, verbose=verbose, marks=marks)
    if trace or verbose:
        raise Refusal("--trace and --verbose are for one seed: leave --seeds out")
    return run_many(range(seed, seed + seeds), steps, jobs or os.cpu_count() or 1, marks=marks)


def command(seed: int, steps: int) -> str:
    """The command that repeats a run."""
    return f"folkmoot simulate --seed {seed} --steps {steps}"


def run_one(seed: int, steps: int, *, trace: bool, verbose: bool, marks: bool) -> int:
    """Run one seed with all that there is to say about it."""
    simulation = Simulation(seed, steps, print if trace else None)
    if verbose:
        print("\n".join(simulation.swarm.lines()))
    result = simulation.run()
    if result.violations and not trace:
        print("\n".join(simulation.world.trace.tail(TAIL_LINES)))
    if marks:
        print_marks(result.marks)
    for violation in result.violations:
        print(f"violation {violation!r}")
    if result.violations:
        print(f"again: {command(seed, steps)} --trace --verbose")
    print(result.line)
    return 1 if result.violations else 0


def run_in_process(seed: int, steps: int) -> Result:
    """Run one seed; in a process of its own for `run_many`."""
    return Simulation(seed, steps).run()


def run_all(pool: ProcessPoolExecutor, seeds: range, steps: int) -> Iterator[Result]:
    """Give the results in the order of the seeds."""
    yield from pool.map(run_in_process, seeds, [steps] * len(seeds), chunksize=4)


def run_many(seeds: range, steps: int, jobs: int, *, marks: bool) -> int:
    """Run many seeds with a progress bar; name those that found something."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    digest = blake2b(digest_size=12)
    events = violations = 0
    failed: list[int] = []
    reached: dict[str, int] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # Spawned, because a forked child would inherit the threads of whoever calls this.
    with (
        ProcessPoolExecutor(min(jobs, len(seeds)), mp_context=get_context("spawn")) as pool,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("simulating", total=len(seeds))
        for result in run_all(pool, seeds, steps):
            digest.update(result.digest.encode())
            events += result.events
            violations += len(result.violations)
            for name, count in result.marks.items():
                reached[name] = reached.get(name, 0) + count
            if result.violations:
                failed.append(result.seed)
                if len(failed) <= SHOWN_FAILURES:
                    text = f"seed {result.seed}: {result.violations[0]!r}"
                    progress.console.print(text, markup=False, highlight=False)
            progress.advance(task)
    if marks:
        print_marks(reached)
    for seed in failed:
        print(f"again: {command(seed, steps)}")
    print(f"digest {digest.hexdigest()} events {events} violations {violations}")
    return 1 if failed else 0


def print_marks(marks: dict[str, int]) -> None:
    """Print how often each branch was reached, by name."""
    for name in sorted(marks):
        print(f"mark {marks[name]:8d} {name}")
