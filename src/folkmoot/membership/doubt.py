"""A disk that may lack what it has confirmed: after a loss of power without syncs, or a salvage of a damaged store.

What is missing are the newest writes: votes and entries of the configuration log, and changes of partitions. Such a
process must not vote as if it had never voted, nor be counted for entries that it has lost. So it is silent, and finds
out from others what is left of the cluster:

- The cluster goes on without it: the disk becomes another one (`Control.renewal`), as one that was set back.
- A quorum of voters has complete disks: they go on soon, and it waits for them.
- All voters are here and such a quorum is not: nobody has more than they have together. It takes part again. The voter
  with the newest log leads, and the others listen to nobody else until they have its log. All enter a term that none
  of them has ever been in, so that a forgotten vote is of an earlier one. They may all have forgotten the newest terms,
  of which a member that is not here has entries, so they leave many out (`FORGOTTEN_TERMS`). A complete voter, which
  does not know of this, may be elected in its place: in that term or a later one only with its vote, because the
  complete ones are no quorum, and the others in doubt vote for it alone. So that leader has the newest log, too, and
  all listen to it. One to which it does not speak is no member any more, and learns so in no other way: its disk
  becomes another one.
- By its own log it decides alone: it goes on when it has reached all members. If they have gone on without it, it
  learns so from them (`Control._see_leader`). If it has waited for one with data, which may have what is missing here,
  it forks, with any policy: what a copy has that comes later is merged then, and in this lineage it would be filled.
- Otherwise it waits. With the policy for it, the side forks (`splits`): nobody has a vote in a new lineage yet.

Copies. In this lineage a copy in doubt is partial (`Replica.doubt`): a complete one in sync leads in its place. A fork
that a process in doubt founds shares nothing certain with this lineage (`fork_of`), so all copies are merged in it.

The doubt is a row of the lineage, so it outlives the process.
"""

from __future__ import annotations

from typing import Final

from folkmoot.membership.cluster_member import DATA
from folkmoot.membership.configuration import ClusterConfiguration
from folkmoot.membership.configuration_log import ConfigurationLog
from folkmoot.membership.control_message import Greeting
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.neighbours import Neighbours

__all__ = ["FORGOTTEN_TERMS", "Doubt"]

FORGOTTEN_TERMS: Final = 1000
"""More elections than there are between two syncs of a disk that nobody waits for."""


class Doubt:
    """What a process in doubt may do, from `look` to `look`.

    renews: the cluster goes on without this process. source: the disk with the newest log, to whose messages it
    listens; its own: it may lead; 0: it listens to nobody. is_over: it has the newest log, or leads with it. forks: it
    decides alone, and has waited in vain for one that may have what it lacks.
    """

    def __init__(self, neighbours: Neighbours, options: ControlOptions, now: int) -> None:
        self.renews: bool = False
        self.source: int = 0
        self.is_over: bool = False
        self.forks: bool = False
        self._index: int = 0  # the last one of the newest log
        self._term: int = 0  # that was entered with the newest source; 0: there was none
        self._unheard_ns: int = 0  # since when the source leads, as others say, and does not speak to this process
        self._neighbours = neighbours
        self._options = options
        self._since_ns = now

    def look(self, cluster: int, configuration: ClusterConfiguration, log: ConfigurationLog, now: int) -> None:
        """Look at what others say."""
        if self.source == log.disk:
            self.is_over = log.is_leader and log.may_grant(now)
        elif self.source:
            self.is_over = log.leader == self.source and log.index > self._index
        if self.is_over:
            return
        alone = log.voters == [log.disk]
        is_led = False
        for neighbour in self._neighbours.links.values():
            greeting = neighbour.greeting
            if greeting is None or greeting.cluster != cluster or not greeting.live or greeting.leader == 0:
                continue
            if alone and greeting.lineage == log.lineage and greeting.term <= log.voters_term:
                continue  # it speaks of a leader of before this process became the only voter
            if greeting.leader == self.source:
                is_led = True
                continue  # who leads by what all have agreed on goes on with this process
            if alone or greeting.lineage != log.lineage or not 0 < self._term <= greeting.term:
                self.renews = True
                return
            if self._neighbours.is_linked(greeting.leader):
                self.source = greeting.leader
        if not is_led or self.source in (log.disk, log.leader):
            self._unheard_ns = 0
        else:
            self._unheard_ns = self._unheard_ns or now
            self.renews = now - self._unheard_ns >= self._options.fork_ns
        source = self._alone(configuration, log, now) if alone else self._newest(log)
        if source and source != self.source:
            log.raise_term(self._highest_term(log) + FORGOTTEN_TERMS, now)
            self._term = log.term
        self.source = source

    def _greeting(self, disk: int, lineage: int) -> Greeting | None:
        """Return what a process without a lease in a lineage says; None if there is no such process."""
        neighbour = self._neighbours.of(disk)
        greeting = None if neighbour is None else neighbour.greeting
        return greeting if greeting is not None and greeting.lineage == lineage and not greeting.live else None

    def _alone(self, configuration: ClusterConfiguration, log: ConfigurationLog, now: int) -> int:
        """Return the disk of the only voter if it may go on in its lineage; else see whether it forks."""
        waited = now - self._since_ns >= self._options.found_ns
        self.forks = False
        for disk in configuration.disks():
            member = configuration.members[disk]
            if disk == log.disk or self._greeting(disk, log.lineage) is not None:
                continue
            if not waited:
                return 0
            self.forks = self.forks or (member.kind == DATA and member.started > 0)
        return 0 if self.forks else log.disk

    def _newest(self, log: ConfigurationLog) -> int:
        """Return the voter with the newest log, if all are here and a quorum of them is in doubt."""
        if log.disk not in log.voters:
            return 0
        if self.source:  # all have agreed, and go on
            return self.source if self._neighbours.is_linked(self.source) else 0
        complete = 0
        best = log.disk
        end = (log.last_term, log.last_index)
        for disk in log.voters:
            if disk == log.disk:
                continue
            greeting = self._greeting(disk, log.lineage)
            if greeting is None:
                return 0
            complete += 0 if greeting.in_doubt else 1
            if (*greeting.end, -disk) > (*end, -best):
                best = disk
                end = greeting.end
        self._index = end[1]
        return 0 if 2 * complete > len(log.voters) else best

    def _highest_term(self, log: ConfigurationLog) -> int:
        highest = log.term
        for neighbour in self._neighbours.links.values():
            greeting = neighbour.greeting
            if greeting is not None and greeting.lineage == log.lineage:
                highest = max(highest, greeting.term)
        return highest
