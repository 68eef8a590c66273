"""Members that come and go: machines that join, leave, are evicted or lost for good; and the operator's orders.

An operator forgets ids whose disks are gone: as long as a cluster expects them back, it keeps data for them, and they
count where a majority is needed.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.sim.acting import Acting, Action
from folkmoot.sim.host import Host
from folkmoot.sim.inside import is_in_view, known_at, picture_at, view_of
from folkmoot.sim.site import Site
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.world import World

__all__ = ["MemberFaults"]

_OPERATOR_US: Final = 2 * SECOND
"""How often an operator checks whether an order is due."""


class MemberFaults(Acting):
    """The orders of operators, and their causes."""

    def __init__(self, world: World, rng: Rng, site: Site, trouble: Trouble) -> None:
        super().__init__(world, rng, site, trouble)
        self._evicted: list[
            tuple[Host, int]
        ] = []  # machines that are to be started again, with the life that ends then
        self._lost: dict[str, bool] = {}  # ids that will never come back, and whether a node was told to forget them

    def actions(self) -> list[tuple[int, str, Action]]:
        """Return (weight, name, action) of each fault."""
        return [
            (1, "joins", self.join),
            (1, "leaves", self.leave),
            (1, "evictions", self.evict),
            (1, "losses", self.lose),
        ]

    def join(self) -> None:
        """Let a new machine join."""
        for host in self.site.hosts:
            if not host.member and not host.leaving and host.node is None:
                self._note("join", [host])
                self.trouble.disturb()
                host.member = True
                host.start()
                return

    def leave(self) -> None:
        """Let a node leave for good: it hands its data over and stops; the machine may join again, empty."""
        running = [host for host in self.site.running_with_data if host.member]
        if len(running) > self.trouble.copies:
            host = running[self.rng.below(len(running))]
            self._note("leave", [host])
            self.trouble.disturb()
            host.leave()

    def evict(self) -> None:
        """Have an operator evict a node; it stays out of the view until it is started again."""
        running = self._shuffled([host for host in self.site.running if host.up and is_in_view(host)])
        if len(running) < 3 or not self.trouble.affords(running[:1]):
            return
        victim, other = running[:2]
        picture = picture_at(other)
        if picture is None:
            return
        self.trouble.weaken([victim])
        self._note("evict", [victim])
        other.operate(picture.evict, victim.node_id)
        self._evicted.append((victim, victim.life))
        self._until(SECOND + self.duration(), self._restart, victim, victim.life)

    def _restart(self, host: Host, life: int) -> None:
        self._evicted.remove((host, life))
        if host.life == life:
            host.crash()
            host.start()

    def heal(self) -> None:
        """End everything: evicted nodes are started again."""
        self.end_all()
        for host, life in list(self._evicted):
            self._restart(host, life)

    def lose(self) -> None:
        """Lose a machine for good: its copies are rebuilt, and another one may join."""
        running = self.site.running_with_data
        if len(running) <= self.trouble.copies or picture_at(running[0]) is None:
            return
        for host in self._victims():
            self._note("loss", [host])
            host.crash()
            self.wipe(host)
            host.member = False

    # The operator

    def wipe(self, host: Host) -> None:
        """The disk is gone, and the id with it: an operator reports it after a while."""
        if not self._lost:
            self.world.later(_OPERATOR_US, self._operate)
        self._lost[host.node_id] = False
        host.wipe()

    def _operate(self) -> None:
        """Forget ids that will never return, as an operator would."""
        for host in self.site.running:
            picture = picture_at(host)
            view = view_of(host)
            if picture is None or view is None or not host.up:
                continue
            known = known_at(host)
            for node_id in list(self._lost):
                if node_id in view.ids:
                    continue  # its end was not noticed yet
                if node_id in known:
                    force = self._lost[node_id]  # an order that was refused is given again: the disk is gone for good
                    if not force:
                        self.world.mark("forget")
                        self._lost[node_id] = True
                    host.operate(partial(picture.forget, force=True) if force else picture.forget, node_id)
                elif is_in_view(host):
                    del self._lost[node_id]
        if self._lost:
            self.world.later(_OPERATOR_US, self._operate)
