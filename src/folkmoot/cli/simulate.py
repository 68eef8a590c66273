"""`folkmoot simulate`: runs seeds and scenarios in the simulator and prints violations."""

from __future__ import annotations

import os
from pathlib import Path

import click

from folkmoot.cli.error import Refusal
from folkmoot.cli.seeds import demand_lines, judgement_lines, print_marks, run_many
from folkmoot.sim import Options, Scenario, ScriptError, Shrinker, UnknownOption, parse_scenario

__all__ = ["simulate"]


TAIL_LINES = 60
STEPS = 2_000
TOPOLOGY_STEPS = 100
LEAST = {"rounds": 1, "clients": 2, "topics": 1, "depth": 1, "spares": 0}
"""The numbers that `--shrink` reduces, with their lower limits."""


@click.command()
@click.option("--seed", "--from", type=click.IntRange(min=0), default=1, help="Seed, which determines the whole run.")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=None,
    help="Number of client actions in the run; default: 2000, with --topologies 100.",
)
@click.option("--nodes", type=click.IntRange(min=1, max=100), default=1, help="Number of nodes in the cluster.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, help="Number of seeds to run, beginning with --seed.")
@click.option(
    "--with",
    "switch_on",
    default="",
    show_default=False,
    help="Features and faults to enable, separated by commas; applied after --without.",
)
@click.option(
    "--without",
    "switch_off",
    default="",
    show_default=False,
    help="Features and faults to disable, separated by commas; `faults` means all faults.",
)
@click.option("--set", "assign", multiple=True, help="NAME=VALUE: set a number that --verbose shows; repeatable.")
@click.option("--scenario", type=click.Path(dir_okay=False, path_type=Path), help="Run this file instead of a seed.")
@click.option("--shrink", is_flag=True, help="Reduce a failing run, and print its command.")
@click.option("--trace", is_flag=True, help="Print every event.")
@click.option("--verbose", is_flag=True, help="Print what the seed has drawn: features, faults, limits.")
@click.option("--marks", is_flag=True, help="Print how often each rare branch was reached.")
@click.option(
    "--mix", is_flag=True, help="With --seeds: also draw the nodes (up to --nodes) and steps (up to --steps)."
)
@click.option(
    "--topologies",
    is_flag=True,
    help="Runs with arbitrary topologies, clocks and folders; without --nodes, each seed also draws the nodes.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0),
    default=0,
    help="With --seeds: start no seed after this time; 0: no limit.",
)
@click.option(
    "--jobs", type=click.IntRange(min=0), default=0, help="Number of processes for many seeds; 0: one per core."
)
def simulate(
    seed: int,
    steps: int | None,
    nodes: int,
    seeds: int,
    switch_on: str,
    switch_off: str,
    assign: tuple[str, ...],
    scenario: Path | None,
    shrink: bool,
    trace: bool,
    verbose: bool,
    marks: bool,
    mix: bool,
    topologies: bool,
    minutes: float,
    jobs: int,
) -> int:
    """Run nodes with simulated clients, network, disks and faults, and check that every promise holds.

    The last line is `digest HEX events N violations N`. The exit status is 1 after a violation.
    """
    if scenario is not None:
        return run_one(read_scenario(scenario), f"folkmoot simulate --scenario {scenario}", trace, verbose, marks)
    options = Options(seed, steps or (TOPOLOGY_STEPS if topologies else STEPS), nodes, topologies=topologies)
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
        raise Refusal("--trace, --verbose and --shrink need a single seed: leave --seeds out")
    return run_many(options, seeds, jobs or os.cpu_count() or 1, marks=marks, mix=mix, minutes=minutes)


def read_scenario(path: Path) -> Scenario:
    """Return the scenario in a file; raises Refusal if the file cannot be read or is invalid."""
    try:
        return parse_scenario(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refusal(f"cannot read {path}: {error.strerror}") from None
    except ScriptError as error:
        raise Refusal(f"{path}, {error}") from None


def run_one(scenario: Scenario, command: str, trace: bool, verbose: bool, marks: bool) -> int:
    """Run one seed or scenario and print the full result."""
    simulation = scenario.simulation(print if trace else None)
    if verbose:
        print("\n".join(simulation.swarm.lines()))
    result = simulation.run()
    if result.violations and not trace:
        print("\n".join(simulation.world.trace.tail(TAIL_LINES)))
    if marks:
        print_marks(result.marks)
    for line in judgement_lines(result.judged, result.excused) + demand_lines(result.demands):
        print(line)
    for violation in result.violations:
        print(f"violation {violation!r}")
    if result.violations:
        print(f"again: {command} --trace --verbose")
    print(result.line)
    return 1 if result.violations else 0


def run_shrink(options: Options) -> int:
    """Search for a smaller run that breaks the same promise, and run it."""
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
    """Run and return the first broken promise; "" if none is broken."""
    violations = options.simulation().run().violations
    return violations[0].promise if violations else ""
