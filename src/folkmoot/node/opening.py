"""Opens the partitions that this node has taken over: they are read page by page, and open one by one.

Decides only how much a turn does. Replication knows which changes a partition has, the broker what its rows mean.
"""

from __future__ import annotations

from folkmoot.broker.broker import Broker
from folkmoot.replica.replication import Replication
from folkmoot.turn.state import State

__all__ = ["Opening"]


class Opening:
    """The partitions that one node is about to lead."""

    def __init__(self, state: State, broker: Broker, replication: Replication) -> None:
        self.state = state
        self.leadership = broker.leadership
        self.streams = broker.streams
        self.transactions = broker.delivery.transactions
        self.publications = broker.delivery.publications
        self.replication = replication

    def step(self) -> bool:
        """Read a turn's share, and open what is read; return whether a partition was opened or found damaged."""
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
            self.replication.cannot_read(partition, why)
        recovery.spoiled.clear()
        return damaged or bool(partitions)

    def _spoil(self) -> bool:
        """Report partitions with an unreadable row that refuse requests: another copy must lead them."""
        found = False
        for spoiled in (self.leadership.forward_receiver.spoiled, self.publications.spoiled):
            for partition, why in spoiled:
                self.replication.replicas[partition].spoil(why)
            found = found or bool(spoiled)
            spoiled.clear()
        return found

    def _open(self, partitions: list[int]) -> None:
        replication = self.replication
        homes: dict[str, tuple[bool, list[str]]] = {}
        for partition in partitions:
            replication.start(partition, self.state.now)
            held = not replication.replicas[partition].is_readable()
            self.streams.hold(partition, held)
            self.transactions.hold(partition, held)
            homes.update(replication.take_homes(partition))
        self.leadership.lead(partitions, homes)

    def runnable(self) -> bool:
        """Whether there is something to do at once."""
        recovery = self.leadership.recovery
        if self.leadership.forward_receiver.spoiled or self.publications.spoiled:
            return True
        return len(recovery) > 0 and recovery.runnable(self._startable())

    def _startable(self) -> dict[int, tuple[int, int]]:
        """Return the partitions to be led for which no newer change can come, and the positions of their rows.

        The store shows all their rows, so that what is read of them now is as of that position.
        """
        found: dict[int, tuple[int, int]] = {}
        for partition in self.leadership.recovery.arrivals:
            replica = self.replication.replicas[partition]
            if self.replication.may_start(partition) and replica.is_written():
                found[partition] = replica.rows_position()
        return found
