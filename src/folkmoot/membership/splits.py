"""What a member does when the cluster is split: whether its side forks, and when it goes over to another lineage.

A side without a quorum of voters is *silent*: nobody on it has a lease. With the policy for it, the side forks after a
while: its best informed member founds a lineage that goes on from what it has, and the others on that side follow.

- A process that is linked to one that has a lease, or leads the log, does not fork: the cluster goes on, if without
  this process. So a member that was cut off by some never makes a cluster beside theirs. Nor does it fork while its
  log has a leader, which a quorum has just elected: its lease comes with the next heartbeats. If the answers of that
  leader come too late for a lease, the silence counts from when it was last heard.
- Who reaches a quorum of the voters waits twice as long: they elect a leader in less time than a fork and its merge
  take, if anything lets them.
- A process that stood still, or was just started, knows nothing of the others: its silence counts from then.
- Of the silent processes of one lineage on a side the one with the newest log forks; of equal ones that with the lowest
  disk; the next ones, if it does not, a while later.
- A process *in doubt* (`membership/doubt`) does not fork beside a complete copy on its side, and waits longer for one
  to come. Where all are in doubt, the one with the newest log forks. Such a fork shares nothing certain (`fork_of`).

*By order.* With the policy that does not fork, a side that has lost the quorum of the voters for good would stand still
for ever. So an operator may say that members will not come back (`forget`). When the voters that are left are a quorum
of themselves, and linked to the process with the order, it forks without those that were named. Nobody can check what
the operator says: a quorum of those voters that lives after all goes on in the parent, and is the trunk when they meet.
The order is remembered by the process that got it, as long as it runs, has no lease, and stays in its lineage. If a
process that is linked knows a newer log, the order has to be given there.

A lineage has so many ancestors at most (`ControlOptions.ancestors_max`): a side that would have more waits. There are
so many only where members stay away and are not forgotten; else old ancestors are (`ClusterConfiguration.prune`). A
lineage of the time of those is over: nobody goes over to it, and who forks does not count its processes.

A member goes over to another lineage of its cluster when that one is the trunk of all that it meets (`fork.trunk_of`),
and the leader of its log, under a lease, would let it up. Its own lineage counts among them while it has a lease there,
or a leader, which a quorum has just elected. What it has changed in its own lineage is a branch in the other one, which
is merged.

A process that was *only away* follows a lineage that descends from everything that it has, although its own one is an
ancestor, and although a quorum of its voters may be back. The others have gone on without it, and what they did counts
as if they had not been alone: nothing in its own lineage competes with that, as long as nobody has had a lease there
since. The leader of the log decides: it has applied everything that was committed there. Those who voted for it are
without a leader then, and follow because they are silent.
"""

from __future__ import annotations

from folkmoot.membership.cluster_member import DATA
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.control_message import Greeting
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.fork import Lineage, lineage_in, trunk_of
from folkmoot.membership.lifecycle import is_up
from folkmoot.membership.neighbours import Neighbour, Neighbours
from folkmoot.membership.planted import PlantedControl

__all__ = ["Splits"]


