"""Scenario files: one run as readable text, drawn from a seed or told step by step. Owns the format and its errors.

    # What it shows, in the comments.
    nodes 3                 what `folkmoot simulate` has as options
    seed 7
    steps 200
    with crashes, splits
    without vandals
    set replicas=3
    topologies              the family with arbitrary topologies, judged by causes
    script                  from here on one step per line, instead of what the seed would do
    client a at n1
    subscribe a t/# 1
    ...

At the end of a script everything heals, all promises are checked, and so they are at every `rest`. The steps are
described at `folkmoot.sim.script`.
"""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.sim.option import Options, UnknownOption
from folkmoot.sim.run import Simulation
from folkmoot.sim.script import Script, ScriptError, parse_steps

__all__ = ["Scenario", "ScriptError", "parse_scenario"]


class Scenario:
    """What a file says: options, and the steps of a script, if it has one."""

    def __init__(self, options: Options, steps: list[tuple[int, list[str]]] | None) -> None:
        self.options = options
        self.steps = steps

    def simulation(self, sink: Callable[[str], None] | None = None) -> Simulation:
        """Return the run, ready to go."""
        simulation = self.options.simulation(sink)
        if self.steps is not None:
            simulation.script = Script(simulation, self.steps).run
        return simulation


def parse_scenario(text: str) -> Scenario:
    """Return the scenario in the text of a file; raises ScriptError with the number of the line."""
    options = Options()
    options.draws_later = False  # a scenario says what it needs: what was added since would change it
    lines = list(enumerate(text.splitlines(), 1))
    for place, (number, line) in enumerate(lines):
        words = line.partition("#")[0].split() if line.lstrip().startswith("#") else line.split()
        if not words:
            continue
        if words == ["script"]:
            return Scenario(options, parse_steps(lines[place + 1 :]))
        try:
            _option(options, words[0], line.split(None, 1)[1] if len(words) > 1 else "")
        except (UnknownOption, ValueError) as error:
            raise ScriptError(number, str(error)) from None
    return Scenario(options, None)


def _option(options: Options, name: str, value: str) -> None:
    if name in ("nodes", "seed", "steps"):
        setattr(options, name, int(value))
    elif name == "with":
        options.switch(value, on=True)
    elif name == "without":
        options.switch(value, on=False)
    elif name == "set":
        options.assign(value)
    elif name == "topologies":
        options.topologies = True
    else:
        raise UnknownOption(f"{name!r} is none of nodes, seed, steps, topologies, with, without, set, script")
