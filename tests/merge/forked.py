"""A model of splits: a trunk that gives out offsets, forks that do not, retention, and merges in any order.

After a run one copy has taken in all others. What the trunk gave out is where it was, or retention has removed it; what
a fork has accepted is there once, and in the order in which that fork has accepted it.
"""

from __future__ import annotations

from folkmoot.kernel.rng import Rng
from tests.merge.copies import TRUNK, Copy, begin

FORKS = 3
SIZES = (1, 1, 1, 40_000)  # large ones are in chunks of their own
BUGS = ("bounds_lost", "epochs_lost", "trims_forgotten")


class Violation(Exception):
    """A record has no offset, or two, or another one than before."""


class Forked:
    """One run. planted: a bug (`BUGS`), or none."""

    def __init__(self, seed: int, planted: str = "") -> None:
        self.rng = Rng(seed)
        self.counter = 1
        self.number = 0
        self.trunk = begin()
        self.trunk.planted = planted
        self.forks: dict[str, Copy] = {}
        self.accepted: dict[str, list[str]] = {TRUNK: []}  # by lineage
        self.given: dict[int, str] = {}  # by offset: what could be read there
        self.removed = 0  # retention has removed nothing from there on
        self.took = False  # the trunk has taken in a fork: no other one goes on (docs/limits.md, "Known defects")
        self.done: list[str] = []  # for those who look for a reason

    def run(self, steps: int) -> None:
        """Take some steps, and check the end."""
        for _ in range(steps):
            self.step()
        last = self.rng.below(2) == 0 or not self.forks or self.took
        copy = self.trunk
        if not last:
            name = sorted(self.forks)[self.rng.below(len(self.forks))]
            copy = self.forks.pop(name)
            self.take(copy, self.trunk, f"{name} takes the trunk")
        for name, fork in sorted(self.forks.items()):
            self.take(copy, fork, f"the last one takes {name}")
            if copy is self.trunk:
                self.read()
        self.check(copy)

    def step(self) -> None:
        """Let something happen."""
        name, copy = self.any()
        what = self.rng.below(8)
        if what < 3:
            texts = [self.text(name) for _ in range(1 + self.rng.below(3))]
            copy.append(*texts)
            self.done.append(f"{name} accepts {[text[:9] for text in texts]}")
        elif what == 3:
            self.lead_again(name, copy)
        elif what == 4 and len(self.forks) < FORKS:
            fork = f"fork{len(self.accepted)}"
            self.forks[fork] = self.part(copy, fork)
            self.accepted[fork] = []
            self.done.append(f"{fork} parts from {name}")
        elif what == 5:
            self.expire(name, copy)
        elif what == 6 and self.forks:
            other_name, other = self.any()
            if other is not copy and (other is not self.trunk or not self.took):
                self.take(copy, other, f"{name} takes {other_name}")
        self.read()

    def any(self) -> tuple[str, Copy]:
        """Return a copy, and the name of its lineage."""
        names = [TRUNK, *sorted(self.forks)]
        name = names[self.rng.below(len(names))]
        return name, self.forks.get(name, self.trunk)

    def part(self, copy: Copy, lineage: str) -> Copy:
        self.counter += 1
        return copy.part(lineage, self.counter)

    def text(self, lineage: str) -> str:
        self.number += 1
        text = f"{self.number} of {lineage}" + "." * SIZES[self.rng.below(len(SIZES))]
        self.accepted[lineage].append(text)
        return text

    def lead_again(self, name: str, copy: Copy) -> None:
        """Let another leadership of a lineage begin."""
        again = self.part(copy, name)
        if name == TRUNK:
            self.trunk = again
        else:
            self.forks[name] = again
        self.done.append(f"{name} has another leader")

    def take(self, copy: Copy, other: Copy, what: str) -> None:
        self.done.append(what)
        if copy is self.trunk:
            self.took = True
        copy.take(other)
        copy.open()

    def expire(self, name: str, copy: Copy) -> None:
        log = copy.log
        if log.oldest < log.readable_end:
            end = log.oldest + 1 + self.rng.below(log.readable_end - log.oldest)
            copy.expire(end)
            self.removed = max(self.removed, log.oldest)
            self.done.append(f"{name} has removed all before {log.oldest}")

    def read(self) -> None:
        """Read what the trunk has given out."""
        for offset, text in self.trunk.offsets().items():
            if self.given.setdefault(offset, text) != text:
                raise Violation(f"the trunk gives offset {offset} of {self.given[offset][:20]} to {text[:20]}")

    def check(self, copy: Copy) -> None:
        """Compare a copy that has all with what was accepted and given out."""
        found = copy.offsets()
        for offset, text in found.items():
            if self.given.get(offset, text) != text:
                raise Violation(f"offset {offset} had {self.given[offset][:20]}, and has {text[:20]}")
        end = max(self.given, default=-1) + 1
        if copy.log.next_offset < end:
            raise Violation(f"{end} offsets were given out, and the next one is {copy.log.next_offset}")
        for offset in range(max(self.trunk.log.oldest, min(self.removed, copy.log.oldest)), end):
            if offset not in found:
                raise Violation(f"offset {offset} with {self.given[offset][:20]} is gone")
        places = {text: offset for offset, text in found.items()}
        if len(places) < len(found):
            twice = [(offset, text[:20]) for offset, text in found.items() if places[text] != offset]
            raise Violation(f"records are there twice: {twice}")
        removed = {text for offset, text in self.given.items() if offset < copy.log.oldest}
        for lineage, texts in self.accepted.items():
            there = [places[text] for text in texts if text in places]
            lost = [text[:20] for text in texts if text not in places and text not in removed]
            if lost:
                raise Violation(f"what {lineage} has accepted is lost: {lost}")
            if there != sorted(there):
                raise Violation(f"what {lineage} has accepted is in another order")
