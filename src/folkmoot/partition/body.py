"""Bodies: a message for several sessions of one partition is stored once; their queue rows refer to it.

The number of rows that refer to a body is kept in memory, and counted anew when a node begins to lead the partition.
"""

from __future__ import annotations

from folkmoot.kernel.errors import CorruptStore
from folkmoot.partition.partition import Led, Partition
from folkmoot.session.session import Session
from folkmoot.store.key import body_key
from folkmoot.store.message import Message, decode_message, encode_message
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.turn.state import State

__all__ = ["Bodies"]


class Bodies:
    """The bodies of all partitions that this node leads."""

    def __init__(self, state: State, led: Led) -> None:
        self.state = state
        self.led = led
        self._total = 0

    def has_room(self) -> bool:
        """Whether one more body may be kept in memory; otherwise each session gets its own copy."""
        return self._total < self.state.limits.shared_bodies_max

    def store(self, partition: int, message: Message) -> int:
        """Store a body without references and return its sequence."""
        memory = self.led[partition]
        sequence = memory.body_next
        memory.body_next = sequence + 1
        self.state.writer.put(partition, body_key(partition, sequence), encode_message(message))
        memory.bodies[sequence] = 0
        self._total += 1
        return sequence

    def hold(self, partition: int, sequence: int) -> None:
        """Add a reference to the body."""
        counts = self.led[partition].bodies
        if sequence not in counts:
            self._total += 1
        counts[sequence] = counts.get(sequence, 0) + 1

    def take(self, memory: Partition) -> None:
        """Begin to lead a partition: count what was read."""
        self._total += len(memory.bodies)

    def forget(self, memory: Partition) -> None:
        """End the leadership of a partition."""
        self._total -= len(memory.bodies)
        memory.bodies = {}

    def release(self, partition: int, sequence: int, lazy: Session | None = None) -> None:
        """Remove a reference to the body; the last one deletes it. lazy: the session whose reference goes so."""
        counts = self.led[partition].bodies
        left = counts.get(sequence, 0) - 1
        if left > 0:
            counts[sequence] = left
            return
        if counts.pop(sequence, -1) >= 0:
            self._total -= 1
        if lazy is not None:
            self.state.remove_later(partition, body_key(partition, sequence), lazy)
        else:
            self.state.writer.delete(partition, body_key(partition, sequence))

    def names(self, partition: int, sequence: int) -> int:
        """Return the number of references to the body."""
        return self.led[partition].bodies.get(sequence, 0)

    def __len__(self) -> int:
        return self._total

    def load(self, partition: int, sequence: int) -> Message:
        """Return the message of a body; raises CorruptStore when it does not exist."""
        value = self.state.reader.get(body_key(partition, sequence))
        if value is None:
            raise CorruptStore(f"a queue row of partition {partition} names body {sequence}, which is missing")
        return decode_message(value, VERSION_BYTES)
