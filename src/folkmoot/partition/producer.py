"""Idempotent producers: a publisher that names and numbers its messages is applied once per destination.

The newest number of each producer is a row of every partition that it wrote to, in the same batch as the message.
A number that is not newer is a repetition, with one exception. A message that another side of a split has acknowledged,
for a partition that it could not reach, comes when the sides are merged (*late*). The producer may have gone on at this
side since, with later numbers. So it is a repetition only if its number is known to have been accepted; of numbers that
are forgotten, it is not.

A name belongs to the user of the connection, or to its client id where nobody has proved a user name: the row's name is
a mark, a hash of the owner, and the name. Rows of version 0.1 have the name only; what they say counts for every owner
that has no row of its own yet. Wills are producers of one message each (`store/origin`), with an owner of their own.
"""

from __future__ import annotations

import hashlib
from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR
from folkmoot.kernel.pack import get_u64, u64
from folkmoot.partition.partition import Led
from folkmoot.partition.producer_eviction import ProducerEviction
from folkmoot.store.key import PRODUCER, plain_key, plain_name_of
from folkmoot.store.origin import is_will
from folkmoot.store.producer_row import NUMBER_BYTES, add_number, has_number
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.turn.commit import Commits
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.state import State

__all__ = [
    "FIRST_MAX",
    "JUMP_MAX",
    "PRODUCER_BYTES_MAX",
    "PRODUCER_PROPERTY",
    "SEQUENCE_PROPERTY",
    "Producers",
    "owner_of",
    "owner_part",
]

PRODUCER_BYTES_MAX: Final = 256  # there may be hundreds of thousands of names
PRODUCER_PROPERTY: Final = "folkmoot-producer"
SEQUENCE_PROPERTY: Final = "folkmoot-seq"

# Numbers have 18 digits, and a large one by mistake would use all of them up for ever. Programs number by counters, by
# the time (microseconds: 1.8e15, the milliseconds above 16 bits of a counter: 1.2e17), or by dates (2.0e16). A producer
# that was silent for 30 years may go on in each of these ways.
FIRST_MAX: Final = 1 << 59
JUMP_MAX: Final = 1 << 56

# The first byte of a row's name that has an owner: no UTF-8 text begins with it, so no name of version 0.1 does.
_OWNED: Final = b"\xff"
_OWNER_BYTES: Final = 16
_OWNED_BYTES: Final = 1 + _OWNER_BYTES


def owner_of(username: str, client_id: str) -> bytes:
    """Return what stands before the names of the producers of a user, or of a client id if there is no user name."""
    text = b"u" + username.encode() if username else b"c" + client_id.encode()
    return _OWNED + hashlib.blake2b(text, digest_size=_OWNER_BYTES).digest()


def owner_part(producer: bytes) -> bytes:
    """Return the part of a row's name that all producers of its owner share; empty if it has no owner."""
    return producer[:_OWNED_BYTES] if producer.startswith(_OWNED) else b""


class _Newest:
    """The newest number of a producer in a partition, and the batch that wrote it (0 = it was read).

    row: as it is stored (`store.producer_row`). leadership: in which it was read; in another one it says nothing.
    """

    def __init__(self, row: bytes, leadership: int) -> None:
        self.sequence: int = get_u64(row, 0) if row else -1
        self.row = row
        self.token = 0
        self.leadership = leadership


