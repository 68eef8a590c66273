"""Bodies: a message that several sessions of one partition wait for is stored once; their queue rows name it.

The number of rows that name a body is kept in memory and counted anew when the store is opened.
"""

from __future__ import annotations

from folkmoot.broker.state import State
from folkmoot.kernel.errors import CorruptStore
from folkmoot.store.key import body_key
from folkmoot.store.message import Message, decode_message, encode_message
from folkmoot.store.writer import VERSION_BYTES

__all__ = ["Bodies"]


class Bodies:
    """The bodies of all partitions that this node leads."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._counts: dict[
            int, int
        ] = {}  # body sequence -> rows that name it; sequences are unique over all partitions
        self._next = 1

    def has_room(self) -> bool:
        """Whether one more body may be remembered; otherwise each session gets its own copy."""
        return len(self._counts) < self.state.limits.shared_bodies_max

    def store(self, partition: int, message: Message) -> int:
        """Store a body nobody names yet and return its sequence."""
        sequence = self._next
        self._next += 1
        self.state.writer.put(partition, body_key(partition, sequence), encode_message(message))
        self._counts[sequence] = 0
        return sequence

    def hold(self, sequence: int) -> None:
        """One more row names the body."""
        self._counts[sequence] = self._counts.get(sequence, 0) + 1

    def seen(self, sequence: int) -> None:
        """A body with this sequence is in the store: new ones come after it."""
        self._next = max(self._next, sequence + 1)

    def release(self, partition: int, sequence: int) -> None:
        """One row less names the body; the last one takes it along."""
        left = self._counts.get(sequence, 0) - 1
        if left > 0:
            self._counts[sequence] = left
            return
        self._counts.pop(sequence, None)
        self.state.writer.delete(partition, body_key(partition, sequence))

    def names(self, sequence: int) -> int:
        """Return how many rows name the body."""
        return self._counts.get(sequence, 0)

    def load(self, partition: int, sequence: int) -> Message:
        """Return the message of a body; raises CorruptStore when a row names one that is not there."""
        value = self.state.reader.get(body_key(partition, sequence))
        if value is None:
            raise CorruptStore(f"a queue row of partition {partition} names body {sequence}, which is missing")
        return decode_message(value, VERSION_BYTES)
