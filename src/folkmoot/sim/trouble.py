"""The budget of faults: how many more failures the cluster may take before it is whole again.

The promises hold for the loss of `replicas` - 1 nodes at once (docs/limits.md), so faults ask here first. What happened
to whom, as checkers need it, is in `folkmoot.sim.history`.
"""

from __future__ import annotations

from folkmoot.membership.voters import voters_wanted
from folkmoot.sim.host import Host
from folkmoot.sim.inside import is_in_view, voters_at
from folkmoot.sim.world import World

__all__ = ["Trouble"]


class Trouble:
    """The faults since the cluster was whole. `copies`: of each partition, when it is whole and has enough nodes.

    `least`: of those, that have what was acknowledged (`min_in_sync`).
    """

    def __init__(self, world: World, hosts: list[Host], copies: int, least: int = 1) -> None:
        self.world = world
        self.hosts = hosts
        self.copies = copies
        self.least = least
        self.calm = True  # there has been no fault since the cluster was whole
        self.weak: dict[str, bool] = {}  # machines that may lack changes since the cluster was whole
        self.faults = 0  # told so far
        self.majority = False  # with the policy "majority": the minority side does nothing
        self.exhausted = False  # no further fault until the cluster is whole
        self._voters: list[str] = []  # when a machine was well last

    @property
    def alone(self) -> bool:
        """Whether there is no cluster."""
        return len(self.hosts) == 1

    # Faults

    def disturb(self) -> None:
        """Record a fault within the budget."""
        self.faults += 1
        self.calm = self.alone

    def affords(self, hosts: list[Host]) -> bool:
        """Whether the budget allows these machines to fail now too."""
        weak = dict(self.weak)
        for host in hosts:
            weak[host.name] = True
        members = [host for host in self.hosts if host.member and not host.witness]
        return self.alone or len(weak) < min(self.copies, len(members))

    def affords_disk(self, host: Host, others: list[Host]) -> bool:
        """Whether the budget allows this machine to lose its disk, and these others to fail too.

        What was acknowledged is on `least` disks, whoever else lacks it: one less than these may be lost at any time.
        """
        lost = [one for one in self.hosts if one.blank or one is host]
        return self.affords([host, *others]) or len(lost) < self.least

    def spares_disks(self, hosts: list[Host]) -> bool:
        """Whether these machines may lose what their disks had, with those that have lost it already.

        With the policy "majority" a quorum of the voters must keep its disks: without one, nothing goes on until an
        operator says which disks will not come back.
        """
        members = [host for host in self.hosts if host.member]
        lost = [host for host in members if host.blank or host in hosts]
        if not self.majority:
            return True
        voters = self.voters() or self._voters  # fewer than are wanted, while machines join
        lost_voters = [host for host in lost if host.node_id in voters or host.name in voters]  # the former id counts
        return 2 * len(lost) < voters_wanted(len(members)) and (not voters or 2 * len(lost_voters) < len(voters))

    def voters(self) -> list[str]:
        """Return the voters, as a machine that is well knows them; none, if none is."""
        for host in self.hosts:
            if host.up and is_in_view(host):
                self._voters = voters_at(host)
                return self._voters
        return []

    def leaves_one(self, hosts: list[Host]) -> bool:
        """Whether a member runs that has its disk, without these: empty folders alone would begin another cluster."""
        for host in self.hosts:
            if host.member and host.node is not None and not host.blank and host not in hosts:
                return True
        return False

    def weaken(self, hosts: list[Host]) -> None:
        """Record the failure of machines; beyond the budget the contents of the others are unknown."""
        if self.alone:
            self.disturb()
            return
        afforded = self.affords(hosts)
        self.fail(hosts)
        if afforded:
            self.disturb()
        else:
            self.world.mark("beyond the budget")
            self.split()

    def fail(self, hosts: list[Host]) -> None:
        """Record the failure of machines, whatever the budget; they fail now."""
        self.voters()
        for host in hosts:
            self.weak[host.name] = True

    def exhaust(self) -> None:
        """Record a fault that allows no other one: the budget is spent until the cluster is whole again."""
        self.exhausted = True
        self.disturb()

    def split(self) -> None:
        """Record a split of the network: no machine can be sure of having everything."""
        self.disturb()
        for host in self.hosts:
            self.weak[host.name] = True

    def rest(self) -> None:
        """The cluster is whole: all members in one view, all copies complete."""
        self.calm = True
        self.exhausted = False
        self.weak.clear()
        for host in self.hosts:
            host.blank = False
