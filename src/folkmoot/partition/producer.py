"""Idempotent producers: a publisher that names and numbers its messages is applied once per destination.

The newest number of each producer is a row of every partition that it wrote to, in the same batch as the message.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR
from folkmoot.kernel.pack import get_u64, u64
from folkmoot.partition.producer_eviction import ProducerEviction
from folkmoot.store.key import PRODUCER, plain_key, plain_name_of
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.turn.commit import Commits
from folkmoot.turn.state import State

__all__ = ["PRODUCER_BYTES_MAX", "PRODUCER_PROPERTY", "SEQUENCE_PROPERTY", "Producers", "owner_part"]

PRODUCER_BYTES_MAX: Final = 256  # there may be hundreds of thousands of names
PRODUCER_PROPERTY: Final = "folkmoot-producer"
SEQUENCE_PROPERTY: Final = "folkmoot-seq"

# A name that begins so has an owner: its first bytes are a hash of it. No UTF-8 text begins with this byte.
_OWNED: Final = b"\xff"
_OWNER_BYTES: Final = 17


def owner_part(producer: bytes) -> bytes:
    """Return the part of a row's name that all producers of its owner share; empty if it has no owner."""
    return producer[:_OWNER_BYTES] if producer.startswith(_OWNED) else b""


class _Newest:
    """The newest number of a producer in a partition, and the batch that wrote it (0 = it was read)."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.token = 0


class Producers:
    """Remembers the newest number per (partition, producer); what is not in memory is in the store."""

    def __init__(self, state: State, commits: Commits) -> None:
        self.state = state
        self.commits = commits
        # Both in the order of use, least recent first.
        self._newest: dict[bytes, _Newest] = {}  # by row key
        self._live: dict[bytes, int] = {}  # by producer: the newest that transient sessions got
        self.counts: list[int] = [0] * state.partitions  # rows per partition
        self._owned: list[dict[bytes, int]] = [{} for _ in range(state.partitions)]  # of these, by owner
        self._eviction: ProducerEviction | None = None

    def advance(self, partition: int, producer: bytes, sequence: int) -> bool:
        """Return whether `sequence` is new in this partition; then it is the newest from now on."""
        key = plain_key(partition, PRODUCER, producer)
        newest = self._newest.pop(key, None)
        if newest is None:
            newest = self._read(key)
            if newest.sequence < 0:
                self._count(partition, producer)
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

    def take(self, partition: int, owned: dict[bytes, int]) -> None:
        """Begin to lead the partition: its rows by owner, empty: those without one."""
        self._owned[partition] = owned
        self.counts[partition] = sum(owned.values())

    def _count(self, partition: int, producer: bytes) -> None:
        owner = owner_part(producer)
        owned = self._owned[partition]
        owned[owner] = owned.get(owner, 0) + 1
        self.counts[partition] += 1
        if self._eviction is not None:
            return
        own_max = self.state.accounts.producers_max
        if owner and owned[owner] > own_max:
            self._eviction = ProducerEviction(self.state, partition, owner, own_max)
        elif self.counts[partition] > self.state.limits.producers_max:
            self._eviction = ProducerEviction(self.state, partition, b"", self.state.limits.producers_max)

    def _uncount(self, partition: int, producer: bytes) -> None:
        owner = owner_part(producer)
        owned = self._owned[partition]
        self.counts[partition] -= 1
        left = owned.get(owner, 0) - 1
        if left > 0:
            owned[owner] = left
        else:
            owned.pop(owner, None)

    def forget(self, partition: int) -> None:
        """End the leadership of the partition."""
        self.counts[partition] = 0
        self._owned[partition] = {}
        if self._eviction is not None and self._eviction.partition == partition:
            self._eviction = None
        prefix = plain_key(partition, PRODUCER, b"")
        for key in [key for key in self._newest if key.startswith(prefix)]:
            del self._newest[key]

    def busy(self) -> bool:
        """Whether a partition has too many producers, so that `step` must be called."""
        return self._eviction is not None

    def step(self) -> None:
        """Do a page of the eviction of the oldest."""
        eviction = self._eviction
        if eviction is None:
            return
        try:
            if not eviction.walk():
                return
            keys = eviction.take()
        except CorruptStore as fault:  # the eviction begins again with the next surplus producer
            self.state.event(ERROR, "corrupt_store", {"what": str(fault)})
            self._eviction = None
            return
        for key in keys:
            newest = self._newest.get(key)
            if newest is None or newest.token <= self.commits.durable_token:
                self._newest.pop(key, None)
                self._uncount(eviction.partition, plain_name_of(key))
                if eviction.owner:
                    self.state.counters.quota_forgotten_producers += 1
                self.state.writer.delete(eviction.partition, key)
        if not keys:
            self._eviction = None

    def _forget_some(self) -> None:
        """Free up to half of the memory, but no entry whose row is on its way to the disk: the old row would be read.

        The write backlog limits the number of such entries.
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
