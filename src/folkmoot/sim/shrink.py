"""Makes a failing run shorter: fewer steps, features, faults, clients, as long as the same promise breaks.

A shorter length is the beginning of the same run; any other change makes another run of the same kind, which may fail
too. Zeller and Hildebrandt: Simplifying and Isolating Failure-Inducing Input, 2002. Owns the search; `run` runs.
"""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.sim.option import Options

__all__ = ["RUNS_MAX", "Shrinker"]

RUNS_MAX = 150
"""Runs that a search may take."""


class Shrinker:
    """Searches for a smaller failing run.

    `run`: runs options and returns the broken promise, empty if there is none. `tell` is called for every success.
    """

    def __init__(self, run: Callable[[Options], str], tell: Callable[[str], None]) -> None:
        self.run = run
        self.tell = tell
        self.runs = 0
        self.promise = ""

    def shrink(self, options: Options, names: list[str], numbers: dict[str, int]) -> Options | None:
        """Return the smallest failing options found, or None when the run does not fail at all.

        names: features and faults that are on in the run. numbers: of the swarm, with the least value of each.
        """
        self.promise = self.run(options)
        self.runs = 1
        if not self.promise:
            return None
        best = self._fewer_steps(options)
        best = self._fewer_names(best, names)
        for name, least in numbers.items():
            best = self._smaller(best, name, least)
        return self._fewer_steps(best)

    def _try(self, candidate: Options, what: str) -> bool:
        if self.runs >= RUNS_MAX:
            return False
        self.runs += 1
        if self.run(candidate) != self.promise:
            return False
        self.tell(f"run {self.runs}: still {self.promise} {what}")
        return True

    def _fewer_steps(self, options: Options) -> Options:
        best = options
        low = 0  # too few
        while best.steps - low > 1:
            candidate = best.copy()
            candidate.steps = (low + best.steps) // 2
            if self._try(candidate, f"with {candidate.steps} steps"):
                best = candidate
            elif self.runs >= RUNS_MAX:
                break
            else:
                low = candidate.steps
        return best

    def _fewer_names(self, options: Options, names: list[str]) -> Options:
        """Switch off halves, then quarters, and so on down to single ones."""
        best = options
        left = list(names)
        size = max(1, len(left) // 2)
        while left:
            at = 0
            while at < len(left):
                part = left[at : at + size]
                candidate = best.copy()
                candidate.off = best.off + part
                candidate.on = [name for name in best.on if name not in part]
                if self._try(candidate, f"without {', '.join(part)}"):
                    best = candidate
                    del left[at : at + size]
                else:
                    at += size
            if size == 1:
                break
            size = max(1, size // 2)
        return best

    def _smaller(self, options: Options, name: str, least: int) -> Options:
        candidate = options.copy()
        candidate.numbers[name] = least
        return candidate if self._try(candidate, f"with {name} {least}") else options
