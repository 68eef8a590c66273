"""Link matrices between the machines of a cluster: drawn, kept for seconds to minutes, changed, or flapping.

Owns which matrix is in force; one at a time. Needs no budget: no machine fails, and nothing is lost.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MILLISECOND, NEVER, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.sim.acting import Acting, Action
from folkmoot.sim.host import Host
from folkmoot.sim.mesh import Mesh
from folkmoot.sim.site import Site
from folkmoot.sim.topology import Cuts, draw
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.world import World

__all__ = ["LinkFaults"]

_PERIODS_US: Final = (50 * MILLISECOND, 500 * MILLISECOND, 3 * SECOND)
"""Of flapping links: for up to one of these they are cut, and then as long mended."""


class LinkFaults(Acting):
    """Matrices as actions to be drawn."""

    def __init__(self, world: World, rng: Rng, site: Site, trouble: Trouble, mesh: Mesh) -> None:
        super().__init__(world, rng, site, trouble)
        self.mesh = mesh
        self._cuts: Cuts = []
        self._number = 0  # of matrices: an end that was planned for an earlier one does nothing

    def actions(self) -> list[tuple[int, str, Action]]:
        """Return (weight, name, action) of each fault."""
        return [(10, "link matrices", self.change)]

    @property
    def active(self) -> bool:
        """Whether a matrix is in force, or flaps."""
        return super().active or self.busy

    @property
    def busy(self) -> bool:
        """Whether a matrix is in force."""
        return bool(self._cuts)

    def heal(self) -> None:
        """Mend everything, for good."""
        self.end_all()
        self.mend()

    @property
    def _spares(self) -> bool:
        """Whether a folder was set back and nothing else may fail: copies that are cut off from it count as away."""
        return self.trouble.exhausted and any(host.blank for host in self.site.hosts)

    def lasting(self) -> int:
        """Draw how long a matrix lasts, microseconds."""
        longest = (2 * SECOND, 8 * SECOND, 30 * SECOND, 90 * SECOND)[self.rng.below(4 if self.trouble.majority else 3)]
        return longest // 3 + self.rng.below(longest)

    def change(self) -> None:
        """Draw a matrix; it may take the place of the present one."""
        if self.busy and not self.rng.chance(1, 6):
            return
        if self._spares:
            return
        names = [host.name for host in self.site.hosts if host.member or host.node is not None]
        if len(names) < 2:
            return
        kind, cuts = draw(self.rng, names)
        lasts = self.lasting()
        if self.rng.chance(1, 4):
            self.apply(f"flapping {kind}", [], lasts)
            self._flap(self._number, cuts, _PERIODS_US[self.rng.below(len(_PERIODS_US))])
        else:
            self.apply(kind, cuts, lasts)

    def stand(self) -> None:
        """Draw a matrix that stays in force until everything is mended."""
        names = [host.name for host in self.site.hosts if host.member]
        if len(names) > 1 and not self._spares:
            kind, cuts = draw(self.rng, names)
            self.apply(kind, cuts, NEVER)

    def isolate(self, hosts: list[Host], lasts_us: int) -> None:
        """Cut some machines off from all others, not from each other."""
        inside = [host.name for host in hosts]
        outside = [host.name for host in self.site.hosts if host not in hosts]
        cuts = [(one, two) for one in inside for two in outside]
        self.apply("cut off " + " ".join(inside), cuts + [(two, one) for one, two in cuts], lasts_us)

    def apply(self, kind: str, cuts: Cuts, lasts_us: int) -> None:
        """Put a matrix in force, for so long; NEVER: until it is mended."""
        self.mend()
        self._number += 1
        self.world.mark(f"links: {'cut off' if kind.startswith('cut off') else kind}")
        text = " ".join([f"{one}>{two}" for one, two in cuts])
        self.world.note("world", f"links for {lasts_us}: {kind}: {text}")
        self.trouble.split()
        self._cut(cuts)
        if lasts_us < NEVER:
            self._until(lasts_us, self._end_matrix, self._number)

    def _cut(self, cuts: Cuts) -> None:
        self._cuts = cuts
        hosts = {host.name: host for host in self.site.hosts}
        for one, two in cuts:
            self.mesh.cut(hosts[one], hosts[two])

    def mend(self) -> None:
        """Mend what the present matrix has cut."""
        hosts = {host.name: host for host in self.site.hosts}
        for one, two in self._cuts:
            self.mesh.mend(hosts[one], hosts[two])
        self._cuts = []

    def _end_matrix(self, number: int) -> None:
        if number == self._number:
            self._number += 1
            self.mend()
            self.world.note("world", "links mended")

    def _flap(self, number: int, cuts: Cuts, period_us: int) -> None:
        if number == self._number:
            if self._cuts:
                self.mend()
            else:
                self._cut(cuts)
            self._until(MILLISECOND + self.rng.below(period_us), self._flap, number, cuts, period_us)
