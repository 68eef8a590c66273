"""The partitions that this node is about to lead: reads their rows, and finds out which clients are connected.

A large partition takes many turns to read, and everything else continues meanwhile. Each partition opens as soon as it
is read and all members have listed their connected clients. Those for which clients wait are read first. A partition
that a new view takes away before it opens has changed nothing that others see. `leadership` opens them.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.planted import Planted
from folkmoot.leadership.loader import PartitionLoader
from folkmoot.leadership.restore import Restore
from folkmoot.proxy.relay import HostedClient, Relays

__all__ = ["OPENED_PER_TURN", "ROWS_PER_TURN", "Arrival", "Recovery"]

# Per turn, so that heartbeats, peers and clients of other partitions wait for some tens of milliseconds at most: a row
# takes 2 to 4 us to read in compiled code, and what is put in its place when a partition opens (a session, a
# subscription) about 8. A single partition opens in one turn, however much there is to put in its place.
ROWS_PER_TURN: Final = 4096
OPENED_PER_TURN: Final = 2048


class Arrival:
    """A partition to be led: members that have not answered yet, connected clients, and what was read."""

    def __init__(self, loader: PartitionLoader, others: list[str]) -> None:
        self.loader = loader
        self.awaited: dict[str, None] = dict.fromkeys(others)
        self.attached: list[tuple[str, HostedClient]] = []
        self.spoiled = False  # its rows cannot be read: it stays closed until another configuration names a leader


class Recovery:
    """Partitions by number, in the order in which they were begun.

    The argument `may` names the partitions that may be read or opened: for others newer changes may still come.
    """

    def __init__(self, relays: Relays, restore: Restore, planted: Planted) -> None:
        self.relays = relays
        self.restore = restore
        self.arrivals: dict[int, Arrival] = {}
        self.spoiled: list[tuple[int, str]] = []  # partitions whose rows cannot be read, and why; the caller takes them
        self._planted = planted
        self._current = -1  # the one that is being read

    def __len__(self) -> int:
        return len(self.arrivals)

    def clear(self) -> None:
        """Forget all."""
        self.arrivals.clear()
        self.spoiled.clear()
        self._current = -1

    def begin(self, partition: int, others: list[str]) -> None:
        """Begin to prepare a partition, or begin again."""
        self.arrivals[partition] = Arrival(self.restore.begin(partition), others)
        if self._current == partition:
            self._current = -1

    def told(self, node_id: str, partitions: list[int], clients: list[HostedClient]) -> None:
        """Take a node's list of its connected clients."""
        asked: dict[int, Arrival] = {}
        for partition in partitions:
            arrival = self.arrivals.get(partition)
            if arrival is not None and node_id in arrival.awaited:
                # Otherwise this is its second answer: it was asked twice in this view. A client that it names twice
                # would be taken for two connections, and disconnected.
                del arrival.awaited[node_id]
                asked[partition] = arrival
        for client in clients:
            arrival = asked.get(client.partition)
            if arrival is not None:
                arrival.attached.append((node_id, client))

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, may: list[int]) -> None:
        """Read about `ROWS_PER_TURN` rows."""
        budget = ROWS_PER_TURN
        while budget > 0:
            arrival = self._next(may)
            if arrival is None:
                return
            try:
                budget = arrival.loader.read(budget)
            except CorruptStore as fault:
                self.spoil(arrival, fault)

    def _next(self, may: list[int]) -> Arrival | None:
        """Return what to read next: the partition that is begun, or one for which clients wait, or any.

        One at a time: partitions read side by side would all open late.
        """
        current = self.arrivals.get(self._current)
        if current is not None and _is_unread(current) and self._current in may:
            return current
        found = -1
        for partition in may:
            arrival = self.arrivals.get(partition)
            if arrival is not None and _is_unread(arrival):
                if arrival.attached or self.relays.has_any(partition):
                    found = partition
                    break
                if found < 0:
                    found = partition
        self._current = found
        return self.arrivals.get(found)

    def spoil(self, arrival: Arrival, fault: CorruptStore) -> None:
        """Note that the rows of a partition cannot be read."""
        arrival.spoiled = True
        self.spoiled.append((arrival.loader.partition, str(fault)))

    # -- opening ------------------------------------------------------------------------------------------------------

    def due(self, may: list[int]) -> list[int]:
        """Return partitions that can be opened now: not all of them, if that would take long."""
        partitions: list[int] = []
        weight = 0
        for partition in may:
            arrival = self.arrivals.get(partition)
            if arrival is not None and self._is_due(arrival):
                weight += arrival.loader.weight + self._flights(partition, arrival)
                if partitions and weight > OPENED_PER_TURN:
                    break
                partitions.append(partition)
        return partitions

    def _flights(self, partition: int, arrival: Arrival) -> int:
        """Return how many messages that are in flight to connected clients are read when the partition opens."""
        there = sum([len(client.flights) for _, client in arrival.attached])
        return there + sum([len(relay.flights) for relay in self.relays.of_partition(partition)])

    def _is_due(self, arrival: Arrival) -> bool:
        """Tell whether a partition can open: read to its end, and every other member has told who is connected.

        A member that does not answer is no obstacle for long: it is marked as away, and the next configuration asks
        anew. To open without its answer would publish the wills of its clients and give their sessions to nobody.
        """
        return arrival.loader.whole and not arrival.spoiled and (self._planted.unasked or not arrival.awaited)

    def runnable(self, may: list[int]) -> bool:
        """Whether there is something to read or to open."""
        for partition in may:
            arrival = self.arrivals.get(partition)
            if arrival is not None and (_is_unread(arrival) or self._is_due(arrival)):
                return True
        return False


def _is_unread(arrival: Arrival) -> bool:
    return not arrival.loader.whole and not arrival.spoiled
