"""The ledger of faults: when and how the cluster was disturbed or split, and how many more failures it may take.

The promises hold for the loss of `replicas` - 1 nodes at once (docs/limits.md), so faults ask here first. Splits, and
faults beyond the budget, are recorded; checkers look them up where a promise is weaker then. Times are those of the
world in microseconds.
"""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.membership.voters import voters_wanted
from folkmoot.sim.host import Host
from folkmoot.sim.inside import is_in_view, voters_at
from folkmoot.sim.network import Link
from folkmoot.sim.world import World

__all__ = ["Span", "Trouble"]

_AWAY_US = 10 * SECOND
"""How long a machine that has failed may be away."""

_AFTER_US = 1 * SECOND
"""How long after a cluster is whole again its disturbance may show: messages under way come late."""


class Span:
    """A period of trouble.

    `groups`: the number of each machine's side in a split; None is a disturbance within the budget. `sure`: by side,
    whether it had a copy of everything when the split began. Machines without a side are separated from all others.
    """

    def __init__(
        self,
        begin_us: int,
        end_us: int,
        groups: dict[str, int] | None,
        sure: dict[int, bool],
        after_us: int = _AFTER_US,
    ) -> None:
        self.begin_us = begin_us
        self.end_us = end_us
        self.groups = groups
        self.sure = sure
        self.after_us = after_us

    def overlaps(self, since_us: int, until_us: int) -> bool:
        """Whether it overlaps the time between the two moments."""
        return self.begin_us <= until_us and self.end_us >= since_us

    def together(self, first: str, second: str) -> bool:
        """Whether two machines are on one side."""
        assert self.groups is not None, "only a split has sides"
        if first == second:
            return True
        return first in self.groups and self.groups[first] == self.groups.get(second)

    def sure_of(self, name: str) -> bool:
        """Whether the side of this machine had a copy of everything."""
        assert self.groups is not None, "only a split has sides"
        return name in self.groups and self.sure.get(self.groups[name], False)


