"""The faults of the family `--topologies`: links, processes, clocks, folders, members. Owns these parts."""

from __future__ import annotations

from folkmoot.kernel.rng import Rng
from folkmoot.sim.acting import Action
from folkmoot.sim.fault_crowd import CrowdFaults
from folkmoot.sim.fault_folder import FolderFaults
from folkmoot.sim.fault_link import LinkFaults
from folkmoot.sim.fault_order import OrderFaults
from folkmoot.sim.fault_process import ProcessFaults
from folkmoot.sim.history import History
from folkmoot.sim.mesh import Mesh
from folkmoot.sim.site import Site
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.world import World

__all__ = ["TopologyFaults"]


class TopologyFaults:
    """All faults that only this family draws. `splits`: whether machines may be cut off from each other."""

    def __init__(
        self, world: World, rng: Rng, site: Site, trouble: Trouble, mesh: Mesh, history: History, *, splits: bool
    ) -> None:
        self.links = LinkFaults(world, rng.fork(), site, trouble, mesh)
        self.processes = ProcessFaults(world, rng.fork(), site, trouble, self.links, splits)
        self.folders = FolderFaults(world, rng.fork(), site, trouble, self.links, splits)
        self.crowds = CrowdFaults(world, rng.fork(), site, trouble, self.links, splits)
        self.orders = OrderFaults(world, rng.fork(), site, trouble, history, majority=trouble.majority)

    def actions(self) -> list[tuple[int, str, Action]]:
        """Return (weight, name, action) of each fault."""
        return [
            *self.links.actions(),
            *self.processes.actions(),
            *self.folders.actions(),
            *self.crowds.actions(),
            *self.orders.actions(),
        ]

    @property
    def active(self) -> bool:
        """Whether one has not ended yet."""
        parts = (self.links, self.processes, self.folders, self.crowds, self.orders)
        return any(part.active for part in parts)

    def heal(self) -> None:
        """End everything, for good."""
        self.orders.heal()
        self.crowds.heal()
        self.folders.heal()
        self.processes.heal()
        self.links.heal()
