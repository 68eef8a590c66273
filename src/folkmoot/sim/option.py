"""The options of a run: seed, length, number of nodes, and differences from what the seed would draw.

Owns the text of the command that repeats a run. Plain values, so that they can go to other processes.
"""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.kernel.rng import Rng
from folkmoot.sim.run import Simulation
from folkmoot.sim.swarm import ASKED_FOR, CLUSTER_FAULTS, FAULTS, FEATURES, LATER, TOPOLOGY_FAULTS, Swarm

__all__ = ["NAMES", "Options", "UnknownOption"]

NAMES = FEATURES + LATER + FAULTS + CLUSTER_FAULTS + ASKED_FOR + TOPOLOGY_FAULTS
"""Everything that a seed switches on or off."""

_SIZES = (2, 3, 3, 3, 5, 5, 5, 7)
"""Numbers of nodes of the family with arbitrary topologies."""

GROUPS = {"features": FEATURES + LATER, "faults": FAULTS + CLUSTER_FAULTS + ASKED_FOR + TOPOLOGY_FAULTS}
"""Words for groups of them."""


class UnknownOption(ValueError):
    """An unknown feature, fault or number."""


class Options:
    """One run. `on`, `off`: names of features and faults; `numbers`: what the swarm has drawn, by name.

    `topologies`: a run of the family with arbitrary topologies; with `nodes` 1 its seed also draws how many there are.
    """

    def __init__(self, seed: int = 1, steps: int = 2_000, nodes: int = 1, *, topologies: bool = False) -> None:
        self.seed = seed
        self.steps = steps
        self.nodes = nodes
        self.topologies = topologies
        self.on: list[str] = []
        self.off: list[str] = []
        self.numbers: dict[str, int] = {}
        self.draws_later = True  # also what was added when there were scenarios with seeds

    def switch(self, names: str, *, on: bool) -> None:
        """Switch features and faults on or off: names separated by commas, or a group; the last one counts.

        Raises UnknownOption.
        """
        for word in [part.strip() for part in names.split(",") if part.strip()]:
            if word not in NAMES and word not in GROUPS:
                known = ", ".join([*GROUPS, *NAMES])
                raise UnknownOption(f"no feature or fault is called {word!r}; there are: {known}")
            for name in GROUPS.get(word, (word,)):
                self.on = [other for other in self.on if other != name]
                self.off = [other for other in self.off if other != name]
                (self.on if on else self.off).append(name)

    def assign(self, text: str) -> None:
        """Set a number: NAME=VALUE. Raises UnknownOption."""
        name, _, value = text.partition("=")
        name = name.strip()
        known = vars(Swarm(Simulation(1, 1).world.fork(), nodes=2))
        if not isinstance(known.get(name), int) or name == "nodes":
            names = sorted([key for key, drawn in known.items() if isinstance(drawn, int) and key != "nodes"])
            raise UnknownOption(f"no number is called {name!r}; there are: {', '.join(names)}")
        if not value.strip().isdigit():
            raise UnknownOption(f"{name} is a number, not {value!r}")
        self.numbers[name] = int(value)

    def shape(self, swarm: Swarm) -> None:
        """Apply the differences to what the seed has drawn."""
        for name in self.on:
            swarm.on[name] = True
        for name in self.off:
            swarm.on[name] = False
        for name, value in self.numbers.items():
            setattr(swarm, name, value)

    def copy(self) -> Options:
        """Return a copy of the options."""
        other = Options(self.seed, self.steps, self.nodes, topologies=self.topologies)
        other.on = list(self.on)
        other.off = list(self.off)
        other.numbers = dict(self.numbers)
        other.draws_later = self.draws_later
        return other

    def with_seed(self, seed: int) -> Options:
        """Return the same options for another seed."""
        other = self.copy()
        other.seed = seed
        return other

    def mixed(self) -> Options:
        """Return a run of fewer nodes and steps, drawn from its seed; at least three nodes and a fifth of the steps."""
        other = self.copy()
        rng = Rng(self.seed * 2 + 1)
        if self.nodes > 3:
            other.nodes = self.nodes if rng.chance(1, 2) else rng.between(3, self.nodes)
        other.steps = rng.between(max(1, self.steps // 5), self.steps)
        return other

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        parts = ["folkmoot simulate"]
        if self.topologies:
            parts.append("--topologies")
        if self.nodes > 1:
            parts.append(f"--nodes {self.nodes}")
        parts.append(f"--seed {self.seed} --steps {self.steps}")
        if self.off:
            parts.append(f'--without "{_words(self.off)}"')
        if self.on:
            parts.append(f'--with "{_words(self.on)}"')
        parts += [f"--set {name}={value}" for name, value in self.numbers.items()]
        return " ".join(parts)

    def simulation(self, sink: Callable[[str], None] | None = None) -> Simulation:
        """Return the run, ready to go."""
        shape = self.shape if self.on or self.off or self.numbers else None
        nodes = self.nodes
        if self.topologies and nodes == 1:
            nodes = _SIZES[Rng(self.seed * 2 + 1).below(len(_SIZES))]
        return Simulation(
            self.seed,
            self.steps,
            sink,
            shape=shape,
            nodes=nodes,
            topologies=self.topologies,
            draws_later=self.draws_later,
        )


def _words(names: list[str]) -> str:
    """Return names as `Options.switch` takes them, a whole group by its word."""
    words = list(names)
    for word, group in GROUPS.items():
        if all(name in words for name in group):
            words = [word, *[name for name in words if name not in group]]
    return ", ".join(words)
