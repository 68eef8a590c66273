"""Several machines that join or leave at once, perhaps while the network is slow and then splits.

Owns nothing but the moments: membership is the business of `folkmoot.sim.fault_member` and of the nodes.
"""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.sim.acting import Acting, Action
from folkmoot.sim.fault_link import LinkFaults
from folkmoot.sim.host import Host
from folkmoot.sim.site import Site
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.world import World

__all__ = ["CrowdFaults"]


class CrowdFaults(Acting):
    """Joins and leaves of several machines. `links` splits the network; `splits`: it may do so."""

    def __init__(self, world: World, rng: Rng, site: Site, trouble: Trouble, links: LinkFaults, splits: bool) -> None:
        super().__init__(world, rng, site, trouble)
        self.links = links
        self.splits = splits

    def actions(self) -> list[tuple[int, str, Action]]:
        """Return (weight, name, action) of each fault."""
        return [(3, "joins at once", self.join), (2, "leaves at once", self.leave)]

    def heal(self) -> None:
        """End everything, for good."""
        self.end_all()

    def join(self) -> None:
        """Start all machines that are not members."""
        joining = [host for host in self.site.hosts if not host.member and not host.leaving and host.node is None]
        old = self._shuffled([host for host in self.site.running if host.up and host.member])
        if not joining or not old:
            return
        self._note("joins at once" if len(joining) > 1 else "join", joining)
        self.trouble.disturb()
        for host in joining:
            self._until(self.rng.below(30 * MILLISECOND), self._join, host)
        if self.rng.chance(2, 3):  # so that there can be another join
            self._until((6 + self.rng.below(8)) * SECOND, self._leave_again, joining)
        if self.splits and self.rng.chance(2, 3):
            # Most of the old members, who are a majority as long as they have not learned of the new ones.
            late = old[: len(old) // 2 + 1]
            self._delay(late)
            at = SECOND + self.rng.below(1500 * MILLISECOND)
            if self.rng.chance(3, 4):
                self._until(at, self.links.isolate, late, SECOND + self.rng.below(8 * SECOND))
            else:
                self._until(at, self.links.change)

    def _join(self, host: Host) -> None:
        if host.node is None and not host.leaving and not host.id_of_clone:
            host.member = True
            host.start()

    def _leave_again(self, hosts: list[Host]) -> None:
        """As many as can: with fewer nodes than copies that have to be in sync, nothing is served."""
        for host in hosts:
            staying = [one for one in self.site.running_with_data if one.member and not one.leaving]
            if host in staying and len(staying) > self.trouble.least:
                host.leave()

    def _delay(self, hosts: list[Host]) -> None:
        """Make the ways from all other machines to these slow for a while."""
        slow = self.links.mesh.slow_us
        delay = 100 * MILLISECOND + self.rng.below(400 * MILLISECOND)
        for host in hosts:
            for other in self.site.hosts:
                if other not in hosts:
                    slow[other.name, host.name] = delay
        self._until(3 * SECOND, self._speed_up, hosts)

    def _speed_up(self, hosts: list[Host]) -> None:
        names = [host.name for host in hosts]
        slow = self.links.mesh.slow_us
        for pair in [pair for pair in slow if pair[1] in names]:
            del slow[pair]

    def leave(self) -> None:
        """Let two nodes leave for good, at once."""
        running = self._shuffled([host for host in self.site.running_with_data if host.member])
        count = min(2, len(running) - self.trouble.copies)
        if count > 0:
            self._note("leaves at once" if count > 1 else "leave", running[:count])
            self.trouble.disturb()
            for host in running[:count]:
                host.leave()
