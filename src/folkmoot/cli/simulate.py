"""`folkmoot simulate`: run seeds and scenarios in the simulator and say what broke; owns printing and processes."""

from __future__ import annotations

import os
from pathlib import Path

import click

from folkmoot.cli.error import Refusal
from folkmoot.cli.seeds import print_marks, run_many
from folkmoot.sim import Options, Scenario, ScriptError, Shrinker, UnknownOption, parse_scenario

__all__ = ["simulate"]


TAIL_LINES = 60
LEAST = {"rounds": 1, "clients": 2, "topics": 1, "depth": 1, "spares": 0}
"""What `--shrink` makes smaller, and how small."""


@click.command()
@click.option(
    "--seed", "--from", type=click.IntRange(min=0), default=1, help="The seed; everything in the run follows from it."
)
@click.option("--steps", type=click.IntRange(min=1), default=2_000, help="Actions of clients in the run.")
@click.option("--nodes", type=click.IntRange(min=1, max=100), default=1, help="Nodes of the cluster.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, help="Run this many seeds, from --seed on.")
@click.option(
    "--with",
    "switch_on",
    default="",
    show_default=False,
    help="Features and faults to switch on (after --without), separated by commas.",
)
@click.option(
    "--without",
    "switch_off",
    default="",
    show_default=False,
    help="Features and faults to switch off; `faults` is all faults.",
)
@click.option("--set", "assign", multiple=True, help="NAME=VALUE for a number that --verbose shows; may be repeated.")
@click.option("--scenario", type=click.Path(dir_okay=False, path_type=Path), help="Run this file instead of a seed.")
@click.option("--shrink", is_flag=True, help="Make a failing run shorter, and print its command.")
@click.option("--trace", is_flag=True, help="Print every line of what happens.")
@click.option("--verbose", is_flag=True, help="Say what the seed has drawn: features, faults, limits.")
@click.option("--marks", is_flag=True, help="Count the rare branches that were reached.")
@click.option("--mix", is_flag=True, help="With --seeds: draw nodes (to --nodes) and steps (to --steps) too.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0),
    default=0,
    help="With --seeds: begin no seed after this time; 0 is never.",
)
@click.option("--jobs", type=click.IntRange(min=0), default=0, help="Processes for many seeds; 0 is one per core.")
def simulate(
    seed: int,
    steps: int,
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
    minutes: float,
    jobs: int,
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
    return run_many(options, seeds, jobs or os.cpu_count() or 1, marks=marks, mix=mix, minutes=minutes)


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