class Producers:
    """Remembers the newest number per (partition, producer); what is not in memory is in the store."""

    def __init__(self, state: State, led: Led, fabric: Fabric, commits: Commits) -> None:
        self.state = state
        self.led = led
        self.fabric = fabric
        self.commits = commits
        # Both in the order of use, least recent first.
        self._newest: dict[bytes, _Newest] = {}  # by row key
        self._live: dict[bytes, int] = {}  # by producer: the newest that transient sessions got
        self._seen: dict[bytes, int] = {}  # by producer: the newest that its clients have sent to this node
        self._eviction: ProducerEviction | None = None

    def advance(self, partition: int, producer: bytes, sequence: int, late: bool = False) -> bool:
        """Return whether `sequence` is new in this partition; then it is known from now on.

        late: another side has acknowledged it.
        """
        key = plain_key(partition, PRODUCER, producer)
        newest = self._newest.pop(key, None)
        if newest is None or newest.leadership != self.led[partition].leadership:
            newest = self._read(partition, key, producer)
        self._newest[key] = newest
        if sequence <= newest.sequence and (not late or has_number(newest.row, sequence)):
            self.state.counters.producer_duplicates += 1
            return False
        if late or self.fabric.away:
            newest.row = add_number(newest.row, sequence)
        else:
            newest.row = u64(sequence) + newest.row[2 * NUMBER_BYTES :]  # one less: nobody will ask for them any more
        newest.sequence = get_u64(newest.row, 0)
        newest.token = self.state.writer.token
        self.state.writer.put(partition, key, newest.row)
        return True

    def _newest_of(self, partition: int, key: bytes) -> _Newest | None:
        newest = self._newest.get(key)
        memory = self.led.get(partition)
        if newest is None or memory is None or newest.leadership != memory.leadership:
            return None
        return newest

    def _read(self, partition: int, key: bytes, producer: bytes) -> _Newest:
        if len(self._newest) >= self.state.limits.producers_max:
            self._forget_some()
        self.state.counters.producers = len(self._newest) + 1
        row = self._stored(key)
        if not row:
            self._count(partition, producer)
        if producer.startswith(_OWNED):  # with a row of its own too: nodes of both versions may have written for it
            row = max(row, self._stored(plain_key(partition, PRODUCER, producer[_OWNED_BYTES:])))
        return _Newest(row, self.led[partition].leadership)

    def _stored(self, key: bytes) -> bytes:
        value = self.state.reader.get(key)
        return value[VERSION_BYTES:] if value is not None else b""

    def jumps(self, partitions: list[int], producer: bytes, sequence: int) -> str:
        """Return why a number is absurd, "" if it is not: it would make all that the producer sends later a repetition.

        partitions: those that the message goes to and that this node leads. What is known here decides: the number that
        the producer has sent to this node last, or that these partitions have of it.
        """
        last = self._seen.pop(producer, -1)
        if sequence > JUMP_MAX and last < 0:
            last = self._live.get(producer, -1)
            for partition in partitions:
                key = plain_key(partition, PRODUCER, producer)
                newest = self._newest_of(partition, key)
                row = self._stored(key) if newest is None else newest.row
                last = max(last, get_u64(row, 0) if row else -1)
        if len(self._seen) >= self.state.limits.producers_max:
            for oldest in list(self._seen)[: len(self._seen) // 2 + 1]:
                del self._seen[oldest]
        if sequence > JUMP_MAX and (sequence - last > JUMP_MAX if last >= 0 else sequence > FIRST_MAX):
            if last >= 0:
                self._seen[producer] = last
            after = f"after {last}" if last >= 0 else "as a first number"
            return f"{SEQUENCE_PROPERTY} {sequence} {after} is a mistake: numbers grow by at most {JUMP_MAX} at a time"
        self._seen[producer] = max(last, sequence)
        return ""

    def _count(self, partition: int, producer: bytes) -> None:
        owner = owner_part(producer)
        memory = self.led[partition]
        owned = memory.producers_of
        owned[owner] = owned.get(owner, 0) + 1
        memory.producers += 1
        if self._eviction is not None:
            return
        own_max = self.state.accounts.producers_max
        if owner and owned[owner] > own_max:
            self._eviction = ProducerEviction(self.state, partition, owner, own_max)
        elif memory.producers > self.state.limits.producers_max:
            self._eviction = ProducerEviction(self.state, partition, b"", self.state.limits.producers_max)

    def _uncount(self, partition: int, producer: bytes) -> None:
        owner = owner_part(producer)
        memory = self.led[partition]
        owned = memory.producers_of
        memory.producers -= 1
        left = owned.get(owner, 0) - 1
        if left > 0:
            owned[owner] = left
        else:
            owned.pop(owner, None)

    def forget(self, partition: int) -> None:
        """End the leadership of the partition. Its producers in memory are replaced, or evicted as the oldest."""
        if self._eviction is not None and self._eviction.partition == partition:
            self._eviction = None

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
            newest = self._newest_of(eviction.partition, key)
            if newest is None or newest.token <= self.commits.durable_token:
                self._newest.pop(key, None)
                self._uncount(eviction.partition, plain_name_of(key))
                if eviction.owner and not is_will(eviction.owner):
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
