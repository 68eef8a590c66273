"""Idempotent producers: a publisher that names itself and counts is applied once per destination, whatever it repeats.

The newest sequence of each producer is a row of every partition that it wrote to, in the same batch as what it wrote.
"""

from __future__ import annotations

from typing import Final

from folkmoot.broker.state import State
from folkmoot.kernel.pack import get_u64, u64
from folkmoot.store.key import PRODUCER, plain_key
from folkmoot.store.writer import VERSION_BYTES

__all__ = ["PRODUCER_PROPERTY", "SEQUENCE_PROPERTY", "Producers"]

PRODUCER_PROPERTY: Final = "folkmoot-producer"
SEQUENCE_PROPERTY: Final = "folkmoot-seq"


class Producers:
    """Remembers the newest sequence per (partition, producer); what is not in memory is in the store."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._newest: dict[bytes, int] = {}  # by row key
        self._live: dict[bytes, int] = {}  # by producer: what transient sessions got

    def advance(self, partition: int, producer: bytes, sequence: int) -> bool:
        """Return whether `sequence` is new in this partition; then it is the newest from now on."""
        key = plain_key(partition, PRODUCER, producer)
        if sequence <= self._last(key):
            self.state.counters.producer_duplicates += 1
            return False
        self._newest[key] = sequence
        self.state.writer.put(partition, key, u64(sequence))
        return True

    def _last(self, key: bytes) -> int:
        last = self._newest.get(key)
        if last is not None:
            return last
        self._forget_some()
        value = self.state.reader.get(key)
        last = get_u64(value, VERSION_BYTES) if value is not None else -1
        self._newest[key] = last
        return last

    def _forget_some(self) -> None:
        # The oldest half goes. It may not hold a sequence whose row is still on its way to the disk, or the row that is
        # read instead would be an old one: the halves are far larger than what one backlog of writes can hold.
        limit = self.state.limits.producers_max
        if len(self._newest) >= limit:
            for key in list(self._newest)[: limit // 2]:
                del self._newest[key]
        self.state.counters.producers = len(self._newest)

    def advance_live(self, producer: bytes, sequence: int) -> bool:
        """As `advance`, for the transient sessions of this node: in memory only, like they are."""
        last = self._live.pop(producer, -1)
        self._live[producer] = max(last, sequence)
        if len(self._live) > self.state.limits.producers_max:
            del self._live[next(iter(self._live))]
        return sequence > last
