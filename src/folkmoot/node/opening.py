"""Opening the partitions that this node has taken over: page by page they are read, one by one they open.

Decides only how much of that a turn does. What goes on in a partition is known to replication, what its rows amount to
to the broker.
"""

from __future__ import annotations

from folkmoot.broker.broker import Broker
from folkmoot.replica.replication import Replication
from folkmoot.turn.state import State

__all__ = ["Opening"]


class Opening:
    """The work of one node on the partitions that it is about to lead."""

    def __init__(self, state: State, broker: Broker, replication: Replication) -> None:
        self.state = state
        self.leadership = broker.cluster.leadership
        self.streams = broker.streams
        self.transactions = broker.delivery.transactions
        self.publications = broker.delivery.publications
        self.replication = replication

    def step(self) -> bool:
        """Read on, a turn's share, and open what is read; return whether something was opened, or was found damaged."""
        recovery = self.leadership.recovery
        damaged = self._spoil()
        if not len(recovery):
            return damaged
        may = self._startable()
        recovery.read(may)
        partitions = recovery.due(may)
        if partitions:
            self._open(partitions)
        for partition, why in recovery.spoiled:
            self.replication.takeover.give_up(partition, why)
        recovery.spoiled.clear()
        return damaged or bool(partitions)

    def _spoil(self) -> bool:
        """Say which partitions take nothing because of a row that cannot be read: another copy must lead them."""
        found = False
        for spoiled in (self.leadership.forward_receiver.spoiled, self.publications.spoiled):
            for partition, why in spoiled:
                self.replication.replica_states.spoil(partition, why)
            found = found or bool(spoiled)
            spoiled.clear()
        return found

    def _open(self, partitions: list[int]) -> None:
        replication = self.replication
        homes: dict[str, tuple[bool, list[str]]] = {}
        for partition in partitions:
            replication.start(partition, self.state.now)
            held = not replication.replica_states.is_readable(partition)
            self.streams.hold(partition, held)
            self.transactions.hold(partition, held)
            homes.update(replication.merges.take_homes(partition))
        self.leadership.lead(partitions, homes)

    def runnable(self) -> bool:
        """Whether there is something to do at once."""
        recovery = self.leadership.recovery
        if self.leadership.forward_receiver.spoiled or self.publications.spoiled:
            return True
        return len(recovery) > 0 and recovery.runnable(self._startable())

    def _startable(self) -> list[int]:
        """Return the partitions to be led of which nothing newer can come from others any more."""
        takeover = self.replication.takeover
        return [partition for partition in self.leadership.recovery.arrivals if takeover.may_start(partition)]
