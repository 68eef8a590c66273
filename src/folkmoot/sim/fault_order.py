"""Orders of an operator while something is wrong: nodes are away, or links are cut.

An order is given as over HTTP, without force, to any node about any other one: what costs data is refused. Owns which
machines have to be started again; ids whose disks are gone are the business of `folkmoot.sim.fault_member`.
"""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.sim.acting import Acting, Action
from folkmoot.sim.history import History
from folkmoot.sim.host import Host
from folkmoot.sim.inside import picture_at
from folkmoot.sim.site import Site
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.world import World
from folkmoot.status.status import NodeStatus

__all__ = ["OrderFaults"]


class OrderFaults(Acting):
    """Orders as an action to be drawn. `majority`: the policy."""

    def __init__(
        self, world: World, rng: Rng, site: Site, trouble: Trouble, history: History, *, majority: bool
    ) -> None:
        super().__init__(world, rng, site, trouble)
        self.history = history
        self.majority = majority

    def actions(self) -> list[tuple[int, str, Action]]:
        """Return (weight, name, action) of each fault."""
        return [(10, "orders", self.order)]

    def heal(self) -> None:
        """End everything, for good: who was put out is started again."""
        self.end_all()
        for host in self.site.hosts:
            if host.put_out:
                self._restart(host, host.life)

    def order(self) -> None:
        """Give an order, while something is wrong."""
        asked = self._shuffled([host for host in self.site.running if host.up and not host.witness])[:1]
        known = [host for host in self.site.hosts if host.member and host not in asked]
        victim = self._shuffled(known)[:1]
        if self.trouble.calm or not asked or not victim or picture_at(asked[0]) is None:
            return
        (self._evict, self._forget, self._forget, self._leave)[self.rng.below(4)](asked[0], victim[0])

    def _evict(self, asked: Host, victim: Host) -> None:
        """Have a node evicted: it stays out until it is started again."""
        if victim.node is not None and not victim.put_out and self.give("evict", asked, victim):
            self._until(SECOND + self.rng.below(20 * SECOND), self._restart, victim, victim.life)

    def _restart(self, host: Host, life: int) -> None:
        if host.life == life and host.node is not None:
            host.crash()
            self.start(host)

    def _forget(self, asked: Host, victim: Host) -> None:
        """Have a node forgotten that is away, whether it runs or not. It comes back later, and is another member.

        Not if it has come back from a split before: it may have had no time to merge what it has (docs/limits.md). And
        not if it may serve on another side: two sides that have forgotten each other both give out offsets.
        """
        if victim.node is not None and not self.majority:
            return
        gone_us = self.history.away_since(victim.name, asked.name)
        if gone_us == NEVER or (not self.majority and self.history.forked(victim.name, 0, gone_us - 1)):
            return
        if not self.majority and not self._is_survived(victim):
            return
        if self.trouble.spares_disks([victim]):
            self.give("forget", asked, victim)

    def _is_survived(self, victim: Host) -> bool:
        """Whether a machine runs that was with another one until that went down, and has kept its disk.

        If there is none, those that run have gone on from older copies, and do not know that (docs/limits.md): they
        refuse no order to give up what only that one has.
        """
        history = self.history
        ended_us = history.fell_last(victim.name)
        for other in self.site.running:
            if other is not victim and not other.blank and history.away_since(victim.name, other.name) >= ended_us:
                return True
        return False

    def _leave(self, asked: Host, victim: Host) -> None:
        """Have a node leave for good."""
        members = [host for host in self.site.hosts if host.member and not host.witness]
        may_leave = victim.node is not None and not victim.witness and not victim.put_out
        if may_leave and len(members) > self.trouble.copies:
            self.give("leave", asked, victim)

    def give(self, order: str, asked: Host, victim: Host, *, force: bool = False) -> bool:
        """Give a node an order about another one; return whether it is taken."""
        status = NodeStatus(picture_at(asked))
        if order == "leave":
            refusal = status.leave(victim.node_id, asked.clock())
        else:
            refusal = {"evict": status.evict, "forget": status.forget}[order](victim.node_id, asked.clock(), force)
        asked.set_turn()
        taken = "refused" if refusal else "taken"
        self.world.mark(f"{order} {taken} in trouble")
        self.world.note("world", f"{order} {victim.node_id} at {asked.name}: {refusal or taken}")
        self.trouble.disturb()
        if not refusal:
            self._count_out(order, victim)
        return not refusal

    def _count_out(self, order: str, victim: Host) -> None:
        """Take note that the others go on without a machine."""
        if order == "leave":
            victim.leave()
            return
        self.trouble.fail([victim])
        if order == "evict":
            victim.put_out = True
        else:
            victim.blank = True  # what comes up there is another member
        victim.on_change()
