"""Marks: the newest message of each origin that a partition has applied, so that a repetition is not applied again.

An origin is a node, or a partition with an outbox entry, in one lineage (`store/origin`). A mark is a row of the
partition, in the same change as the message: the next leader knows it. A message that this node applies directly needs
no mark, because it cannot be repeated. Marks of unknown nodes are deleted while all known nodes are present: such nodes
have left, or an operator has forgotten them, and nobody sends in their name. Of each partition the marks of its newest
lineages are kept (`LINEAGES_MAX`), of apps with transactions those that were used last (`APPS_MAX`), and of packets
that came to two leaders the newest (`PACKETS_MAX`). So the marks of a partition are bounded by the numbers of nodes and
partitions, and by these three.
"""

from __future__ import annotations

from typing import Final

from folkmoot.partition.partition import Led, Partition
from folkmoot.store.key import MARK, plain_key
from folkmoot.store.mark_row import encode_mark
from folkmoot.store.origin import (
    is_node,
    is_packet,
    is_partition,
    is_transaction,
    outbox_of,
    packet_name,
    transaction_name,
)
from folkmoot.turn.state import State

__all__ = ["LINEAGES_MAX", "PACKETS_MAX", "Marks"]

LINEAGES_MAX: Final = 16
"""Of one partition: a branch that was made so many forks ago is not remembered either."""

APPS_MAX: Final = 1_024
"""Apps that have published something to a partition. A home may have more of them (`delivery/transaction`), and there
are many homes; but a mark matters only as long as the home of the app may send a message again. An app that is
forgotten leaves its marks, since its last messages may be under way: they become the oldest, and go."""

PACKETS_MAX: Final = 256
"""Packets that the node of a client has sent to one leader after another: what is under way when leaders change. No
limit of a client bounds that, because any number of clients have messages for a partition (docs/limits.md)."""


class Marks:
    """The marks of the partitions that this node leads.

    The numbers of a restarted node begin beyond those of its earlier processes (`forward_sender`).
    """

    def __init__(self, state: State, led: Led) -> None:
        self.state = state
        self.led = led
        self._changed: dict[tuple[int, bytes], int] = {}
        self._known: dict[bytes, None] | None = None  # ids of nodes; None: no view yet

    def know(self, node_ids: list[str]) -> None:
        """A view was installed: these are all known nodes; an empty list: some are absent, so no mark is deleted.

        An absent node may have a branch, and a merge looks at the marks too.
        """
        known = {node_id.encode(): None for node_id in node_ids} if node_ids else None
        if known != self._known:
            self._known = known
            for memory in self.led:
                self._prune(memory)

    def _prune(self, memory: Partition) -> None:
        known = self._known
        newest = memory.marks
        if known is None or not newest:
            return
        for origin in [origin for origin in newest if is_node(origin) and origin not in known]:
            del newest[origin]
            self._changed.pop((memory.number, origin), None)
            self.state.writer.delete(memory.number, plain_key(memory.number, MARK, origin))

    def advance(self, partition: int, origin: bytes, sequence: int) -> bool:
        """Return whether the message is new in this partition; then it is the newest from now on."""
        newest = self.led[partition].marks
        if sequence <= newest.get(origin, 0):
            return False
        if origin not in newest and not is_node(origin):
            if is_partition(origin):
                self._make_room(partition, outbox_of(origin), LINEAGES_MAX)
            elif is_packet(origin):
                self._make_room(partition, packet_name(b""), PACKETS_MAX)
            else:
                self._make_room(partition, transaction_name(b""), APPS_MAX)
        newest[origin] = sequence
        if is_transaction(origin):
            self.led[partition].app_uses[origin] = self.state.clock.time
        self._changed[(partition, origin)] = sequence
        return True

    def _make_room(self, partition: int, kind: bytes, most: int) -> None:
        """Forget the oldest of the origins whose names begin like this, so that there are fewer than are kept.

        Numbers are times or begin with one, or with the counter of a view: the lowest is the oldest. Those of an app go
        on from the time of its first transaction, so the time of the last one counts, if it is known. A merge may add
        some.
        """
        memory = self.led[partition]
        newest, uses = memory.marks, memory.app_uses
        origins = [origin for origin in newest if origin.startswith(kind)]
        origins.sort(key=lambda origin: uses.get(origin, newest[origin]), reverse=True)
        while len(origins) >= most:
            oldest = origins.pop()
            del newest[oldest]
            uses.pop(oldest, None)
            self._changed.pop((partition, oldest), None)
            self.state.writer.delete(partition, plain_key(partition, MARK, oldest))

    def newest(self, partition: int, origin: bytes) -> int:
        """Return the newest message of an origin that the partition has applied, 0 = none."""
        return self.led[partition].marks.get(origin, 0)

    def note_packet(self, partition: int, source: bytes) -> None:
        """Note that the partition has got the message of a packet that another leader may have too (`turn.source`).

        Such marks have the time as their number.
        """
        self.advance(partition, packet_name(source), self.state.clock.time)

    def has_packet(self, partition: int, source: bytes) -> bool:
        """Whether the message of a packet is known to have come to the partition."""
        return packet_name(source) in self.led[partition].marks

    def forget_packet(self, partition: int, source: bytes) -> None:
        """Undo `note_packet` of this turn."""
        self.unmark(partition, packet_name(source), 0)

    def unmark(self, partition: int, origin: bytes, sequence: int) -> None:
        """Undo the last mark, whose message was not applied: `sequence` is the newest again, 0 = none."""
        if sequence:
            self.led[partition].marks[origin] = sequence
            self._changed[(partition, origin)] = sequence
        else:
            self.led[partition].marks.pop(origin, None)
            self.led[partition].app_uses.pop(origin, None)
            self._changed.pop((partition, origin), None)

    def flush(self) -> None:
        """End of a turn: put the rows of the marks that have changed."""
        if not self._changed:
            return
        changed = self._changed
        self._changed = {}
        for (partition, origin), sequence in changed.items():
            used_us = self.state.clock.time if is_transaction(origin) else 0
            self.state.writer.put(partition, plain_key(partition, MARK, origin), encode_mark(sequence, used_us))

    def take(self, memory: Partition) -> None:
        """Begin to lead a partition."""
        self._prune(memory)
