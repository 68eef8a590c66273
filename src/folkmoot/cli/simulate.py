"""`folkmoot simulate`: run seeds and scenarios in the simulator and say what broke; owns printing and processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path

import typer

from folkmoot.cli.error import Refusal
from folkmoot.sim import Options, Result, Scenario, ScriptError, Shrinker, UnknownOption, parse_scenario

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

TAIL_LINES = 60
SHOWN_FAILURES = 10
LEAST = {"rounds": 1, "clients": 2, "topics": 1, "depth": 1, "spares": 0}
"""What `--shrink` makes smaller, and how small."""


@app.command()
def simulate(
    seed: int = typer.Option(1, "--seed", min=0, help="The seed; everything in the run follows from it."),
    steps: int = typer.Option(2_000, "--steps", min=1, help="Actions of clients in the run."),
    nodes: int = typer.Option(1, "--nodes", min=1, max=100, help="Nodes of the cluster."),
    seeds: int = typer.Option(1, "--seeds", min=1, help="Run this many seeds, from --seed on."),
    switch_on: str = typer.Option(
        "", "--with", help="Features and faults to switch on (after --without), separated by commas."
    ),
    switch_off: str = typer.Option("", "--without", help="Features and faults to switch off; `faults` is all faults."),
    assign: list[str] = typer.Option(
        [], "--set", help="NAME=VALUE for a number that --verbose shows; may be repeated."
    ),
    scenario: Path | None = typer.Option(None, "--scenario", help="Run this file instead of a seed.", dir_okay=False),
    shrink: bool = typer.Option(False, "--shrink", help="Make a failing run shorter, and print its command."),
    trace: bool = typer.Option(False, "--trace", help="Print every line of what happens."),
    verbose: bool = typer.Option(False, "--verbose", help="Say what the seed has drawn: features, faults, limits."),
    marks: bool = typer.Option(False, "--marks", help="Count the rare branches that were reached."),
    jobs: int = typer.Option(0, "--jobs", min=0, help="Processes for many seeds; 0 is one per core."),
) -> int:
    """Run nodes with simulated clients, network, disks and faults, and check that every promise holds.

    The last line is `digest HEX events N violations N`; the exit status is 1 if there was a violation.
    """
    if scenario is not None:
        return run_one(read_scenario(scenario), f"folkmoot simulate --scenario {scenario}", trace, verbose, marks)
    options = Options(seed, steps, nodes)
    try:
        options.switch(switch_off, on=False)
        options.switch(switch_on, on=True)
        for text in assign:
            options.assign(text)
    except UnknownOption as error:
        raise Refusal(str(error)) from None
    if seeds == 1:
        if shrink:
            return run_shrink(options)
        return run_one(Scenario(options, None), options.command, trace, verbose, marks)
    if trace or verbose or shrink:
        raise Refusal("--trace, --verbose and --shrink are for one seed: leave --seeds out")
    return run_many(options, seeds, jobs or os.cpu_count() or 1, marks=marks)


def read_scenario(path: Path) -> Scenario:
    """Return the scenario in a file; raises Refusal when it cannot be read or understood."""
    try:
        return parse_scenario(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refusal(f"cannot read {path}: {error.strerror}") from None
    except ScriptError as error:
        raise Refusal(f"{path}, {error}") from None


def run_one(scenario: Scenario, command: str, trace: bool, verbose: bool, marks: bool) -> int:
    """Run one seed or scenario with all that there is to say about it."""
    simulation = scenario.simulation(print if trace else None)
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
        print(f"again: {command} --trace --verbose")
    print(result.line)
    return 1 if result.violations else 0


def run_shrink(options: Options) -> int:
    """Search for a smaller run that breaks the same promise, and show it."""
    swarm = options.simulation().swarm
    shrinker = Shrinker(promise_of, lambda text: print(text, flush=True))
    least = {name: value for name, value in LEAST.items() if vars(swarm)[name] > value}
    best = shrinker.shrink(options, [name for name in swarm.names if swarm.on[name]], least)
    if best is None:
        print("nothing to shrink: no promise is broken")
        return 0
    print(f"shrunk by {shrinker.runs} runs")
    return run_one(Scenario(best, None), best.command, trace=False, verbose=False, marks=False)


def promise_of(options: Options) -> str:
    """Run and return the promise that was broken first, empty if none was."""
    violations = options.simulation().run().violations
    return violations[0].promise if violations else ""


def run_in_process(options: Options) -> Result:
    """Run one seed; in a process of its own for `run_many`."""
    return options.simulation().run()


def run_all(pool: ProcessPoolExecutor, options: Options, seeds: int) -> Iterator[Result]:
    """Give the results in the order of the seeds."""
    runs = [options.with_seed(options.seed + number) for number in range(seeds)]
    yield from pool.map(run_in_process, runs, chunksize=2)


def run_many(options: Options, seeds: int, jobs: int, *, marks: bool) -> int:
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
        ProcessPoolExecutor(min(jobs, seeds), mp_context=get_context("spawn")) as pool,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("simulating", total=seeds)
        for result in run_all(pool, options, seeds):
            digest.update(result.digest.encode())
            events += result.events
            violations += len(result.violations)
            for name, count in result.marks.items():
                reached[name] = reached.get(name, 0) + count
            if result.violations:
                failed.append(result.seed)
                if len(failed) <= SHOWN_FAILURES:
                    text = f"seed {result.seed}: {result.violations[0]!r}".splitlines()[0]
                    progress.console.print(text, markup=False, highlight=False)
            progress.advance(task)
    if marks:
        print_marks(reached)
    for seed in failed:
        print(f"again: {options.with_seed(seed).command}")
    print(f"digest {digest.hexdigest()} events {events} violations {violations}")
    return 1 if failed else 0


def print_marks(marks: dict[str, int]) -> None:
    """Print how often each branch was reached, by name."""
    for name in sorted(marks):
        print(f"mark {marks[name]:8d} {name}")
