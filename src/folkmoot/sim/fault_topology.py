"""The faults of the family `--topologies`: links, processes, clocks, folders, members. Owns these parts."""

from __future__ import annotations

from folkmoot.kernel.rng import Rng
from folkmoot.sim.acting import Action
from folkmoot.sim.fault_crowd import CrowdFaults
from folkmoot.sim.fault_folder import FolderFaults
from folkmoot.sim.fault_link import LinkFaults
from folkmoot.sim.fault_process import ProcessFaults
from folkmoot.sim.mesh import Mesh
from folkmoot.sim.site import Site
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.world import World

__all__ = ["TopologyFaults"]


class TopologyFaults:
    """All faults that only this family draws. `splits`: whether machines may be cut off from each other."""

    def __init__(self, world: World, rng: Rng, site: Site, trouble: Trouble, mesh: Mesh, *, splits: bool) -> None:
        self.links = LinkFaults(world, rng.fork(), site, trouble, mesh)
        self.processes = ProcessFaults(world, rng.fork(), site, trouble, self.links, splits)
        self.folders = FolderFaults(world, rng.fork(), site, trouble, self.links, splits)
        self.crowds = CrowdFaults(world, rng.fork(), site, trouble, self.links, splits)

    def actions(self) -> list[tuple[int, str, Action]]:
        """Return (weight, name, action) of each fault."""
        return [
            *self.links.actions(),
            *self.processes.actions(),
            *self.folders.actions(),
            *self.crowds.actions(),
        ]

    @property
    def active(self) -> bool:
        """Whether one has not ended yet."""
        return self.links.active or self.processes.active or self.folders.active or self.crowds.active

    def heal(self) -> None:
        """End everything, for good."""
        self.crowds.heal()
        self.folders.heal()
        self.processes.heal()
        self.links.heal()
