"""Faults between the machines of a cluster, and of several machines at once.

Splits of every kind, flapping, slow and broken links, hanging processes, unreachable machines, empty restarts. Owns
when each ends. The budget is asked before a machine fails. A split needs no budget: it is recorded, and weakens the
demands of the checkers.
"""

from __future__ import annotations

from typing import Any, Final

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.sim.acting import Acting, Action
from folkmoot.sim.fault_member import MemberFaults
from folkmoot.sim.host import Host
from folkmoot.sim.mesh import Mesh
from folkmoot.sim.site import Site
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.world import World

__all__ = ["ClusterFaults"]

_TOGETHER_US: Final = 800 * MILLISECOND
"""Nodes that lost power together return within this time; it is shorter than the time for which each waits."""


class ClusterFaults(Acting):
    """The faults of a cluster, as actions to be drawn; `heal` ends them."""

    def __init__(self, world: World, rng: Rng, site: Site, trouble: Trouble, mesh: Mesh) -> None:
        super().__init__(world, rng, site, trouble)
        self.mesh = mesh
        self.members = MemberFaults(world, rng.fork(), site, trouble)
        self._split = False  # one at a time: ending one would end the other

    def actions(self) -> list[tuple[int, str, Action]]:
        """Return (weight, name, action) of each fault."""
        return [
            (2, "mass crashes", self.crash_some),
            (1, "power loss", self.lose_power),
            (2, "empty restarts", self.restart_empty),
            (2, "sync failures", self.fail_sync),
            (2, "hangs", self.hang),
            (2, "blackouts", self.black_out),
            (2, "bad links", self.cut_pair),
            (2, "peer resets", self.reset),
            (2, "lost links", self.lose_link),
            (2, "slow links", self.slow_down),
            (2, "flapping", self.flap),
            (2, "splits", self.split),
            (1, "one-way splits", self.split_one_way),
            (1, "swizzles", self.swizzle),
            *self.members.actions(),
        ]

    @property
    def active(self) -> bool:
        """Whether one has not ended yet."""
        return self._acting > 0 or self.members.active

    def heal(self) -> None:
        """End everything, for good."""
        self.end_all()
        self.members.heal()
        self._split = False
        for host in self.site.hosts:
            host.go_on()
            if host.dark:
                host.darken(on=False)
        self.mesh.heal()

    # Machines

    def crash_some(self) -> None:
        """Kill as many nodes at once as the budget allows."""
        chosen: list[Host] = []
        for host in self._shuffled(self.site.running):
            if self.trouble.affords([*chosen, host]):
                chosen.append(host)
        if chosen:
            self.trouble.weaken(chosen)
            self._note("mass crash", chosen)
            for host in chosen:
                host.crash()
                self._until(self.duration(), self.start, host)

    def lose_power(self) -> None:
        """Stop all machines at once; they come back together."""
        running = self.site.running
        if len(running) < len([host for host in self.site.hosts if host.member]):
            return  # a machine that was down already may have less than the others: that is another fault
        self._note("power loss", running)
        before = dict(self.trouble.weak)
        self.trouble.disturb()
        self.trouble.fail(running)
        for host in running:
            host.crash()
        if self.rng.chance(1, 2):
            self._lose_disks(before)
        for host in running:
            self._until(100 * MILLISECOND + self.rng.below(_TOGETHER_US), self.start, host)

    def _lose_disks(self, weak: dict[str, bool]) -> None:
        """Empty some disks of machines that have lost power: as many as may fail at once."""
        members = [host for host in self.site.hosts if host.member]
        left = min(self.trouble.copies, len(members)) - 1 - len(weak)
        for host in self._shuffled([host for host in members if host.name not in weak])[: max(0, left)]:
            if self.trouble.spares_disks([host]):
                self.world.mark("disk lost with the power")
                self.members.wipe(host)

    def restart_empty(self) -> None:
        """Kill a node and bring it back with an empty disk."""
        for host in self._victims():
            self._note("empty restart of", [host])
            host.crash()
            self.members.wipe(host)
            self._until(self.duration(), self.start, host)

    def fail_sync(self) -> None:
        """Fail a sync: the process ends, because the content of the disk is unknown."""
        for host in self._victims():
            self._note("sync failure", [host])
            host.crash()
            self._until(self.duration(), self.start, host)

    def hang(self) -> None:
        """Stop a process for a while."""
        for host in self._victims():
            host.hang()
            self._until(self.duration(), host.go_on)

    def black_out(self) -> None:
        """Cut a machine off from all others, clients included."""
        for host in self._victims():
            self.world.mark("blackout")
            self.trouble.fail([host])
            self.trouble.split()
            host.darken(on=True)
            self._until(self.duration(), self._lighten, host)

    def _lighten(self, host: Host) -> None:
        host.darken(on=False)

    # Links between machines

    def _pair(self) -> list[Host]:
        return self._shuffled(self.site.running)[:2]

    def cut_pair(self) -> None:
        """Cut the link between two machines, or one direction of it: at most one of them may leave the view."""
        pair = self._pair()
        if len(pair) < 2 or len(self.site.running) < 3 or not self.trouble.affords(pair[:1]):
            return
        if not self.trouble.affords(pair):
            return  # it is open which of the two will leave
        self.trouble.weaken(pair)
        self._note("bad link", pair)
        both = self.rng.chance(1, 2)
        self.mesh.cut(pair[0], pair[1])
        if both:
            self.mesh.cut(pair[1], pair[0])
        self._until(self.duration(), self._mend, pair, pair)

    def _mend(self, first: list[Host], second: list[Host]) -> None:
        for one in first:
            for other in second:
                self.mesh.mend(one, other)
                self.mesh.mend(other, one)

    def reset(self) -> None:
        """Break all connections between two machines."""
        pair = self._pair()
        if len(pair) < 2:
            return
        self._note("peer reset", pair)
        self.trouble.disturb()
        for wire in self.mesh.wires:
            if {end.owner.host.name for end in wire.ends} == {host.name for host in pair}:
                wire.reset(self.rng.below(300 * MILLISECOND), self.rng.below(300 * MILLISECOND))

    def lose_link(self) -> None:
        """Have a node give up its link to a live one, as when too much waits in it: those messages are lost."""
        pair = self._pair()
        if len(pair) < 2:
            return
        node: Any = pair[0].node
        other: Any = pair[1].node
        for link in node.cluster_node.peers.links():
            if link.was_up and link.member.address == other.config.cluster.peer_address:
                self._note("lost link", pair)
                self.trouble.disturb()
                node.cluster_node.peers._switch.drop_slow(link)  # noqa: SLF001 - only a backlog that is too long does this, see A13

    def slow_down(self) -> None:
        """Make one way between two machines slow."""
        pair = self._pair()
        if len(pair) == 2:
            self._note("slow link", pair)
            self.trouble.disturb()
            names = pair[0].name, pair[1].name
            self.mesh.slow_us[names] = self.rng.below(300 * MILLISECOND)
            self._until(self.duration(), self._speed_up, names)

    def _speed_up(self, names: tuple[str, str]) -> None:
        self.mesh.slow_us.pop(names, None)

    # Splits

    def _split_duration(self) -> int:
        """Draw the duration of a split: half of them last longer than nodes take to notice."""
        longest = [300 * MILLISECOND, 2 * SECOND, 6 * SECOND, 10 * SECOND][self.rng.below(4)]
        return longest // 3 + self.rng.below(longest)

    def _sides(self) -> list[list[Host]]:
        hosts = self._shuffled(self.site.hosts)
        ways = 3 if len(hosts) > 2 and self.rng.chance(1, 4) else 2
        sides: list[list[Host]] = [[host] for host in hosts[:ways]]
        for host in hosts[ways:]:
            sides[self.rng.below(ways)].append(host)
        return sides

    def apply_split(self, sides: list[list[Host]], *, one_way: bool = False) -> None:
        """Cut the sides off from each other, or only from the first to the others."""
        text = " | ".join([" ".join([host.name for host in side]) for side in sides])
        self.world.mark("one-way split" if one_way else f"split in {len(sides)}")
        self.world.note("world", f"split {text}{' one way' if one_way else ''}")
        self.trouble.split()
        for number, side in enumerate(sides):
            for other in sides[number + 1 :]:
                for one in side:
                    for two in other:
                        self.mesh.cut(one, two)
                        if not one_way:
                            self.mesh.cut(two, one)

    def mend_split(self, sides: list[list[Host]]) -> None:
        """Connect the sides again."""
        for number, side in enumerate(sides):
            for other in sides[number + 1 :]:
                self._mend(side, other)

    def _mend_last(self, sides: list[list[Host]]) -> None:
        self._split = False
        self.mend_split(sides)

    def split(self) -> None:
        """Split the cluster in two or three."""
        if not self._split:
            self._split = True
            sides = self._sides()
            self.apply_split(sides)
            self._until(self._split_duration(), self._mend_last, sides)

    def split_one_way(self) -> None:
        """Cut the output of one side."""
        if not self._split:
            self._split = True
            sides = self._sides()[:2]
            self.apply_split(sides, one_way=True)
            self._until(self._split_duration(), self._mend_last, sides)

    def flap(self) -> None:
        """Split and mend several times in a row."""
        if self._split:
            return
        self._split = True
        sides = self._sides()
        self.trouble.split()
        self.world.mark("flapping")
        self._flap(sides, self.rng.between(3, 8))

    def _flap(self, sides: list[list[Host]], left: int) -> None:
        if left:
            self.apply_split(sides)
            self._until(MILLISECOND + self.rng.below(SECOND), self._flop, sides, left - 1)
        else:
            self._split = False

    def _flop(self, sides: list[list[Host]], left: int) -> None:
        self.mend_split(sides)
        self._until(MILLISECOND + self.rng.below(SECOND), self._flap, sides, left)

    def swizzle(self) -> None:
        """Cut machines off one after the other and let them back in another order (FoundationDB's swizzle-clogging)."""
        hosts = [] if self._split else self._shuffled(self.site.running)
        hosts = hosts[: self.rng.between(1, len(hosts))] if hosts else []
        if not hosts:
            return
        self._note("swizzle", hosts)
        self.trouble.split()
        self._split = True
        at = 0
        for host in hosts:
            at += self.rng.below(400 * MILLISECOND)
            self._until(at, self._isolate, host)
        for host in self._shuffled(hosts):
            at += self.rng.below(400 * MILLISECOND)
            self._until(at, self._mend, [host], [other for other in self.site.hosts if other is not host])
        self._until(at, self._mend_last, [])

    def _isolate(self, host: Host) -> None:
        for other in self.site.hosts:
            if other is not host:
                self.mesh.cut(host, other)
                self.mesh.cut(other, host)
