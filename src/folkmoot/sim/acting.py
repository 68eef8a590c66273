"""The common part of all faults that last for a while. Owns which of them have not ended yet."""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.sim.host import Host
from folkmoot.sim.site import Site
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.world import World

__all__ = ["Acting", "Action"]

Action = Callable[[], None]


class Acting:
    """Draws machines and durations, and ends active faults, unless everything was healed before."""

    def __init__(self, world: World, rng: Rng, site: Site, trouble: Trouble) -> None:
        self.world = world
        self.rng = rng
        self.site = site
        self.trouble = trouble
        self._round = 0  # counts healings: actions planned before a healing do nothing after it
        self._acting = 0  # faults that have not ended

    @property
    def active(self) -> bool:
        """Whether a fault is active."""
        return self._acting > 0

    def end_all(self) -> None:
        """Forget all active faults."""
        self._round += 1
        self._acting = 0

    def duration(self) -> int:
        """Draw how long something lasts."""
        longest = [20 * MILLISECOND, 300 * MILLISECOND, 2 * SECOND, 8 * SECOND][self.rng.below(4)]
        return MILLISECOND + self.rng.below(longest)

    def _until(self, duration_us: int, end: Callable[..., None], *arguments: object) -> None:
        self._acting += 1
        self.world.later(duration_us, self._end, self._round, end, arguments)

    def _end(self, number: int, end: Callable[..., None], arguments: tuple[object, ...]) -> None:
        if number == self._round:
            self._acting -= 1
            end(*arguments)

    def _shuffled(self, hosts: list[Host]) -> list[Host]:
        rest = list(hosts)
        drawn: list[Host] = []
        while rest:
            drawn.append(rest.pop(self.rng.below(len(rest))))
        return drawn

    def _victims(self) -> list[Host]:
        """Draw one running machine that may fail, or none."""
        for host in self._shuffled(self.site.running)[:1]:
            if self.trouble.affords([host]):
                self.trouble.weaken([host])
                return [host]
        return []

    def _note(self, what: str, hosts: list[Host]) -> None:
        self.world.mark(what)
        self.world.note("world", f"{what} {' '.join([host.name for host in hosts])}")

    def start(self, host: Host) -> None:
        """Start a machine's node, if it is down; one that was leaving continues to leave."""
        if host.node is None and (host.member or host.leaving):
            host.start()