class Trouble:
    """All trouble of a run. `copies`: of each partition, when the cluster is whole and has enough nodes."""

    def __init__(self, world: World, hosts: list[Host], copies: int) -> None:
        self.world = world
        self.hosts = hosts
        self.copies = copies
        self.spans: list[Span] = []
        self.splits: list[Span] = []
        self.weak: dict[str, bool] = {}  # machines that may lack changes since the cluster was whole
        self.faults = 0  # told so far
        self.majority = False  # with the policy "majority": the minority side does nothing
        self.exhausted = False  # no further fault until the cluster is whole
        self._voters: list[str] = []  # when a machine was well last
        self._lost_links: list[Span] = []  # a node has given up its link to a live one
        self._failures: list[tuple[str, int]] = []  # (machine, when)
        self._open: list[Span] = []

    @property
    def alone(self) -> bool:
        """Whether there is no cluster."""
        return len(self.hosts) == 1

    @property
    def calm(self) -> bool:
        """Whether there has been no fault since the cluster was whole."""
        return not self._open

    # Faults

    def disturb(self) -> None:
        """Record a fault within the budget."""
        now = self.world.now
        self.faults += 1
        if self.alone:
            self.spans.append(Span(now, now, None, {}))
        elif not self._open:
            self._begin(Span(now, NEVER, None, {}))

    def lacking(self) -> dict[str, bool]:
        """Return the machines that may lack changes: failed ones, and those with a copy that is being filled."""
        return {**self.weak, **{host.name: True for host in self.hosts if host.refilled}}

    def affords(self, hosts: list[Host]) -> bool:
        """Whether the budget allows these machines to fail now too."""
        weak = self.lacking()
        for host in hosts:
            weak[host.name] = True
        members = [host for host in self.hosts if host.member and not host.witness]
        return self.alone or len(weak) < min(self.copies, len(members))

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
            self.split([])

    def fail(self, hosts: list[Host]) -> None:
        """Record the failure of machines, whatever the budget; they fail now."""
        self.voters()
        for host in hosts:
            self.weak[host.name] = True
            self._failures.append((host.name, self.world.now))

    def lose_link(self) -> None:
        """Record that a node has dropped its messages for a live one."""
        self.disturb()
        span = Span(self.world.now, NEVER, None, {}, 0)
        self._lost_links.append(span)
        self._open.append(span)

    def exhaust(self) -> None:
        """Record a fault that allows no other one: the budget is spent until the cluster is whole again."""
        self.exhausted = True
        self.disturb()

    def split(self, sides: list[list[Host]]) -> None:
        """The network splits into sides; machines that no side names are separated from all others."""
        self.faults += 1
        whole = self.calm
        groups: dict[str, int] = {}
        sure: dict[int, bool] = {}
        for number, side in enumerate(sides):
            for host in side:
                groups[host.name] = number
            sure[number] = whole and len(self.hosts) - len(side) < self.copies
        span = Span(self.world.now, NEVER, groups, sure)
        self.splits.append(span)
        self._begin(span)
        for host in self.hosts:
            self.weak[host.name] = True

    def isolate(self, host: Host) -> None:
        """A machine is cut off: if it may continue alone, actions that it had begun count for its side."""
        self.fail([host])
        self.split([[host], [other for other in self.hosts if other is not host]])

    def _begin(self, span: Span) -> None:
        self.spans.append(span)
        self._open.append(span)

    def rest(self) -> None:
        """The cluster is whole: all members in one view, all copies complete."""
        for span in self._open:
            span.end_us = self.world.now + span.after_us
        self._open = []
        self.exhausted = False
        self.weak.clear()
        for host in self.hosts:
            host.refilled = False
            host.blank = False

    # Questions of checkers

    def disturbed(self, since_us: int, until_us: int = NEVER) -> bool:
        """Whether there was any fault in this time."""
        for span in reversed(self.spans):
            if span.overlaps(since_us, until_us):
                return True
        return False

    def failed(self, name: str, since_us: int, until_us: int) -> bool:
        """Whether a machine failed in this time, by itself and not in a split."""
        return any(name == host and since_us <= at <= until_us for host, at in self._failures)

    def has_lost_link(self, since_us: int, until_us: int) -> bool:
        """Whether messages between two live nodes were lost in this time.

        Messages until the next view are lost as well; further faults delay that view.
        """
        return any(span.overlaps(since_us, until_us) for span in self._lost_links)

    def failed_at(self, name: str, since_us: int) -> int:
        """Return when a machine failed for the first time since then, or NEVER."""
        return min([at for host, at in self._failures if host == name and at >= since_us], default=NEVER)

    def count(self, since_us: int) -> int:
        """Return how many faults there have been since."""
        crashes = sum([1 for host in self.hosts for at in host.crashed_us if at >= since_us])
        return crashes if self.alone else crashes + 2 * sum([1 for span in self.spans if span.end_us >= since_us])

    def torn(self, since_us: int, until_us: int = NEVER) -> bool:
        """Whether two sides of a split may have served, or too much was lost, at some moment of this time.

        With the policy "majority" only one side serves.
        """
        for span in self.splits:
            if span.overlaps(since_us, until_us) and not (self.majority and span.groups):
                return True
        return False

    def cut_off(self, since_us: int) -> bool:
        """Whether some machines could not reach others at some moment since then, whatever the policy."""
        for span in self.splits:
            if span.end_us >= since_us:
                return True
        return False

    def separated(self, first: Link, second: Link, since_us: int, until_us: int) -> bool:
        """Whether the machines at the ends of two connections were on different sides at some moment of this time."""
        for span in self.splits:
            if span.overlaps(since_us, until_us) and not span.together(first.server.name, second.server.name):
                return True
        return False

    def parted(self, links: list[Link], since_us: int) -> bool:
        """Whether both sides of a split since then may have answered over these connections.

        With the policy "majority" only one side answers. Beyond the budget the sides are unknown.
        """
        for span in self.splits:
            if span.end_us < since_us:
                continue
            if not span.groups:
                return True
            if self.majority:
                continue
            for link in links[1:]:
                if not span.together(links[0].server.name, link.server.name):
                    return True
        return False

    def bereft(self, links: list[Link], since_us: int) -> bool:
        """Whether one of these connections was, since then, at a side of a split that may have lacked its session."""
        splits = [span for span in self.splits if span.end_us >= since_us and not self.majority]
        return any(not span.groups or not span.sure_of(link.server.name) for span in splits for link in links)

    def interrupted(self, since_us: int, until_us: int) -> bool:
        """Whether a split into two sides began in this time: what was under way may be at one of them only."""
        return not self.majority and any(since_us <= span.begin_us <= until_us for span in self.splits)

    def halved(self, since_us: int) -> bool:
        """Whether half of the machines, or more, were lost since then, or had been shortly before.

        The remaining ones cannot distinguish that from a split: they take back what they have not answered.
        """
        lost = {host for host, at in self._failures if at >= since_us - _AWAY_US}
        return 2 * len(lost) >= len(self.hosts)

    def reaches(self, known: Link, known_us: int, used: Link, used_us: int, until_us: int) -> bool:
        """Whether an acknowledgement over one connection must be visible to a later request over another one.

        known_us: the acknowledgement. used_us, until_us: the request was sent, and answered.
        """
        for span in self.splits:
            if not span.overlaps(used_us, until_us):
                continue
            if known_us < span.begin_us:
                if not span.sure_of(used.server.name):
                    return False
            elif not span.together(known.server.name, used.server.name):
                return False
        return True
