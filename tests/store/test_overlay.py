"""Rows in front of the tables: whatever is written, applied or taken back, a node reads what it would read without."""

from __future__ import annotations

from folkmoot.kernel.rng import Rng
from folkmoot.store.batch import Batch
from folkmoot.store.memory import MemoryStore
from folkmoot.store.overlay import Overlay
from folkmoot.store.writer import VERSION_BYTES, Writer, version_of

PARTITIONS = 3
END = b"\xff" * 9


def key_of(partition: int, kind: int, number: int) -> bytes:
    return bytes([0, partition, kind, number])


class Pair:
    """An overlay on tables, and beside it a store that has every batch as soon as it is written."""

    def __init__(self, seed: int) -> None:
        self.rng = Rng(seed)
        self.of_ranges = 1 + seed % 3 * 2  # of 8 changes
        self.tables = MemoryStore()
        self.overlay = Overlay(self.tables)
        self.twin = MemoryStore()
        self.writer = Writer(PARTITIONS, 1)
        self.unwritten: list[Batch] = []
        self.ops: list[tuple[int, bytes, bytes]] = []
        self.now = 0
        self.applied_token = 0
        self.everything = MemoryStore()  # what was sealed, written or not
        self.sealed: dict[int, tuple[list[tuple[bytes, bytes]], tuple[int, int]]] = {}  # partition 1 before a batch

    def key(self) -> bytes:
        return key_of(self.rng.below(PARTITIONS), 1 + self.rng.below(2), self.rng.below(6))

    def change(self) -> None:
        """Put, remove, or remove a range, in the batch that is being filled."""
        key, what = self.key(), self.rng.below(8)
        if what < self.of_ranges:
            end = key_of(key[1], 1 + self.rng.below(3), self.rng.below(6))
            self.writer.delete_range(key[1], min(key, end), max(key, end))
        elif what == self.of_ranges:
            self.writer.expire(key[1], key)
        elif what == self.of_ranges + 1:
            self.writer.delete(key[1], key)
        else:
            self.writer.put(key[1], key, bytes([self.rng.below(256)]))

    def seal(self) -> None:
        batch = self.writer.take()
        if batch is not None:
            self.overlay.submitted(batch)
            self.unwritten.append(batch)
            self.everything.apply(batch)
        self.sealed[self.writer.token] = (self.everything.scan(b"\0\1", b"\0\2", 1000), self.writer.position(1))

    def write(self) -> None:
        count = self.rng.below(len(self.unwritten) + 1)
        for batch in self.unwritten[:count]:
            self.twin.apply(batch)
        if count:
            self.overlay.written(self.unwritten[count - 1].token, self.now)
            del self.unwritten[:count]

    def apply(self) -> None:
        if self.overlay.applying_token:
            batch = Batch(1)
            batch.ops = self.ops
            self.tables.apply(batch)
            self.overlay.applied()
        else:
            self.ops = self.overlay.hand_over(self.rng.below(self.writer.token + 1), self.now)
            self.applied_token = max(self.applied_token, self.overlay.applying_token)

    def check(self) -> None:
        overlay, twin = self.overlay, self.twin
        for start, end in ((b"", END), tuple(sorted((self.key(), self.key()))), (b"\0\1", b"\0\2")):
            for limit in (1, 3, 100):
                assert overlay.scan(start, end, limit) == twin.scan(start, end, limit)
            assert overlay.last(start, end) == twin.last(start, end)
        key = self.key()
        assert overlay.get(key) == twin.get(key)

    def step(self) -> None:
        self.now += 1
        what = self.rng.below(6)
        if what < 2:
            self.change()
        else:
            (self.seal, self.write, self.apply, self.check)[what - 2]()


def pair_after(seed: int, steps: int) -> Pair:
    pair = Pair(seed)
    for _ in range(steps):
        pair.step()
    return pair


def test_a_node_reads_what_it_would_read_of_tables_that_have_everything() -> None:
    applied = 0
    for seed in range(150):
        pair = pair_after(seed, 150)
        pair.check()
        applied += len(pair.tables.items())
    assert applied, "rows reach the tables"


def test_a_snapshot_does_not_change() -> None:
    for seed in range(60):
        pair = pair_after(seed, 80)
        snapshot, rows = pair.overlay.snapshot(), pair.twin.items()
        for _ in range(40):
            pair.step()
        for rows_max, bytes_max in ((1, 1000), (4, 40), (1000, 100_000)):
            found: list[tuple[bytes, bytes]] = []
            start = b""
            while page := snapshot.scan(start, END, rows_max, bytes_max):
                assert len(page) <= rows_max
                size = sum([len(key) + len(value) for key, value in page])
                assert size - len(page[-1][0]) - len(page[-1][1]) < bytes_max
                found.extend(page)
                start = page[-1][0] + b"\0"
                assert len(page) == rows_max or size >= bytes_max or page[-1] == rows[-1], "a short page is the last"
            assert found == rows
        for _ in range(8):
            start, end = sorted((pair.key(), pair.key()))
            assert snapshot.scan(start, end, 1000, 100_000) == [row for row in rows if start <= row[0] < end]
        snapshot.close()


def test_what_is_taken_back_was_never_there() -> None:
    """`undo` restores every row of the partition as it was before a batch, and the version of its newest change."""
    undone = 0
    for seed in range(200):
        pair = pair_after(seed, 100)
        pair.seal()
        for token, (rows, position) in pair.sealed.items():
            undo = pair.overlay.undo(1, token)
            if undo is None or token <= pair.applied_token:
                continue
            now, batch = pair.everything.copy(), Batch(1)
            batch.ops = undo.ops
            now.apply(batch)
            assert now.scan(b"\0\1", b"\0\2", 1000) == rows, (seed, token)
            assert version_of(undo.version) == position
            undone += 1
    assert undone > 100


def test_changes_that_nobody_has_sealed_are_dropped() -> None:
    writer = Writer(PARTITIONS, 1)
    for partition in (0, 1):
        writer.put(partition, key_of(partition, 1, 1), b"old")
    writer.take()
    writer.put(0, key_of(0, 1, 1), b"a")
    writer.raw([(0, key_of(2, 1, 1), bytes(VERSION_BYTES) + b"r")], 20)
    writer.put(1, key_of(1, 1, 1), b"b")
    writer.put(0, key_of(0, 1, 2), b"c")
    writer.drop({0: True})
    assert writer.position(0) == (1, 1)
    assert writer.position(1) == (1, 2)
    writer.put(0, key_of(0, 1, 3), b"d")
    batch = writer.take()
    assert batch is not None
    assert [key for _, key, _ in batch.ops] == [key_of(2, 1, 1), key_of(1, 1, 1), key_of(0, 1, 3)]
    assert writer.raw_ranges == [0, 1]
    assert [(partition, version_of(before), index) for partition, before, index in batch.begins] == [
        (1, (1, 1), 1),
        (0, (1, 1), 2),
    ]
    assert batch.bytes == sum([len(key) + len(value) for _, key, value in batch.ops]) + 20 - 4 - 17
    assert version_of(batch.ops[2][2]) == (1, 2)