class Splits:
    """What one process sees of a split.

    since_ns: since when it is silent, 0: it has a lease. led_ns: when its log last had a leader. forgotten: disks that
    will not come back, as an operator says.
    """

    def __init__(self, me: Neighbour, neighbours: Neighbours, options: ControlOptions, planted: PlantedControl) -> None:
        self.since_ns: int = 0
        self.led_ns: int = 0
        self.forgotten: list[int] = []
        self.in_doubt: bool = False  # set by the owner: the disk may lack what it has confirmed in this lineage
        self._me = me
        self._neighbours = neighbours
        self._options = options
        self._planted = planted
        self._own: Lineage | None = None  # the lineage of the last configuration that it had, when others were met
        self._seen_ns: int = 0
        self._is_fresh: bool = True  # it has had no lease in its lineage since it was started, or came to it

    def begin(self, now: int) -> None:
        """Count from now on: this process takes part in another lineage."""
        self.since_ns = now
        self.led_ns = 0
        self.forgotten.clear()
        self.in_doubt = False
        self._is_fresh = True

    def look(self, is_live: bool, is_led: bool, now: int) -> None:
        """Note whether this process has a lease, and its log a leader; call it at least with every heartbeat."""
        stood = now - self._seen_ns > 4 * self._options.heartbeat_ns
        self._seen_ns = now
        if is_led:
            self.led_ns = now
        if is_live:
            self.since_ns = 0
            self.forgotten.clear()
            self._is_fresh = False
        elif self.since_ns == 0 or stood:
            self.since_ns = now

    def _is_silent_for(self, span_ns: int, now: int) -> bool:
        return self.since_ns > 0 and now - self.since_ns >= span_ns

    def _is_unled_for(self, span_ns: int, now: int) -> bool:
        """Tell whether it was silent for so long, and its log without a leader, whose answers may have been late."""
        return self._is_silent_for(span_ns, now) and now - self.led_ns >= span_ns

    def missing(self, configuration: ClusterConfiguration, voters: list[int], index: int) -> list[int]:
        """Return the disks for which an order to fork waits; nothing if it can be carried out, or there is none.

        It waits for voters until a quorum of those that were not forgotten is linked (for members, if no voter is
        left), for forgotten ones until they are not linked, and for one that knows more, which has to get the order: it
        has a newer log, or is complete while this one is in doubt.
        """
        left = [disk for disk in voters if disk not in self.forgotten]
        if not left:
            left = [disk for disk in configuration.disks() if disk not in self.forgotten]
        absent = [disk for disk in left if disk != self._me.disk and not self._follows(configuration, disk)]
        found = [disk for disk in self.forgotten if self._neighbours.of(disk) is not None]
        if 2 * (len(left) - len(absent)) <= len(left):
            found.extend(absent)
        for disk in left:
            neighbour = self._neighbours.of(disk)
            if neighbour is not None and neighbour.greeting is not None and self._follows(configuration, disk):
                if neighbour.greeting.index > index and neighbour.kind == DATA:
                    found.append(disk)
        found.extend([disk for disk in self.complete(configuration) if self._follows(configuration, disk)])
        return sorted(set(found)) if self.forgotten else []

    def complete(self, configuration: ClusterConfiguration) -> list[int]:
        """Return the complete disks on the side of this process, if it is in doubt: one of them is to go on before it.

        It may be founding a fork just now, so its lineage does not count. Who was never up has nothing, and who was put
        out, or is to be forgotten, founds nothing.
        """
        found: list[int] = []
        if not self.in_doubt or self._planted.fork_in_doubt:
            return found
        for disk in configuration.disks():
            member = configuration.members[disk]
            neighbour = self._neighbours.of(disk)
            if neighbour is None or neighbour.greeting is None or member.kind != DATA or member.started == 0:
                continue
            if disk in self.forgotten or member.evicted >= neighbour.incarnation or neighbour.greeting.in_doubt:
                continue
            if neighbour.greeting.cluster == configuration.cluster:
                found.append(disk)
        return found

    def _follows(self, configuration: ClusterConfiguration, disk: int) -> bool:
        """Tell whether a process is linked and has the same lineage."""
        neighbour = self._neighbours.of(disk)
        greeting = None if neighbour is None else neighbour.greeting
        return greeting is not None and greeting.lineage == configuration.lineage

    def forks(self, configuration: ClusterConfiguration, voters: list[int], index: int, is_led: bool, now: int) -> bool:
        """Tell whether this process is to fork now.

        index: the last entry that it has applied. is_led: its log has a leader.
        """
        options = self._options
        if is_led and not self._planted.fork_beside:
            return False
        member = configuration.members.get(self._me.disk)
        if member is None or member.kind != DATA or member.evicted >= self._me.incarnation:
            return False
        if len(configuration.ancestors) >= options.ancestors_max:
            return False
        is_ordered = len(self.forgotten) > 0 and not self.missing(configuration, voters, index)
        if not options.forks and not is_ordered:
            return False
        patience_ns = self._patience(configuration, voters)
        if not self._is_unled_for(patience_ns, now) or self.complete(configuration):
            return False
        before = 0
        own = self._lineage_in(configuration)
        for neighbour in self._neighbours.links.values():
            greeting = neighbour.greeting
            if greeting is None:
                if neighbour.may_greet(now, options.refusal_ns):
                    return False
                continue
            if greeting.cluster != configuration.cluster or (greeting.term and own.outlives(_lineage_of(greeting))):
                continue
            leads = greeting.leader == neighbour.disk and greeting.lineage == configuration.lineage
            if (greeting.live or leads) and not self._planted.fork_beside:
                return False
            if neighbour.kind != DATA:
                continue
            if greeting.lineage != configuration.lineage:
                before += 1  # it is on its way to another lineage, which it may have founded, or has no lease there yet
            elif greeting.in_doubt and not self.in_doubt and not self._planted.fork_in_doubt:
                continue  # it waits for this one
            elif (-greeting.index, neighbour.disk) < (-index, self._me.disk):
                before += 1
        return self._is_unled_for(patience_ns + before * options.fork_ns // 2, now)

    def _patience(self, configuration: ClusterConfiguration, voters: list[int]) -> int:
        """Return for how long the log must have been silent before this process forks, if it is the first to do so."""
        options = self._options
        patience_ns = options.fork_ns
        if self.in_doubt and not self._planted.fork_in_doubt:
            patience_ns += options.found_ns
        here = [disk for disk in voters if disk == self._me.disk or self._follows(configuration, disk)]
        if len(here) > len(voters) // 2 and not self._planted.fork_beside:
            patience_ns += options.fork_ns
        return patience_ns

    def forks_alone(self, configuration: ClusterConfiguration, now: int) -> bool:
        """Tell whether the only voter, in doubt, is to fork; it decides (`Doubt.forks`): a complete one goes first."""
        if len(configuration.ancestors) >= self._options.ancestors_max:
            return False
        waits = self._options.forks and len(self.complete(configuration)) > 0
        return self._is_silent_for(2 * self._options.fork_ns if waits else self._options.found_ns, now)

    def absent(self, configuration: ClusterConfiguration) -> list[tuple[int, int]]:
        """Return the members that are up and not on this side, as (disk, incarnation)."""
        found: list[tuple[int, int]] = []
        for disk in configuration.disks():
            member = configuration.members[disk]
            if not is_up(member.state) or disk == self._me.disk:
                continue
            neighbour = self._neighbours.of(disk)
            greeting = None if neighbour is None else neighbour.greeting
            if greeting is None or greeting.live or greeting.lineage != configuration.lineage:
                found.append((disk, member.incarnation))
        return found

    def waited(self, now: int) -> bool:
        """Tell whether this process has waited long enough for what others could send."""
        return self._is_silent_for(self._options.fork_ns, now)

    def meets_others(self, cluster: int, lineage: int) -> bool:
        """Tell whether there is a process with a lease in another lineage; almost always there is none."""
        for neighbour in self._neighbours.links.values():
            greeting = neighbour.greeting
            if greeting is not None and greeting.lineage != lineage and greeting.live and greeting.cluster == cluster:
                return True
        return False

    def better(
        self,
        cluster: int,
        lineage: int,
        configuration: ClusterConfiguration | None,
        leads: bool,
        is_led: bool,
        now: int,
    ) -> int:
        """Return the lineage to which this process is to go over now; 0: none.

        cluster, lineage: its own; configuration: of its lineage, None if it has none yet. leads: it leads the log, and
        has applied everything that was committed there before. is_led: its log has a leader.
        """
        if not self.meets_others(cluster, lineage):
            return 0
        if configuration is not None:
            self._own = self._lineage_in(configuration)
        met: dict[int, Lineage] = {}
        follows = False
        welcome: dict[int, bool] = {}
        for node_id in self._neighbours.named():
            greeting = self._neighbours.links[node_id].greeting
            if greeting is None or greeting.cluster != cluster or not greeting.live:
                continue
            if greeting.term == 0:
                continue  # it was told to a member of its own lineage, and does not say from which that one descends
            if self._own is not None and self._own.outlives(_lineage_of(greeting)):
                continue
            met[greeting.lineage] = _lineage_of(greeting)
            welcome[greeting.lineage] = greeting.welcome or welcome.get(greeting.lineage, False)
            if configuration is not None:
                follows = follows or _shares_all(configuration, greeting)
        if configuration is None and not self.waited(now):
            return 0
        only_away = follows and leads and self._is_fresh and self._is_silent_for(self._options.lease_ns // 2, now)
        is_silent = not is_led and self._is_silent_for(self._options.fork_ns // 2, now)
        if configuration is not None and not only_away and not is_silent:
            met[lineage] = self._lineage_in(configuration)
        if not met:
            return 0
        trunk = trunk_of(list(met.values())).lineage
        return trunk if trunk != lineage and welcome[trunk] else 0

    def _lineage_in(self, configuration: ClusterConfiguration) -> Lineage:
        found = lineage_in(configuration)
        if self._planted.follows_the_old:
            found.floor = 0
        return found


def _lineage_of(greeting: Greeting) -> Lineage:
    """Return the lineage that a process says everything about."""
    began = greeting.shared[-1] if greeting.shared else 0
    return Lineage(greeting.lineage, greeting.ancestors, greeting.strength, began, greeting.floor)


def _shares_all(configuration: ClusterConfiguration, greeting: Greeting) -> bool:
    """Tell whether the lineage of a process descends from everything that a configuration has."""
    for ancestor, shared in zip(greeting.ancestors, greeting.shared, strict=True):
        if ancestor == configuration.lineage:
            return configuration.counter() <= shared
    return False
