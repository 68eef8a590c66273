"""The partitions that this node is about to lead: reads their rows, and finds out which clients are connected.

A large partition takes many turns to read, and everything else continues meanwhile. Each partition opens as soon as it
is read and all members have listed their connected clients. Those for which clients wait are read first. A partition
that a new view takes away before it opens has changed nothing that others see. `leadership` opens them.

A view that leaves a partition to this node takes nothing back of what was read, or a partition that takes longer to
read than the time between two views would never open. What was read is the store at a position (`Arrival.position`).
It counts as long as both facts hold:

- The leadership is the same, by its number and its lineage. So no other node has led meanwhile, and this one has not
  followed: no pages of a copy have come, and positions only grew.
- The rows are still those of that position. Whatever is written to a partition moves it: a takeover that gets what was
  missing here, a merge, changes that are taken back. Only a change that says which leadership has begun does not
  count (`Replica.rows_position`): until all branches are in sync, each view adds one.

The list of clients is asked for in each view. A node that has lost messages to this one begins anew with it in its next
view, drops what it has told, and this node cannot see it.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.leadership.loader import PartitionLoader
from folkmoot.leadership.restore import Restore
from folkmoot.proxy.relay import HostedClient, Relays
from folkmoot.store.epoch import tag_of
from folkmoot.turn.fabric import Fabric

__all__ = ["OPENED_PER_TURN", "ROWS_PER_TURN", "Arrival", "Recovery"]

# Per turn, so that heartbeats, peers and clients of other partitions wait for some tens of milliseconds at most: a row
# takes 2 to 4 us to read in compiled code, and what is put in its place when a partition opens (a session, a
# subscription) about 8. A single partition opens in one turn, however much there is to put in its place.
ROWS_PER_TURN: Final = 4096
OPENED_PER_TURN: Final = 2048


class Arrival:
    """A partition to be led: members that have not answered yet, connected clients, and what was read.

    leadership: its lineage and its number; position: of the rows that are read, None before the first of them.
    """

    def __init__(self, loader: PartitionLoader, leadership: tuple[int, int]) -> None:
        self.loader = loader
        self.leadership = leadership
        self.position: tuple[int, int] | None = None
        self.asked_epoch = 0  # of the view in which all others were asked
        self.awaited: dict[str, None] = {}
        self.attached: list[tuple[str, HostedClient]] = []
        self.spoiled = False  # its rows cannot be read: it stays closed until another configuration names a leader

    def ask(self, epoch: int, others: list[str]) -> None:
        """All these members are asked in a view which clients are connected; what they have said before is void."""
        self.asked_epoch = epoch
        self.awaited = dict.fromkeys(others)
        self.attached = []


class Recovery:
    """Partitions by number, in the order in which they were begun.

    The argument `may` names the partitions that may be read or opened, each with the position of its rows: for others
    newer changes may still come.
    """

    def __init__(self, relays: Relays, restore: Restore, fabric: Fabric) -> None:
        self.relays = relays
        self.restore = restore
        self.fabric = fabric
        self.arrivals: dict[int, Arrival] = {}
        self.spoiled: list[tuple[int, str]] = []  # partitions whose rows cannot be read, and why; the caller takes them
        self._current = -1  # the one that is being read

    def __len__(self) -> int:
        return len(self.arrivals)

    def clear(self) -> None:
        """Forget all."""
        self.arrivals.clear()
        self.spoiled.clear()
        self._current = -1

    def installed(self) -> list[int]:
        """A view was installed: forget what it takes away, and what cannot be read; return what this node still leads.

        For these all members are to be asked again (`begin`).
        """
        kept: list[int] = []
        for partition, arrival in list(self.arrivals.items()):
            if self.fabric.leaders[partition] != self.fabric.node_id:
                del self.arrivals[partition]
                continue
            kept.append(partition)
            if arrival.leadership != self._leadership(partition) or arrival.spoiled:
                self.arrivals[partition] = self._arrival(partition)
        self.spoiled.clear()
        return kept

    def begin(self, partition: int) -> bool:
        """Begin to prepare a partition, or go on; return whether all other members are to be asked about it."""
        arrival = self.arrivals.get(partition)
        if arrival is None:
            arrival = self.arrivals[partition] = self._arrival(partition)
        assert arrival.leadership == self._leadership(partition), "a view has begun another leadership"
        if arrival.asked_epoch == self.fabric.epoch:
            return False  # already, when the view came
        arrival.ask(self.fabric.epoch, self.fabric.others)
        return True

    def _arrival(self, partition: int) -> Arrival:
        return Arrival(self.restore.begin(partition), self._leadership(partition))

    def _leadership(self, partition: int) -> tuple[int, int]:
        return tag_of(self.fabric.epoch), self.fabric.leader_epochs[partition]

    def told(self, node_id: str, partitions: list[int], clients: list[HostedClient]) -> None:
        """Take a node's list of its connected clients."""
        asked: dict[int, Arrival] = {}
        for partition in partitions:
            arrival = self.arrivals.get(partition)
            if arrival is not None and node_id in arrival.awaited:
                # Otherwise it has answered already. A client that it names twice would be taken for two connections,
                # and disconnected.
                del arrival.awaited[node_id]
                asked[partition] = arrival
        for client in clients:
            arrival = asked.get(client.partition)
            if arrival is not None:
                arrival.attached.append((node_id, client))

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, may: dict[int, tuple[int, int]]) -> None:
        """Read about `ROWS_PER_TURN` rows; begin again with partitions that were written to since they were read."""
        for partition, position in may.items():
            arrival = self.arrivals.get(partition)
            if arrival is not None and not arrival.spoiled:
                self._see_position(arrival, position)
        budget = ROWS_PER_TURN
        while budget > 0:
            arrival = self._next(may)
            if arrival is None:
                return
            try:
                budget = arrival.loader.read(budget)
            except CorruptStore as fault:
                self.spoil(arrival, fault)

    def _see_position(self, arrival: Arrival, position: tuple[int, int]) -> None:
        if self._is_stale(arrival, position):
            arrival.loader = self.restore.begin(arrival.loader.partition)
            arrival.position = position
        elif arrival.position is None:
            arrival.position = position

    def _is_stale(self, arrival: Arrival, position: tuple[int, int]) -> bool:
        """Whether a partition was written to since its rows were read."""
        if arrival.position is None or self.fabric.planted.read_before:
            return False
        return arrival.position != position

    def _next(self, may: dict[int, tuple[int, int]]) -> Arrival | None:
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

    def due(self, may: dict[int, tuple[int, int]]) -> list[int]:
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
        return arrival.loader.whole and not arrival.spoiled and (self.fabric.planted.unasked or not arrival.awaited)

    def runnable(self, may: dict[int, tuple[int, int]]) -> bool:
        """Whether there is something to read or to open."""
        for partition, position in may.items():
            arrival = self.arrivals.get(partition)
            if arrival is None or arrival.spoiled:
                continue
            if _is_unread(arrival) or self._is_due(arrival) or self._is_stale(arrival, position):
                return True
        return False


def _is_unread(arrival: Arrival) -> bool:
    return not arrival.loader.whole and not arrival.spoiled
