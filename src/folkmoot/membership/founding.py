"""Who founds a cluster: exactly one of the processes that find each other and know nothing.

With `expect` N it is the first, by the order of the nodes' names, of N processes that are all linked to each other.
Otherwise it is the process at the first address of the list of seeds, when all others of the list are reached, or when
it has waited for them. A process without seeds founds at once. All others join. A process that knows of a cluster never
founds another one, and one that has joined or founded never does so again: its disk says to which cluster it belongs.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.event import ERROR, WARNING, Event
from folkmoot.membership.control_message import Greeting
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.neighbours import Neighbour, Neighbours
from folkmoot.membership.planted import PlantedControl

__all__ = ["Founding"]

_COMPLAIN_NS: Final = 10_000_000_000
_ASK_NS: Final = 300_000_000


class Founding:
    """What one process without a cluster is about to do, from `look` to `look`."""

    def __init__(self, now: int, planted: PlantedControl) -> None:
        self.founds: bool = False  # it is the one to found a cluster
        self.asks: int = 0  # the disk of the leader that it is to ask now whether it may join; 0: nobody
        self.cluster: int = 0  # which it wants to join
        self.joins: int = 0  # the lineage of it
        self.due_ns: int = now  # when to look again at the latest
        self.events: list[Event] = []
        self._planted = planted
        self._since_ns = now
        self._complain_ns = now + _COMPLAIN_NS
        self._asked_ns: int = 0
        self._foreign: bool = False

    def look(
        self,
        neighbours: Neighbours,
        seeds: list[str],
        seeds_unknown: bool,
        residents: dict[str, str],
        me: Neighbour,
        options: ControlOptions,
        now: int,
    ) -> None:
        """Decide what to do now."""
        self.founds = False
        self.asks = 0
        self.due_ns = now + options.heartbeat_ns
        found = self._see_clusters(neighbours, options)
        if found is not None:
            self.cluster = found.cluster
            self.joins = found.lineage
            if now - self._asked_ns >= _ASK_NS or self._asked_ns == 0:
                self._asked_ns = now
                self.asks = found.leader
            return
        if seeds_unknown:
            self._since_ns = now
            return
        if neighbours.links and self._knows_cluster(neighbours):
            return  # it has a cluster, without a leader at the moment
        if options.expect > 1:
            self.founds = self._is_first_of(neighbours, options.expect, me)
            why = f"{1 + len(neighbours.links)} of {options.expect} nodes are here"
        else:
            self.founds = self._is_first_seed(neighbours, seeds, residents, me, options, now)
            why = "the first of the seeds founds the cluster, and has not done it"
        if not self.founds and now >= self._complain_ns:
            self._complain_ns = now + _COMPLAIN_NS
            self.events.append(Event(WARNING, "waits_for_cluster", {"why": why}))

    def _see_clusters(self, neighbours: Neighbours, options: ControlOptions) -> Greeting | None:
        """Return what the process has said that this one should follow; None: nobody has a cluster with a leader."""
        best: Greeting | None = None
        for node_id in neighbours.named():
            greeting = neighbours.links[node_id].greeting
            if greeting is None or greeting.cluster == 0 or not greeting.live or greeting.leader == 0:
                continue
            if greeting.partitions != options.partitions:
                if not self._foreign:
                    self._foreign = True
                    why = f"{node_id} has {greeting.partitions} partitions, not {options.partitions}"
                    self.events.append(Event(ERROR, "node_refused", {"node": node_id, "why": why}))
                continue
            if best is not None and best.cluster != greeting.cluster and not self._foreign:
                self._foreign = True
                why = "nodes of two clusters answer: this one joins the first that it has seen"
                self.events.append(Event(ERROR, "two_clusters", {"node": node_id, "why": why}))
            if self.cluster and greeting.cluster != self.cluster:
                continue
            if best is None or (greeting.strength, -greeting.lineage) > (best.strength, -best.lineage):
                best = greeting
        return best

    def _knows_cluster(self, neighbours: Neighbours) -> bool:
        for neighbour in neighbours.links.values():
            if neighbour.greeting is None or neighbour.greeting.cluster:
                return True  # or it has not said anything yet
        return False

    def _is_first_of(self, neighbours: Neighbours, expect: int, me: Neighbour) -> bool:
        """Tell whether this is the first, by name, of so many processes that are all linked to each other."""
        disks = sorted([me.disk, *neighbours.disks()])
        if len(disks) < expect:
            return False
        for node_id in neighbours.named():
            neighbour = neighbours.links[node_id]
            if node_id < me.node_id:
                return False
            greeting = neighbour.greeting
            if greeting is None or sorted([neighbour.disk, *greeting.linked]) != disks:
                return False
        return True

    def _is_first_seed(
        self,
        neighbours: Neighbours,
        seeds: list[str],
        residents: dict[str, str],
        me: Neighbour,
        options: ControlOptions,
        now: int,
    ) -> bool:
        """Tell whether this is the process at the first of the seeds, and has seen or awaited the others."""
        if not seeds:
            return True
        if seeds[0] != me.process.address and residents.get(seeds[0], "") != me.node_id:
            return self._planted.found_beside and now - self._since_ns >= options.found_ns
        if now - self._since_ns >= options.found_ns:
            return True
        self.due_ns = min(self.due_ns, self._since_ns + options.found_ns)
        for seed in seeds:
            if seed == me.process.address or residents.get(seed, "") == me.node_id:
                continue
            here = [one for one in neighbours.links.values() if one.process.address == seed]
            if not here and residents.get(seed, "") not in neighbours.links:
                return False
        return True
