"""Who founds a cluster: exactly one of the processes that find each other and know nothing.

With `expect` N it is the first, by the order of the nodes' names, of N processes that are all linked to each other,
when it has reached its seeds or has waited for them: there may be a cluster, of which they would tell. The others have
promised to wait for it, as long as they run: it may be cut off when it has founded a cluster, before they
know. One that has promised the same to one before it founds nothing, and so releases those that wait for it.
Otherwise the seeds decide:

- A list that has the address of the process itself is taken for one that is the same everywhere. The process at its
  first address founds, when it has reached the others of the list or has waited for them.
- A list without it names the others. Of all of them and itself the process with the lowest address founds, when it has
  reached all, and all of them say that it is the one. It does not found without one of them: it may be about to join a
  cluster that it can not reach at the moment.
- A process without seeds founds at once.

All others join. A witness never founds. A process that has heard of a cluster never founds another one, also when
nobody of that cluster answers any more; and one that has joined or founded never does so again: its disk says to which
cluster it belongs.

Why there are no two founders. Each process says whom it takes for the founder, one at a time, and says it by the second
rule only when it has reached all its seeds. A founder by that rule is named by all of its list, itself included; two
such lists with a process in common have one founder. A founder by the first rule is named by those of its list that are
reached and have such a list too, and never names another one.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.event import ERROR, WARNING, Event
from folkmoot.membership.cluster_member import DATA
from folkmoot.membership.control_message import Greeting
from folkmoot.membership.control_option import ControlOptions
from folkmoot.membership.neighbours import Neighbour, Neighbours
from folkmoot.membership.planted import PlantedControl

__all__ = ["Founding"]

_COMPLAIN_NS: Final = 10_000_000_000
_ASK_NS: Final = 300_000_000
_HEARD_MAX: Final = 64  # names to tell; one is enough to found no cluster


class Founding:
    """What one process without a cluster is about to do, from `look` to `look`."""

    def __init__(self, now: int, planted: PlantedControl) -> None:
        self.founds: bool = False  # it is the one to found a cluster
        self.founder: str = ""  # the address of the process that it takes for the founder; "": it does not know
        self.listed: bool = False  # by a list with its own address
        self.asks: int = 0  # the disk of the leader that it is to ask now whether it may join; 0: nobody
        self.belongs: int = 0  # the cluster to which its folder belonged before it was set back: it joins no other one
        self.cluster: int = 0  # which it wants to join
        self.joins: int = 0  # the lineage of it
        self.due_ns: int = now  # when to look again at the latest
        self.events: list[Event] = []
        self._planted = planted
        self._since_ns = now
        self._complain_ns: int = 0  # when to say again what it waits for; 0: not yet
        self._asked_ns: int = 0
        self._foreign: bool = False
        self._promised: Neighbour | None = None  # the process for which this one waits, with `expect`
        self._heard: dict[str, bool] = {}  # the nodes that had a cluster when they were heard last
        self._why = ""

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
        if self._complain_ns == 0:
            self._complain_ns = now + options.found_ns + options.reply_ns
        self._hear(neighbours)
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
        if neighbours.links and self._knows_cluster(neighbours, options, now):
            self._complain(now)
            return
        self.founder = ""
        self.listed = False
        if self._heard and not self._planted.found_beside:
            self._why = (
                f"{', '.join(sorted(self._heard))} had a cluster, and no node of it answers: start it, or start this "
                "node again if it is to begin another cluster"
            )
        elif options.expect > 1 and self._keeps_promise(neighbours):
            pass
        elif self.belongs:
            self._why = (
                "this folder belongs to a cluster, and no node of it that has a leader answers: for another cluster, "
                "begin with an empty data folder"
            )
        elif options.expect > 1:
            if self._is_first_of(neighbours, options.expect, me, options.refusal_ns, now):
                missing = [seed for seed in seeds if self._resident(seed, neighbours, residents, me) is None]
                self.founds = self._has_waited(missing, options, now)
        else:
            self.founds = self._is_first_seed(neighbours, seeds, residents, me, options, now)
        if not self.founds:
            self._complain(now)

    def _complain(self, now: int) -> None:
        """Tell now and then what this process waits for."""
        if now >= self._complain_ns and self._why:
            self._complain_ns = now + _COMPLAIN_NS
            self.events.append(Event(WARNING, "waits_for_cluster", {"why": self._why}))

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
            if greeting.cluster != (self.belongs or self.cluster or greeting.cluster):
                continue
            if best is None or (greeting.strength, -greeting.lineage) > (best.strength, -best.lineage):
                best = greeting
        return best

    def _hear(self, neighbours: Neighbours) -> None:
        """Note which nodes have a cluster; one that answers with an empty folder has none any more."""
        for neighbour in neighbours.links.values():
            if neighbour.greeting is None:
                continue
            if neighbour.greeting.cluster == 0:
                self._heard.pop(neighbour.node_id, None)
            elif len(self._heard) < _HEARD_MAX:
                self._heard[neighbour.node_id] = True

    def _knows_cluster(self, neighbours: Neighbours, options: ControlOptions, now: int) -> bool:
        """Tell whether a process with a link has a cluster, which does not let this one in now, or may tell of one."""
        wanted = self.belongs or self.cluster
        others: list[str] = []
        for node_id in neighbours.named():
            neighbour = neighbours.links[node_id]
            greeting = neighbour.greeting
            if greeting is None and neighbour.may_greet(now, options.refusal_ns):
                return True
            if greeting is not None and greeting.cluster and wanted in (0, greeting.cluster):
                self._why = f"{node_id} is of a cluster that has no leader at the moment, or does not let this node in"
                return True
            if greeting is not None and greeting.cluster:
                others.append(node_id)
        if not others:
            return False
        named = ", ".join(others)
        if self.belongs:
            self._why = f"{named} is of another cluster than this folder: for that one, begin with an empty data folder"
        else:
            self._why = (
                f"{named} is of another cluster than the one that this node has asked first to join, and of that no "
                "node answers: start it, or start this node again if it is to join the other one"
            )
        return True

    # A number of nodes

    def _is_first_of(self, neighbours: Neighbours, expect: int, me: Neighbour, patience_ns: int, now: int) -> bool:
        """Tell whether this is the first, by name, of so many processes that are all linked to each other."""
        others = neighbours.speaking(now, patience_ns)
        disks = sorted([me.disk, *[other.disk for other in others]])
        named = sorted([me.node_id, *[other.node_id for other in others]])
        if len(disks) < expect:
            self._why = f"{len(disks)} of {expect} expected nodes are here: {', '.join(named)}"
            return False
        holders = [other.node_id for other in others if other.kind == DATA]
        if me.kind == DATA:
            holders.append(me.node_id)
        first = min(holders, default="")
        self._why = f"{first or 'a node with data'}, the first of {expect} expected nodes, is to found the cluster"
        if first != me.node_id:
            if first in neighbours.links:
                self._promised = neighbours.links[first]
                self.founder = _token(self._promised)
            return False
        self.founder = _token(me)
        for neighbour in others:
            greeting = neighbour.greeting
            if greeting is None or sorted([neighbour.disk, *greeting.linked]) != disks:
                self._why = f"{neighbour.node_id} has no links to all of {', '.join(named)}"
                return False
            if greeting.founder != self.founder:
                self._why = f"{neighbour.node_id} has not promised yet to wait for this node"
                return False
        return True

    def _keeps_promise(self, neighbours: Neighbours) -> bool:
        """Tell whether this process has promised to wait for another one, which has not released it.

        The other one releases it when it promises the same to one before it, and so founds nothing itself; or when it
        is another process, without a cluster.
        """
        promised = self._promised
        if promised is None:
            return False
        neighbour = neighbours.links.get(promised.node_id)
        greeting = None if neighbour is None else neighbour.greeting
        if neighbour is not None and greeting is not None and greeting.cluster == 0:
            if neighbour.incarnation != promised.incarnation or greeting.founder not in ("", _token(promised)):
                self._promised = None
                return False
        self.founder = _token(promised)
        self._why = f"{promised.node_id}, the first of the expected nodes, is to found the cluster, or has done so"
        if neighbour is None:
            self._why += ", and does not answer: start it, or start all others again if its disk is lost"
        return True

    # Seeds

    def _is_first_seed(
        self,
        neighbours: Neighbours,
        seeds: list[str],
        residents: dict[str, str],
        me: Neighbour,
        options: ControlOptions,
        now: int,
    ) -> bool:
        """Tell whether the seeds make this process the founder."""
        if not seeds:
            self._why = "this node is a witness, and has no seeds"
            return me.kind == DATA
        here: list[Neighbour] = []  # at the addresses of the list, in its order
        missing: list[str] = []  # addresses at which nobody has answered
        first: Neighbour | None = None  # at the first address that is not known to be of a witness
        unknown = False  # that address is missing
        for seed in seeds:
            at = self._resident(seed, neighbours, residents, me)
            if at is None:
                missing.append(seed)
                unknown = unknown or first is None
            else:
                here.append(at)
                if first is None and at.kind == DATA:
                    first = at
        self.listed = me in here
        if not self.listed:
            return self._is_lowest(here, missing, me)
        if unknown or first is None:
            self._why = f"{seeds[0]}, the first of the seeds, is to found the cluster, and does not answer"
            return self._planted.found_beside and now - self._since_ns >= options.found_ns
        self.founder = first.process.address
        if first is not me:
            self._why = f"{first.node_id} ({self.founder}), the first of the seeds, is to found the cluster"
            return self._planted.found_beside and now - self._since_ns >= options.found_ns
        for one in here:
            greeting = one.greeting
            if greeting is not None and greeting.listed and greeting.founder not in ("", self.founder):
                self._why = (
                    f"{one.node_id} takes {greeting.founder} for the first of the seeds, and this node {self.founder}: "
                    "make cluster.seeds the same at all nodes"
                )
                return False
        return self._has_waited(missing, options, now)

    def _has_waited(self, missing: list[str], options: ControlOptions, now: int) -> bool:
        """Tell whether the founder has reached its seeds, or has waited long enough for those at these addresses."""
        if not missing or now - self._since_ns >= options.found_ns:
            return True
        self._why = f"nobody answers at {', '.join(missing)}"
        self.due_ns = min(self.due_ns, self._since_ns + options.found_ns)
        return False

    def _resident(
        self, seed: str, neighbours: Neighbours, residents: dict[str, str], me: Neighbour
    ) -> Neighbour | None:
        """Return the process that answers at an address; None if there is no link to one."""
        if seed == me.process.address:
            return me
        node_id = residents.get(seed, "")
        if node_id == me.node_id:
            return me
        if node_id in neighbours.links:
            return neighbours.links[node_id]
        for one in neighbours.links.values():
            if one.process.address == seed:
                return one
        return None

    def _is_lowest(self, others: list[Neighbour], missing: list[str], me: Neighbour) -> bool:
        """Tell whether this process has the lowest address of all that its seeds name, and all of them say so."""
        if missing:
            self._why = (
                f"nobody answers at {', '.join(missing)}: a node whose seeds name only the others founds a cluster "
                "when it has reached them all"
            )
            return False
        lowest: Neighbour | None = None
        for one in [me, *others]:
            if one.kind == DATA and (lowest is None or one.process.address < lowest.process.address):
                lowest = one
        if lowest is None:
            self._why = "all nodes that the seeds name are witnesses"
            return False
        self.founder = lowest.process.address
        if lowest is not me:
            self._why = f"{lowest.node_id} ({self.founder}) has the lowest address, and is to found the cluster"
            return False
        for one in others:
            greeting = one.greeting
            if greeting is None or greeting.founder != self.founder:
                named = "nobody yet" if greeting is None or not greeting.founder else greeting.founder
                self._why = (
                    f"{one.node_id} takes {named} for the founder of the cluster, and this node itself, with the "
                    "lowest address: name all nodes in cluster.seeds, or set cluster.expect"
                )
                return False
        return True


def _token(process: Neighbour) -> str:
    """Return what names a process in a promise: its node and its start."""
    return f"{process.node_id} {process.incarnation}"
