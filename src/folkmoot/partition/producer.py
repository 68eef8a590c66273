"""Idempotent producers: a publisher that names itself and counts is applied once per destination, whatever it repeats.

The newest sequence of each producer is a row of every partition that it wrote to, in the same batch as what it wrote.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR
from folkmoot.kernel.pack import get_u64, u64
from folkmoot.partition.producer_eviction import ProducerEviction
from folkmoot.store.key import PRODUCER, plain_key
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.turn.commit import Commits
from folkmoot.turn.state import State

__all__ = ["PRODUCER_BYTES_MAX", "PRODUCER_PROPERTY", "SEQUENCE_PROPERTY", "Producers"]

PRODUCER_BYTES_MAX: Final = 256  # names are remembered by the hundred thousand
PRODUCER_PROPERTY: Final = "folkmoot-producer"
SEQUENCE_PROPERTY: Final = "folkmoot-seq"


class _Newest:
    """The newest sequence of a producer in a partition, and the batch that wrote it (0 = it was read)."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.token = 0


class Producers:
    """Remembers the newest sequence per (partition, producer); what is not in memory is in the store."""

    def __init__(self, state: State, commits: Commits) -> None:
        self.state = state
        self.commits = commits
        # Both with the one first that was not heard of for the longest time.
        self._newest: dict[bytes, _Newest] = {}  # by row key
        self._live: dict[bytes, int] = {}  # by producer: what transient sessions got
        self.counts: list[int] = [0] * state.partitions  # rows per partition
        self._eviction: ProducerEviction | None = None

    def advance(self, partition: int, producer: bytes, sequence: int) -> bool:
        """Return whether `sequence` is new in this partition; then it is the newest from now on."""
        key = plain_key(partition, PRODUCER, producer)
        newest = self._newest.pop(key, None)
        if newest is None:
            newest = self._read(key)
            if newest.sequence < 0:
                self._count(partition)
        self._newest[key] = newest
        if sequence <= newest.sequence:
            self.state.counters.producer_duplicates += 1
            return False
        newest.sequence = sequence
        newest.token = self.state.writer.token
        self.state.writer.put(partition, key, u64(sequence))
        return True

    def _read(self, key: bytes) -> _Newest:
        if len(self._newest) >= self.state.limits.producers_max:
            self._forget_some()
        self.state.counters.producers = len(self._newest) + 1
        value = self.state.reader.get(key)
        return _Newest(get_u64(value, VERSION_BYTES) if value is not None else -1)

    def _count(self, partition: int) -> None:
        self.counts[partition] += 1
        if self._eviction is None and self.counts[partition] > self.state.limits.producers_max:
            self._eviction = ProducerEviction(self.state, partition)

    def forget(self, partition: int) -> None:
        """This node leads the partition no more."""
        self.counts[partition] = 0
        if self._eviction is not None and self._eviction.partition == partition:
            self._eviction = None
        prefix = plain_key(partition, PRODUCER, b"")
        for key in [key for key in self._newest if key.startswith(prefix)]:
            del self._newest[key]

    def busy(self) -> bool:
        """Whether a partition has too many producers: `step` is to be called."""
        return self._eviction is not None

    def step(self) -> None:
        """Do a page of the work of forgetting the oldest."""
        eviction = self._eviction
        if eviction is None:
            return
        try:
            if not eviction.walk():
                return
            keys = eviction.take()
        except CorruptStore as fault:  # it begins anew with the next producer that is one too many
            self.state.event(ERROR, "corrupt_store", {"what": str(fault)})
            self._eviction = None
            return
        for key in keys:
            newest = self._newest.get(key)
            if newest is None or newest.token <= self.commits.durable_token:
                self._newest.pop(key, None)
                self.counts[eviction.partition] -= 1
                self.state.writer.delete(eviction.partition, key)
        if not keys:
            self._eviction = None

    def _forget_some(self) -> None:
        """Forget up to half of them, but none whose row is on its way to the disk: an old row would be read instead.

        Those are as many as the backlog of writes can hold.
        """
        idle: list[bytes] = []
        count_max = len(self._newest) // 2 + 1
        for key, newest in self._newest.items():
            if len(idle) >= count_max or newest.token > self.commits.durable_token:
                break
            idle.append(key)
        for key in idle:
            del self._newest[key]

    def advance_live(self, producer: bytes, sequence: int) -> bool:
        """As `advance`, for the transient sessions of this node: in memory only, like they are."""
        last = self._live.pop(producer, -1)
        if len(self._live) >= self.state.limits.producers_max:
            for oldest in list(self._live)[: len(self._live) // 2 + 1]:
                del self._live[oldest]
        self._live[producer] = max(last, sequence)
        return sequence > last
