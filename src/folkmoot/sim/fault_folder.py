"""Faults of data folders: emptied under the same id, restored from an older copy, run twice by two processes.

Losing what a disk has is within the budget (`folkmoot.sim.trouble`): at most as many folders as the promises allow,
with the machines that lack changes for another reason. A folder that was set back may not show it: then its node counts
as a copy and as a voter, and only the other copies can tell (docs/limits.md, When a disk fails). So it comes back while
they are all there, and nothing else fails until the cluster is whole. Owns the copies of folders, and the clones that
run.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.sim.acting import Acting, Action
from folkmoot.sim.fault_link import LinkFaults
from folkmoot.sim.host import Host
from folkmoot.sim.site import Site
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.world import World
from folkmoot.store.memory import MemoryStore

__all__ = ["FolderFaults"]

_AGE_US: Final = 20 * SECOND
"""How old a copy of a folder becomes before it is used."""


class FolderFaults(Acting):
    """Faults of data folders, as actions to be drawn. `links` cuts machines off; `alone`: it may do so."""

    def __init__(self, world: World, rng: Rng, site: Site, trouble: Trouble, links: LinkFaults, alone: bool) -> None:
        super().__init__(world, rng, site, trouble)
        self.links = links
        self.alone = alone
        self.clones: list[Host] = []

    def actions(self) -> list[tuple[int, str, Action]]:
        """Return (weight, name, action) of each fault."""
        return [
            (2, "emptied disks", self.empty),
            (2, "old folders", self.keep_copy),
            (2, "uneven power loss", self.mix_moments),
            (1, "clones", self.clone),
            (2, "incomplete disks", self.lose_newest),
        ]

    def heal(self) -> None:
        """End everything, for good."""
        self.end_all()
        for host in list(self.clones):
            self.end_clone(host)

    def empty(self) -> None:
        """Bring a node back with its id and an empty disk."""
        for host in self._shuffled(self.site.running)[:1]:
            self._replace(host, None)

    def keep_copy(self) -> None:
        """Copy a folder, and bring the node back with the copy later; perhaps once more with the same copy."""
        for host in self._shuffled([host for host in self.site.running if host.member])[:1]:
            copy = self.copy_of(host)
            self.world.mark("folder copied")
            self._until(self.rng.below(_AGE_US), self._replace, host, copy)
            if self.rng.chance(1, 3):
                self._until(_AGE_US + self.rng.below(_AGE_US), self._replace, host, copy)

    def mix_moments(self) -> None:
        """Copy a folder; later all power is lost, and this machine comes back with the copy."""
        running = self.site.running
        for host in self._shuffled([host for host in running if host.member])[:1]:
            if self.trouble.calm and self.trouble.affords([host]) and self.trouble.spares_disks([host]):
                self.trouble.weaken([host])
                self._until(SECOND + self.rng.below(5 * SECOND), self._return_mixed, host, self.copy_of(host))

    def _return_mixed(self, old: Host, copy: MemoryStore) -> None:
        running = self.site.running
        if not self._is_only_one(old):
            return
        self.world.mark("folders of different moments")
        self._lose_power(running, old, copy)
        # A machine that is late counts as one that failed, too: one copy of everything is neither late nor set back.
        late = (0, max(0, self.trouble.copies - 2))[self.rng.below(2)]
        for number, host in enumerate(self._shuffled(running)):
            apart = 4 * SECOND if number < late else 20 * MILLISECOND
            self._until(100 * MILLISECOND + self.rng.below(apart), self.start, host)

    def lose_newest(self) -> None:
        """Copy a folder; soon all power is lost, with the newest writes of this machine, and another one for longer."""
        running = self.site.running
        for host in self._shuffled([host for host in running if host.member and not host.witness])[:1]:
            if self.trouble.calm and self.trouble.affords([host]) and self.trouble.spares_disks([host]):
                self.trouble.weaken([host])
                self._until(self.rng.below(3 * SECOND), self._return_incomplete, host, self.copy_of(host))

    def _return_incomplete(self, host: Host, copy: MemoryStore) -> None:
        """Let a machine come back that lacks what it has confirmed last, as `durability = "os"` may have it."""
        running = self._shuffled(self.site.running)
        others = [other for other in running if other is not host]
        if not self._is_only_one(host) or not self.trouble.affords([host, *others[:1]]):
            return
        self.world.mark("incomplete disk")
        self._lose_power(running, host, copy)
        host.incomplete = True
        apart = (20 * MILLISECOND, 2 * SECOND, 12 * SECOND)[self.rng.below(3)]
        for one in running:
            lost_us = 30 * SECOND if one is others[0] else 0
            self._until(100 * MILLISECOND + lost_us + self.rng.below(apart), self.start, one)

    def _is_only_one(self, lacking: Host) -> bool:
        """Whether a machine runs, is the only one that may lack changes, and all reach each other soon.

        What is not heard of within a lease counts as away (docs/limits.md).
        """
        if lacking.node is None or any(one.member and one.node is None for one in self.site.hosts):
            return False
        return not self.links.busy and list(self.trouble.weak) == [lacking.name] and not self.links.mesh.slow_us

    def _lose_power(self, running: list[Host], old: Host, copy: MemoryStore) -> None:
        """End all processes at once, and put an earlier folder in the place of one machine's."""
        self.trouble.exhaust()
        self.trouble.fail(running)
        for host in running:
            self._crash(host)
        self.restore(old, copy)

    def copy_of(self, host: Host) -> MemoryStore:
        """Return a copy of what a machine's disk has at present."""
        self.world.note(host.name, "folder copied")
        return host.disk.store.copy()

    def restore(self, host: Host, copy: MemoryStore) -> None:
        """Put a copy in the place of what the disk of a machine has; its node is down."""
        assert host.node is None, "the folder of a running node stays"
        self.world.mark("old folder restored")
        self.world.note(host.name, "old folder restored")
        host.blank = True
        host.emptied_us.append(self.world.now)
        host.disk.wipe()
        host.disk.store = copy.copy()

    def _replace(self, host: Host, copy: MemoryStore | None) -> None:
        """Replace a folder; an empty one perhaps after another machine was away, and with the others away then."""
        may_fail = self.trouble.affords_disk(host, []) and self.trouble.spares_disks([host])
        if host.node is None or not host.member or not may_fail:
            return
        if copy is not None:
            if self.trouble.calm and not self.links.busy:
                self.trouble.weaken([host])
                self.trouble.exhaust()
                self._change_folder(host, copy)
                self._until(self.duration(), self.start, host)
            return
        if not self.trouble.leaves_one([host]):
            return
        if self.trouble.affords([host]):
            self.trouble.weaken([host])
        else:  # others lack what was acknowledged meanwhile, but not all that have it lose their disks
            self.world.mark("disk lost while others lack changes")
            self.trouble.fail([host])
            self.trouble.exhaust()
        others = self._shuffled([other for other in self.site.running if other is not host])
        stale = others[:1]
        if len(others) < 2 or self.rng.chance(1, 2) or not self.trouble.affords_disk(host, stale):
            self._change_folder(host, copy)
            self._until(self.duration(), self.start, host)
            return
        self.world.mark("folder replaced while another node lacks changes")
        self.trouble.weaken(stale)
        stale[0].crash()
        gone = SECOND + self.rng.below(4 * SECOND)
        back = gone + 10 * MILLISECOND
        self._until(gone, self._empty_later, host, stale)
        away = SECOND + self.rng.below(8 * SECOND)
        if self.alone and self.rng.chance(1, 2):
            self._until(gone, self.links.isolate, [host, stale[0]], away)
        else:
            for other in others[1:]:
                self._until(gone, self._crash, other)
                self._until(back + away, self.start, other)
        for returning in (host, stale[0]):
            self._until(back + self.rng.below(300 * MILLISECOND), self.start, returning)

    def _empty_later(self, host: Host, stale: list[Host]) -> None:
        """Empty a disk, unless another one was lost since this was decided."""
        if self.trouble.affords_disk(host, stale) and self.trouble.spares_disks([host]):
            self._change_folder(host, None)

    def _crash(self, host: Host) -> None:
        if host.node is not None:
            self.trouble.disturb()
            host.crash()

    def _change_folder(self, host: Host, copy: MemoryStore | None) -> None:
        self._crash(host)
        if copy is None:
            host.wipe(same_id=True)
        else:
            self.restore(host, copy)

    # Clones

    def clone(self) -> None:
        """Start a second process over a copy of a running node's folder, at another machine.

        All others see both. In a split, a side that sees only the second one could not tell, and would count its vote.
        """
        if not self.trouble.calm or self.links.busy:
            return
        spare = [host for host in self.site.hosts if not host.member and not host.leaving and host.node is None]
        running = self._shuffled([host for host in self.site.running if host.up and host.member])
        if spare and running:
            self.trouble.exhaust()
            self.start_clone(running[0], spare[0])
            self._until(SECOND + self.rng.below(10 * SECOND), self.end_clone, spare[0])

    def start_clone(self, host: Host, spare: Host) -> None:
        """Start a clone of a node at a machine that has none."""
        self.world.mark("clone")
        self.world.note("world", f"clone of {host.name} at {spare.name}")
        self.trouble.disturb()
        spare.disk.store = self.copy_of(host)
        spare.id_of_clone = host.node_id
        self.clones.append(spare)
        spare.start()

    def end_clone(self, host: Host) -> None:
        """End a clone: its folder goes with it."""
        if host in self.clones:
            self.clones.remove(host)
            if host.node is not None:
                host.crash()
            host.id_of_clone = ""
            host.wipe()
