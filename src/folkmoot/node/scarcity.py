"""`min_in_sync`: a partition with fewer copies in sync takes nothing, but what its leader needs to fill more copies.

The rule, in the order in which a view is installed:

1. `find` comes before the view takes effect at the broker. What waits to be committed in a partition that is scarce
   is abandoned: those that are left would commit it, and it would be acknowledged on too few disks. So is what waits
   in a partition that nobody leads: no leader says that it is committed, and turns are committed in order.
2. For the broker, a scarce partition has no leader (`leaders`): clients and messages that need it are refused at once,
   and nothing is asked of the node that leads its copies.
3. Such a node opens it for the replicas alone (`replication.start`), so that copies are filled; the broker's half of it
   is not prepared (`served`).
4. When enough copies are in sync, the partition counts as closed, and is opened as after any change of leaders. The
   leader asks for it as for another leadership (`membership/isr`): members that have skipped 2 see it by that.

So a message that was acknowledged was on `min_in_sync` disks: the ISR of the view under which it was committed had so
many members, and all of them had to have it. With 1, no partition with a leader is scarce.
"""

from __future__ import annotations

from folkmoot.kernel.event import INFO, WARNING
from folkmoot.membership.view import View
from folkmoot.replica.replication import Replication
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.state import State

__all__ = ["Scarcity"]


class Scarcity:
    """The partitions with too few copies in sync, in the view that is being installed; `fabric.scarce` has them."""

    def __init__(self, state: State, fabric: Fabric, replication: Replication, least: int) -> None:
        self._state = state
        self._fabric = fabric
        self._replication = replication
        self._least = least

    def find(self, view: View) -> None:
        """Find the scarce partitions of a view, before it takes effect at the broker."""
        before = self._fabric.scarce
        scarce = dict.fromkeys(view.scarce(self._least))
        self._fabric.scarce = scarce
        self._abandon([partition for partition, leader in enumerate(self.leaders(view)) if not leader])
        for partition in before:
            if partition not in scarce:
                self._replication.closed(partition)
        if scarce and not before:
            self._fabric.scarce_us = self._state.now
        if scarce.keys() != before.keys():
            kind = "copies_too_few" if scarce else "copies_enough"
            fields: dict[str, object] = {"partitions": len(scarce)} if scarce else {}
            self._state.event(WARNING if scarce else INFO, kind, fields)

    def _abandon(self, partitions: list[int]) -> None:
        """Acknowledge nothing that waits to be committed in these partitions.

        Whoever leads the copies of a scarce one now: the new leader would say that all copies in sync have what this
        node has waited for.
        """
        writer = self._state.writer
        replication = self._replication
        for partition in partitions:
            replication.replicas[partition].uncommitted.abandon()
            if self._state.leads[partition] and partition in writer.touched:
                replication.abandoned.append((writer.token, partition))  # of messages that came in the view before

    def leaders(self, view: View) -> list[str]:
        """Return for each partition the node that leads it for the broker, "" if none does."""
        scarce = self._fabric.scarce
        return [view.leader_of(partition) if partition not in scarce else "" for partition in range(len(view.replicas))]

    def served(self, partitions: list[int]) -> list[int]:
        """Return those of some partitions that have enough copies in sync."""
        return [partition for partition in partitions if partition not in self._fabric.scarce]

    def fill(self, partitions: list[int]) -> None:
        """Open those of some partitions that have too few copies in sync for the replicas alone."""
        for partition in partitions:
            if partition in self._fabric.scarce:
                self._replication.start(partition, self._state.now)
