"""A stream partition by example: bounds, pages, retention, restarts, damage."""

from __future__ import annotations

import struct

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.errors import CorruptStore, StoreError
from folkmoot.store.batch import Batch
from folkmoot.store.chunk import CHUNK_BYTES_MAX, decode_chunk, decode_head
from folkmoot.store.memory import MemoryStore
from folkmoot.store.record import encode_record
from folkmoot.store.writer import VERSION_BYTES, Writer
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.log import TRIM_ROWS, StreamLog
from folkmoot.streams.page import OffsetAhead, OffsetGone, Page

START = 1_700_000_000 * SECOND


class Bench:
    """A log on a store in memory, with batches that are applied when told."""

    def __init__(self, retention_us: int = 0, retention_bytes: int = 0) -> None:
        self.store = MemoryStore()
        self.config = StreamConfig("s", b"#", 4, retention_us, retention_bytes)
        self.epoch = 0
        self.now = START
        self.open()

    def open(self) -> None:
        self.epoch += 1
        self.writer = Writer(16, self.epoch)
        self.log = StreamLog(self.config, 2, 7, self.store)
        self.log.open()

    def append(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.log.append(encode_record(b"t", payload, 1, False, b"me", b""), self.now)

    def turn(self, *payloads: bytes) -> None:
        self.append(*payloads)
        self.log.flush(self.writer)
        self.apply(self.writer.take())
        self.log.committed(self.log.next_offset)

    def apply(self, batch: Batch | None) -> None:
        if batch is not None:
            self.store.apply(batch)

    def trim(self) -> bool:
        more = self.log.trim(self.now, self.writer)
        self.apply(self.writer.take())
        return more

    def page(self, start: int, end: int = 1 << 62, bytes_max: int = 1 << 30) -> Page:
        page = self.log.read(start, end, bytes_max)
        assert isinstance(page, Page)
        return page

    def payloads(self, start: int, end: int = 1 << 62) -> list[bytes]:
        return [
            entry.record.payload
            for chunk in self.page(start, end).chunks
            for entry in decode_chunk(chunk)
            if start <= entry.offset < end
        ]

    def keys(self) -> list[bytes]:
        return [key for key, _ in self.store.items() if key[2] == 10]


def test_offsets_are_dense_and_readable_after_commit_only() -> None:
    bench = Bench()
    bench.append(b"a", b"b")
    assert bench.log.next_offset == 2
    assert bench.log.readable_end == 0
    assert bench.page(0).chunks == []
    bench.log.flush(bench.writer)
    bench.apply(bench.writer.take())
    assert bench.page(0).chunks == []
    bench.log.committed(2)
    assert bench.payloads(0) == [b"a", b"b"]


def test_a_chunk_is_cut_at_the_readable_end() -> None:
    bench = Bench()
    bench.turn(b"a")
    bench.append(b"b")
    bench.log.flush(bench.writer)
    bench.apply(bench.writer.take())  # in the store, in one chunk with b"a", but not committed
    assert len(bench.keys()) == 1
    assert bench.payloads(0) == [b"a"]
    assert bench.page(1).chunks == []


def test_bounds_are_values() -> None:
    bench = Bench(retention_us=SECOND)
    bench.turn(b"a")
    ahead = bench.log.read(2, 9, 100)
    assert isinstance(ahead, OffsetAhead)
    assert ahead.next == 1
    bench.now += 2 * SECOND
    bench.trim()
    gone = bench.log.read(0, 9, 100)
    assert isinstance(gone, OffsetGone)
    assert gone.oldest == 1


def test_small_turns_become_few_chunks() -> None:
    bench = Bench()
    for number in range(1000):
        bench.turn(b"%d" % number)
    assert len(bench.keys()) < 16
    assert bench.payloads(0) == [b"%d" % number for number in range(1000)]


def test_a_large_turn_is_split_and_a_huge_record_is_alone() -> None:
    bench = Bench()
    bench.turn(*[bytes(1000)] * 1000, bytes(3 * CHUNK_BYTES_MAX), b"last")
    lengths = [len(value) for key, value in bench.store.items() if key[2] == 10]
    assert sum(length > CHUNK_BYTES_MAX + 100 for length in lengths) == 1
    assert len(lengths) >= 5
    assert bench.payloads(1000) == [bytes(3 * CHUNK_BYTES_MAX), b"last"]


def test_a_page_is_bounded_but_never_empty() -> None:
    bench = Bench()
    for _ in range(20):
        bench.turn(bytes(40_000))
    page = bench.page(0, bytes_max=1)
    assert len(page.chunks) == 1
    page = bench.page(page.next_offset, bytes_max=100_000)
    assert 2 <= len(page.chunks) <= 3
    assert bench.page(3, end=7).next_offset == 7


def test_times_never_go_backwards_also_after_a_restart() -> None:
    bench = Bench()
    bench.turn(b"a")
    bench.now -= 60 * SECOND
    bench.turn(b"b")
    bench.open()
    bench.turn(b"c")
    times = [entry.time_us for chunk in bench.page(0).chunks for entry in decode_chunk(chunk)]
    assert times == [START, START, START]


def test_offsets_are_not_reused_after_everything_went() -> None:
    bench = Bench(retention_us=SECOND)
    bench.turn(b"a", b"b", b"c")
    bench.now += 5 * SECOND
    bench.trim()
    assert bench.keys() == []
    assert (bench.log.oldest, bench.log.next_offset, bench.log.bytes) == (3, 3, 0)
    bench.open()
    assert (bench.log.oldest, bench.log.readable_end, bench.log.bytes) == (3, 3, 0)
    bench.turn(b"d")
    assert bench.payloads(3) == [b"d"]


def test_retention_by_size_keeps_the_newest_chunk_and_works_in_steps() -> None:
    bench = Bench(retention_bytes=100_000)
    for _ in range(30):
        bench.turn(bytes(40_000))
    assert bench.trim()
    assert bench.log.oldest == TRIM_ROWS
    while bench.trim():
        pass
    assert (bench.log.oldest, len(bench.keys())) == (28, 2)
    assert bench.log.bytes == sum(len(value) - 16 for key, value in bench.store.items() if key[2] == 10)
    bench.turn(bytes(500_000))
    bench.trim()
    assert (bench.log.oldest, bench.log.next_offset) == (30, 31)


def test_retention_waits_for_a_rewrite_that_is_on_its_way() -> None:
    bench = Bench(retention_us=SECOND)
    bench.turn(b"a")
    bench.now += 5 * SECOND
    bench.append(b"b")
    bench.log.flush(bench.writer)
    on_its_way = bench.writer.take()
    assert not bench.trim()  # the store still shows the old row of b"a", which will hold b"b" too
    bench.apply(on_its_way)
    bench.log.committed(2)
    assert bench.payloads(0) == [b"a", b"b"]


def test_retention_waits_for_a_rewrite_also_when_a_large_chunk_follows() -> None:
    bench = Bench(retention_us=SECOND)
    bench.turn(b"a")
    on_their_way = []
    for payload in (b"b", bytes(100_000)):
        bench.append(payload)
        bench.log.flush(bench.writer)
        on_their_way.append(bench.writer.take())
    bench.now += 5 * SECOND
    bench.log.trim(bench.now, bench.writer)
    for batch in [*on_their_way, bench.writer.take()]:
        bench.apply(batch)
    bench.log.committed(3)
    assert bench.payloads(bench.log.oldest) == [b"a", b"b", bytes(100_000)]


def test_what_retention_removed_does_not_come_back_with_later_records() -> None:
    bench = Bench(retention_bytes=1)
    bench.turn(bytes(3_000))
    bench.turn(b"small")
    bench.trim()
    oldest = bench.log.oldest
    bench.turn(bytes(2_000))
    assert bench.log.oldest == oldest
    bench.open()
    assert bench.log.oldest == oldest


def test_offset_by_time() -> None:
    bench = Bench()
    for number in range(200):
        bench.now = START + number * SECOND
        bench.turn(bytes(5_000), b"x")
    log = bench.log
    assert log.offset_at(0) == 0
    assert log.offset_at(START + 50 * SECOND) == 100
    assert log.offset_at(START + 50 * SECOND + 1) == 102
    assert log.offset_at(START + 199 * SECOND) == 398
    assert log.offset_at(START + 200 * SECOND) == 400


def test_a_damaged_newest_chunk_is_named_on_open() -> None:
    bench = Bench()
    bench.turn(b"hello world")
    (key,) = bench.keys()
    value = bytearray(bench.store.get(key) or b"")
    value[-3] ^= 1
    batch = Batch(99)
    batch.put(key, bytes(value))
    bench.apply(batch)
    with pytest.raises(CorruptStore, match="stream s partition 2, offset 0: the checksum"):
        bench.open()


def test_a_missing_chunk_is_named() -> None:
    bench = Bench()
    for _ in range(5):
        bench.turn(bytes(40_000))
    batch = Batch(99)
    batch.delete(bench.keys()[2])
    bench.apply(batch)
    with pytest.raises(CorruptStore, match="stream s partition 2, offset 2: there is no chunk"):
        bench.page(0)


def misplace(bench: Bench, first: int, damage: int) -> None:
    """Let the chunk whose first offset is `first`, in a row of its own, say that it begins at `first` ^ `damage`."""
    (key,) = filter(lambda key: key.endswith(struct.pack(">Q", first)), bench.keys())
    value = bytearray(bench.store.get(key) or b"")
    struct.pack_into("<Q", value, VERSION_BYTES + 16, first ^ damage)
    batch = Batch(99)
    batch.put(key, bytes(value))
    bench.apply(batch)


@pytest.mark.parametrize("damage", [1, 2, 4, 1 << 40])
def test_a_chunk_that_says_that_it_begins_elsewhere_is_named(damage: int) -> None:
    bench = Bench()
    for _ in range(5):
        bench.turn(bytes(40_000))
    misplace(bench, 2, damage)
    with pytest.raises(CorruptStore, match=f"offset 2: the chunk there claims to begin at {2 ^ damage}"):
        bench.log.read(2, 5, 10)
    with pytest.raises(CorruptStore, match=f"offset 2: the chunk there claims to begin at {2 ^ damage}"):
        bench.log.offset_at(START)


@pytest.mark.parametrize("damage", [1, 2, 1 << 40])
def test_retention_does_not_move_on_to_where_a_damaged_chunk_says_that_it_ends(damage: int) -> None:
    bench = Bench(retention_bytes=50_000)
    bench.turn(bytes(40_000))
    bench.turn(bytes(40_000))
    bench.trim()
    for _ in range(3):
        bench.turn(bytes(40_000))
    assert bench.log.oldest == 1
    misplace(bench, 1, damage)
    with pytest.raises(CorruptStore, match=f"offset 1: the chunk there claims to begin at {1 ^ damage}"):
        bench.trim()
    assert bench.log.oldest == 1


@pytest.mark.parametrize("damage", [1, 2, 1 << 40])
def test_an_oldest_chunk_that_says_that_it_begins_elsewhere_is_named_on_open(damage: int) -> None:
    bench = Bench(retention_bytes=50_000)
    bench.turn(bytes(40_000))
    bench.turn(bytes(40_000))
    bench.trim()
    bench.turn(bytes(40_000))
    misplace(bench, 1, damage)
    with pytest.raises(CorruptStore, match=f"offset 1: the chunk there claims to begin at {1 ^ damage}"):
        bench.open()


def test_records_missing_at_the_end_are_found_on_open() -> None:
    bench = Bench(retention_bytes=100_000)
    for _ in range(5):
        bench.turn(bytes(40_000))
    bench.trim()
    batch = Batch(99)
    batch.delete(bench.keys()[-1])
    bench.apply(batch)
    with pytest.raises(CorruptStore, match="the newest chunk ends at 4, records up to 5 were there"):
        bench.open()


def test_fewer_partitions_than_on_disk_are_refused_and_more_accepted() -> None:
    bench = Bench()
    bench.turn(b"a")
    bench.config.partitions = 8
    bench.open()
    bench.turn(b"b")
    bench.config.partitions = 4
    with pytest.raises(StoreError, match="8 partitions on disk and 4"):
        bench.open()


def test_bounds_of_another_length_are_named() -> None:
    bench = Bench()
    bench.turn(b"a")
    (key,) = [key for key, _ in bench.store.items() if key[2] == 11]
    batch = Batch(99)
    batch.put(key, bytes(20))
    bench.apply(batch)
    with pytest.raises(CorruptStore, match="stream s partition 2"):
        bench.open()


def test_times_of_the_range() -> None:
    bench = Bench(retention_bytes=1)
    assert (bench.log.oldest_time_us, bench.log.latest_time_us) == (None, None)
    for _ in range(3):
        bench.turn(bytes(40_000))
        bench.now += SECOND
    assert (bench.log.oldest_time_us, bench.log.latest_time_us) == (START, START + 2 * SECOND)
    bench.trim()
    assert bench.log.oldest_time_us == START + 2 * SECOND


def test_positions_are_contiguous() -> None:
    bench = Bench()
    for size in (10, 10, 50_000, 10, 300, 10, 300_000, 5):
        bench.turn(bytes(size))
    position = 0
    for key, value in bench.store.items():
        if key[2] == 10:
            head = decode_head(value, 16)
            assert head is not None
            assert head.position == position
            position += head.length
    assert bench.log.bytes == position
