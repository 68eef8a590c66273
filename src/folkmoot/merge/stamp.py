"""Stamps: when a session, subscription, will or retained message was written or removed while known nodes were away.

After a split the later of two changes of the same thing wins; rows say who wrote them, not when, and what was removed
says nothing. So while somebody who is known is away, each such change leaves a row STAMP beside it. They go when all
are back. Bounded per partition: beyond it changes leave none and count as older than those with one, and of the stamps
of two sides the oldest go. Only a client
changes its session: a side that has lost its connection, or takes it for lost, lets it rest, and leaves no stamp. What
expires is nobody's change either: it is removed by a range of one row (`Writer.expire`), and ranges leave no stamps.

The time is a hybrid logical clock, one per partition: it follows the clock of its leader, and never goes back when
another one leads (Kulkarni et al.: Logical Physical Clocks, 2014).
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import get_u64, u64
from folkmoot.store.batch import DELETE, PUT, Batch
from folkmoot.store.key import (
    RETAINED,
    SESSION,
    STAMP,
    SUBSCRIPTION,
    WILL,
    end_of,
    kind_prefix,
    stamp_key,
    stamped_key_of,
)
from folkmoot.store.reader import Reader
from folkmoot.store.row import decode_session
from folkmoot.store.writer import VERSION_BYTES, body_of

__all__ = ["STAMPS_MAX", "Stamp", "Stamps", "decode_stamp", "encode_stamp", "read_stamps"]

STAMPS_MAX: Final = 8192
"""Of a partition: about a megabyte in memory and on the disk of each of its replicas."""

_PUBLISHED_MAX: Final = STAMPS_MAX // 2  # no more for retained messages, which also say when they were published
_PAGE_ROWS: Final = 1024
_STAMPED: Final = bytes([SESSION, SUBSCRIPTION, WILL, RETAINED])


class Stamp:
    """When a row was put, and when it was removed last, in microseconds; 0 = not while nodes were away."""

    def __init__(self, put_us: int, gone_us: int) -> None:
        self.put_us = put_us
        self.gone_us = gone_us


def encode_stamp(stamp: Stamp) -> bytes:
    """Return the value of a STAMP row, without its version."""
    return u64(stamp.put_us) + u64(stamp.gone_us)


def decode_stamp(value: bytes) -> Stamp:
    """Read the value of a STAMP row, version included; raises IndexError."""
    return Stamp(get_u64(value, VERSION_BYTES), get_u64(value, VERSION_BYTES + 8))


def read_stamps(reader: Reader, partition: int) -> dict[bytes, Stamp]:
    """Return the stamps of a partition by the keys of their rows; raises CorruptStore."""
    found: dict[bytes, Stamp] = {}
    prefix = kind_prefix(partition, STAMP)
    start = prefix
    while True:
        rows = reader.scan(start, end_of(prefix), _PAGE_ROWS)
        for key, value in rows:
            found[stamped_key_of(key)] = decode_stamp(value)
        if len(rows) < _PAGE_ROWS:
            return found
        start = rows[-1][0] + b"\0"


class Stamps:
    """The stamps of one partition, while this node leads it."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self._stamps: dict[bytes, Stamp] = {}
        self._clock = 0

    def __len__(self) -> int:
        return len(self._stamps)

    def load(self, reader: Reader) -> None:
        """This node begins to lead the partition; raises CorruptStore."""
        self._stamps = read_stamps(reader, self.partition)
        self._clock = max([max(stamp.put_us, stamp.gone_us) for stamp in self._stamps.values()], default=0)

    def began_empty(self) -> bool:
        """Whether the partition was begun from nothing while somebody was away who may have had it."""
        return kind_prefix(self.partition, STAMP)[:2] in self._stamps

    def begin(self, now: int) -> tuple[bytes, bytes]:
        """Note that the partition begins from nothing; return the row to be put."""
        key = kind_prefix(self.partition, STAMP)
        stamp = Stamp(0, now)
        self._stamps[stamped_key_of(key)] = stamp
        return key, encode_stamp(stamp)

    def learn(self, ops: list[tuple[int, bytes, bytes]]) -> None:
        """Take over the stamps of another side of a split, which are among these operations: its clock may be ahead.

        All that are on the disk, so that a later change renews them: a merge keeps to their number as a whole, not at
        every moment.
        """
        for kind, key, value in ops:
            if kind == PUT and key[2] == STAMP:
                self._learn(stamped_key_of(key), decode_stamp(value))
            elif kind == DELETE and key[2] == STAMP:
                self._stamps.pop(stamped_key_of(key), None)

    def _learn(self, key: bytes, stamp: Stamp) -> None:
        if len(key) > 2 and key[2] in _STAMPED:
            self._stamps[key] = stamp
        self._clock = max(self._clock, stamp.put_us, stamp.gone_us)

    def forget(self) -> None:
        """The stamps have been removed."""
        self._stamps = {}

    def note(
        self, batch: Batch, version: bytes, ops: list[tuple[int, bytes, bytes]], now: int
    ) -> list[tuple[int, bytes, bytes]]:
        """Put stamps for these operations into their batch; return the operations that were added."""
        stamps = self._stamps
        now = max(now, self._clock + 1)
        changed: dict[bytes, Stamp] = {}
        for kind, key, value in ops:
            row = key[2]
            if row != SESSION and row != SUBSCRIPTION and row != WILL and row != RETAINED:
                continue
            if row == SESSION and kind == PUT and decode_session(body_of(value)).ends_us:
                continue  # its node lets it rest; whose client has used it last counts
            stamp = stamps.get(key)
            if stamp is None:
                if kind != PUT and kind != DELETE:
                    continue  # it has expired, or is a subscription of a session that goes
                if len(stamps) >= (_PUBLISHED_MAX if row == RETAINED else STAMPS_MAX):
                    continue
                stamp = Stamp(0, 0)
                stamps[key] = stamp
            if kind == PUT:
                stamp.put_us = now
            elif kind == DELETE:
                stamp.gone_us = now
            changed[key] = stamp
        added: list[tuple[int, bytes, bytes]] = []
        for key, stamp in changed.items():
            added.append((PUT, stamp_key(key), version + encode_stamp(stamp)))
        for _kind, key, value in added:
            batch.put(key, value)
        if changed:
            self._clock = now
        return added
