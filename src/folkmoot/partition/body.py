"""Bodies: a message for several sessions of one partition is stored once; their queue rows refer to it.

The number of rows that refer to a body is kept in memory, and counted anew when a node begins to lead the partition.
"""

from __future__ import annotations

from folkmoot.kernel.errors import CorruptStore
from folkmoot.session.session import Session
from folkmoot.store.key import body_key
from folkmoot.store.message import Message, decode_message, encode_message
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.turn.state import State

__all__ = ["Bodies"]


class Bodies:
    """The bodies of all partitions that this node leads."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._counts: list[dict[int, int]] = [{} for _ in range(state.partitions)]  # body -> rows that name it
        self._next: list[int] = [1] * state.partitions
        self._total = 0

    def has_room(self) -> bool:
        """Whether one more body may be kept in memory; otherwise each session gets its own copy."""
        return self._total < self.state.limits.shared_bodies_max

    def store(self, partition: int, message: Message) -> int:
        """Store a body without references and return its sequence."""
        sequence = self._next[partition]
        self._next[partition] = sequence + 1
        self.state.writer.put(partition, body_key(partition, sequence), encode_message(message))
        self._counts[partition][sequence] = 0
        self._total += 1
        return sequence

    def hold(self, partition: int, sequence: int) -> None:
        """Add a reference to the body."""
        counts = self._counts[partition]
        if sequence not in counts:
            self._total += 1
        counts[sequence] = counts.get(sequence, 0) + 1

    def take(self, partition: int, counts: dict[int, int], following: int) -> None:
        """Begin to lead the partition: its bodies with their numbers of references, and the next sequence."""
        self._total += len(counts)
        self._counts[partition] = counts
        self._next[partition] = following

    def forget(self, partition: int) -> None:
        """End the leadership of the partition."""
        self._total -= len(self._counts[partition])
        self._counts[partition] = {}
        self._next[partition] = 1

    def release(self, partition: int, sequence: int, lazy: Session | None = None) -> None:
        """Remove a reference to the body; the last one deletes it. lazy: the session whose reference goes so."""
        counts = self._counts[partition]
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
        return self._counts[partition].get(sequence, 0)

    def __len__(self) -> int:
        return self._total

    def load(self, partition: int, sequence: int) -> Message:
        """Return the message of a body; raises CorruptStore when it does not exist."""
        value = self.state.reader.get(body_key(partition, sequence))
        if value is None:
            raise CorruptStore(f"a queue row of partition {partition} names body {sequence}, which is missing")
        return decode_message(value, VERSION_BYTES)
