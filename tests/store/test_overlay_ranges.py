"""What removed ranges cost those who read and write: they are found by their keys, and not looked through.

A session that has ended leaves five ranges until they are in the tables, and thousands can end at once.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from folkmoot.store.batch import Batch
from folkmoot.store.key import (
    CURSOR,
    QUEUE,
    RECEIVED,
    RELEASED,
    SENT,
    SESSION,
    SUBSCRIPTION,
    end_of,
    name_prefix,
    numbered_key,
    plain_key,
)
from folkmoot.store.memory import MemoryStore
from folkmoot.store.overlay import Overlay
from folkmoot.store.reader import Reader, Snapshot

SESSIONS = 1_000  # that have ended, of one partition
ROWS = 128
END = b"\0\0\xff"

compared = 0


class Key(bytes):
    """A key that counts how often its place among others is looked for."""

    def __lt__(self, other: bytes) -> bool:
        return self._count(bytes.__lt__(self, other))

    def __le__(self, other: bytes) -> bool:
        return self._count(bytes.__le__(self, other))

    def __gt__(self, other: bytes) -> bool:
        return self._count(bytes.__gt__(self, other))

    def __ge__(self, other: bytes) -> bool:
        return self._count(bytes.__ge__(self, other))

    @staticmethod
    def _count(result: bool) -> bool:
        global compared
        compared += 1
        return result


def comparisons(work: Callable[[], object]) -> int:
    before = compared
    work()
    return compared - before


class Bare(Reader):
    """Tables whose keys count comparisons from when they are read on."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.seeks = 0

    def get(self, key: bytes) -> bytes | None:
        return self.store.get(key)

    def snapshot(self) -> Snapshot:
        return self.store.snapshot()

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        self.seeks += 1
        return [(Key(key), value) for key, value in self.store.scan(bytes(start), bytes(end), limit)]

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        self.seeks += 1
        return self.store.last(bytes(start), bytes(end))


def client_of(number: int) -> bytes:
    return b"%06d" % number


def end_sessions(batch: Batch, clients: range) -> None:
    """Remove what `delivery/purge` removes of sessions that have expired."""
    for number in clients:
        key = client_of(number)
        batch.delete_range(plain_key(0, SESSION, key), plain_key(0, SESSION, key) + b"\0")
        for kind in (SUBSCRIPTION, RECEIVED, RELEASED, CURSOR):
            prefix = name_prefix(0, kind, key)
            batch.delete_range(prefix, end_of(prefix))
        batch.delete(plain_key(0, SENT, key))


def many_ended() -> Overlay:
    """Every second session of a partition has ended, and is not gone from the tables."""
    tables, seed, batch = MemoryStore(), Batch(1), Batch(2)
    for number in range(2 * SESSIONS):
        seed.put(plain_key(0, SESSION, client_of(number)), b"v")
    tables.apply(seed)
    overlay = Overlay(Bare(tables))
    end_sessions(batch, range(0, 2 * SESSIONS, 2))
    overlay.submitted(batch)
    overlay.written(2, 0)
    return overlay


def test_a_row_is_read_in_the_same_time_whatever_was_removed() -> None:
    overlay = many_ended()
    for number in (0, 1, SESSIONS, 2 * SESSIONS - 1):
        key = Key(plain_key(0, SESSION, client_of(number)))
        assert comparisons(lambda key=key: overlay.get(key)) < 32  # type: ignore[misc]
        assert (overlay.get(key) is None) == (number % 2 == 0)


def test_a_page_is_read_in_the_same_time_whatever_was_removed() -> None:
    overlay = many_ended()
    start = plain_key(0, SESSION, b"")
    assert comparisons(lambda: overlay.scan(start, END, ROWS)) < 4 * ROWS * 32
    expected = [plain_key(0, SESSION, client_of(2 * number + 1)) for number in range(ROWS)]
    assert [key for key, _ in overlay.scan(start, END, ROWS)] == expected


@pytest.mark.parametrize("last", [False, True])
def test_a_removed_range_is_not_read_row_by_row(last: bool) -> None:
    tables, seed, batch = MemoryStore(), Batch(1), Batch(2)
    for number in range(10_000):
        seed.put(numbered_key(name_prefix(0, QUEUE, b"c"), number), b"v")
    tables.apply(seed)
    bare = Bare(tables)
    overlay = Overlay(bare)
    prefix = name_prefix(0, QUEUE, b"c")
    batch.delete_range(numbered_key(prefix, 1), numbered_key(prefix, 9_999))
    overlay.submitted(batch)
    overlay.written(2, 0)
    if last:
        assert overlay.last(prefix, numbered_key(prefix, 9_999)) == (numbered_key(prefix, 0), b"v")
    else:
        assert [key for key, _ in overlay.scan(prefix, end_of(prefix), 2)] == [
            numbered_key(prefix, 0),
            numbered_key(prefix, 9_999),
        ]
    assert bare.seeks <= 3


def test_ranges_of_other_partitions_cost_nothing() -> None:
    overlay = many_ended()
    other = Key(plain_key(1, SESSION, client_of(0)))
    assert comparisons(lambda: overlay.get(other)) == 0


def test_a_range_is_removed_without_a_look_at_all_that_waits() -> None:
    """Each of them looked at all rows of its partition that are not in the tables yet."""
    overlay, waiting, batch = Overlay(MemoryStore()), Batch(1), Batch(2)
    for number in range(4_000):
        waiting.put(Key(numbered_key(name_prefix(0, QUEUE, b"other"), number)), b"v")
    end_sessions(batch, range(0, 2 * SESSIONS, 2))
    overlay.submitted(waiting)
    overlay.submitted(batch)
    overlay.written(1, 0)
    assert comparisons(lambda: overlay.written(2, 0)) < 5 * SESSIONS * 32 + 4_000 * 16


def test_neighbours_become_one_range_on_their_way_to_the_tables() -> None:
    overlay, batch = Overlay(MemoryStore()), Batch(1)
    for number in (3, 1, 2):
        prefix = name_prefix(0, SUBSCRIPTION, client_of(number))
        batch.delete_range(prefix, end_of(prefix))
    batch.delete_range(b"\0\0\x02z", b"\0\0\x02z")  # nothing
    overlay.submitted(batch)
    overlay.written(1, 0)
    ops = overlay.hand_over(1, 0)
    assert ops == [(2, name_prefix(0, SUBSCRIPTION, client_of(1)), name_prefix(0, SUBSCRIPTION, client_of(4)))]
