from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.kernel.errors import CorruptStore, SnapshotGone, StoreError
from folkmoot.runtime import commit_log, rocks
from folkmoot.runtime.rocks import RANGE_ROWS, RocksOptions, RocksStore, StoreFull
from folkmoot.store.batch import Batch
from folkmoot.store.key import applied_key
from folkmoot.store.memory import MemoryStore

# Writes batches of random sizes, synced; after each one its number goes to stdout. Killed from outside.
WRITER = """
import os, random, sys
from pathlib import Path
from folkmoot.runtime.rocks import RocksOptions, RocksStore
from folkmoot.store.batch import Batch
folder, seed, sync, memtable = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "sync", int(sys.argv[4])
options = RocksOptions()
options.sync = sync
options.memtable_bytes = memtable
store = RocksStore(folder, options, create=not folder.exists())
rng = random.Random(seed)
number = int(sys.argv[5])
ops = []
while True:
    number += 1
    batch = Batch(number)
    for row in range(3):
        batch.put(b"row" + number.to_bytes(8, "big") + bytes([row]), rng.randbytes(rng.choice((10, 400, 90_000))))
    batch.put(b"last", number.to_bytes(8, "big"))
    store.write([batch])
    ops += batch.ops
    if rng.random() < 0.3:
        store.apply(ops, number)
        ops = []
    sys.stdout.buffer.write(b"%d\\n" % number)
    sys.stdout.buffer.flush()
"""


def options(memtable_bytes: int = 1 << 20) -> RocksOptions:
    result = RocksOptions()
    result.memtable_bytes = memtable_bytes
    return result


def opened(folder: Path, create: bool = False) -> RocksStore:
    return RocksStore(folder, options(), create)


def rows_of(store: RocksStore) -> list[tuple[bytes, bytes]]:
    """All rows but the one in which the store notes how far its log is applied."""
    return [row for row in store.scan(b"", b"\xff", 100_000) if row[0] != applied_key()]


def newest_segment(folder: Path) -> Path:
    return max((folder / "log").glob("*.seg"))


def write(store: RocksStore, batches: list[Batch]) -> None:
    """Write batches, and have their rows at once."""
    store.write(batches)
    store.apply([op for batch in batches for op in batch.ops], batches[-1].token)


def put(store: RocksStore, token: int, *rows: tuple[bytes, bytes]) -> None:
    batch = Batch(token)
    for key, value in rows:
        batch.put(key, value)
    write(store, [batch])


def test_rows_are_read_as_the_store_in_memory_reads_them(tmp_path: Path) -> None:
    rng = random.Random(4)
    store, twin = opened(tmp_path / "s", create=True), MemoryStore()
    keys = [bytes([0, kind]) + rng.randbytes(rng.randint(0, 3)) for kind in range(4) for _ in range(60)]
    token = 0
    for _ in range(40):
        group = []
        for _ in range(rng.randint(1, 3)):
            token += 1
            batch = Batch(token)
            for _ in range(rng.randint(1, 20)):
                choice = rng.random()
                if choice < 0.6:
                    batch.put(rng.choice(keys), rng.randbytes(5))
                elif choice < 0.9:
                    batch.delete(rng.choice(keys))
                else:
                    batch.delete_range(*sorted((rng.choice(keys), rng.choice(keys))))
            group.append(batch)
            twin.apply(batch)
        write(store, group)
        start, end = sorted((rng.choice(keys), rng.choice(keys)))
        start = max(start, b"\0\0b")  # behind the row of the store itself
        end = max(start, end)
        limit = rng.choice((1, 7, 1000))
        assert store.scan(start, end, limit) == twin.scan(start, end, limit)
        assert store.last(start, end) == twin.last(start, end)
        assert store.get(start) == twin.get(start)
    assert twin.items(), "the test must compare something"
    assert rows_of(store) == twin.items()
    store.close()


def test_a_large_range_goes_whole(tmp_path: Path) -> None:
    store = opened(tmp_path / "s", create=True)
    put(store, 1, *[(b"k%05d" % number, b"v") for number in range(RANGE_ROWS + 50)])
    batch = Batch(2)
    batch.put(b"k00003x", b"gone too")
    batch.delete_range(b"k00003", b"k%05d" % (RANGE_ROWS + 40))
    batch.put(b"k00004", b"put after")
    write(store, [batch])
    rows = store.scan(b"k", b"l", 100)
    assert [key for key, _ in rows] == [
        *(b"k%05d" % number for number in (0, 1, 2, 4)),
        *(b"k%05d" % number for number in range(RANGE_ROWS + 40, RANGE_ROWS + 50)),
    ]
    store.close()


def test_a_closed_store_has_everything_when_it_is_opened_again(tmp_path: Path) -> None:
    store = opened(tmp_path / "s", create=True)
    put(store, 1, (b"a", b"1"), (b"b", b"2"))
    store.close()
    store.close()
    store = opened(tmp_path / "s")
    assert rows_of(store) == [(b"a", b"1"), (b"b", b"2")]
    assert store.torn_bytes == 0
    store.reopen()
    assert store.get(b"b") == b"2"
    store.close()


def test_a_store_that_was_closed_is_not_reopened(tmp_path: Path) -> None:
    """It would keep its lock, and the next node in this process could not open it."""
    store = opened(tmp_path / "s", create=True)
    put(store, 1, (b"a", b"1"))
    store.close()
    store.reopen()
    following = opened(tmp_path / "s")
    assert rows_of(following) == [(b"a", b"1")]
    following.close()


def test_a_store_that_could_not_be_reopened_is_when_it_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = opened(tmp_path / "s", create=True)
    put(store, 1, (b"a", b"1"))
    with monkeypatch.context() as patch:
        patch.setattr(rocks, "Rdict", full)
        with pytest.raises(StoreFull):
            store.reopen()
    store.reopen()
    assert rows_of(store) == [(b"a", b"1")]
    store.close()


@pytest.mark.parametrize("sync", ["sync", "os"])
@pytest.mark.parametrize("memtable", [16 << 20, 1 << 18], ids=["one log", "many logs"])
def test_what_was_acknowledged_before_kill_9_is_there(tmp_path: Path, sync: str, memtable: int) -> None:
    folder = tmp_path / "s"
    acknowledged = 0
    rng = random.Random(memtable)
    for seed in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), str(seed), sync, str(memtable), str(acknowledged)],
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        first = b"".join(child.stdout.readline() for _ in range(rng.randint(1, 60)))
        child.kill()
        lines = (first + child.communicate()[0]).split(b"\n")
        # The line after the last newline may itself be torn.
        acknowledged = int(lines[-2])
        store = opened(folder)
        newest = store.get(b"last")
        assert newest is not None
        reached = int.from_bytes(newest, "big")
        assert reached >= acknowledged, "an acknowledged batch is gone"
        assert reached <= acknowledged + 1, "batches that nobody wrote"
        for number in range(1, reached + 1):
            rows = store.scan(b"row" + number.to_bytes(8, "big"), b"row" + (number + 1).to_bytes(8, "big"), 10)
            assert len(rows) == 3, f"batch {number} of {reached} is not whole"
        store.close()
        acknowledged = reached


# Damage


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with tables and a log, as a killed process leaves it."""
    folder = tmp_path_factory.mktemp("crashed") / "s"
    program = """
import os, sys
from pathlib import Path
from folkmoot.runtime.rocks import RocksOptions, RocksStore
from folkmoot.store.batch import Batch
options = RocksOptions()
store = RocksStore(Path(sys.argv[1]), options, create=True)
for number in range(1, 1500):
    batch = Batch(number)
    batch.put(b"k%06d" % number, b"value of %06d" % number * 10)
    store.write([batch])
    store.apply(batch.ops, number)
    if number % 500 == 499:
        store._db.flush()
for number in range(1500, 1506):
    batch = Batch(number)
    batch.put(b"k%06d" % number, b"value of %06d" % number)
    store.write([batch])
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, timeout=60)
    assert list(folder.glob("*.sst"))
    return folder


@pytest.fixture
def damaged(crashed: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "s"
    shutil.copytree(crashed, folder)
    return folder


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x55
    path.write_bytes(data)


def read_all(folder: Path) -> int:
    """Open and read everything; the number of rows."""
    store = RocksStore(folder, options(), create=False)
    try:
        rows = rows_of(store)
        assert all(store.get(key) == value for key, value in rows)
        return len(rows)
    finally:
        store.close()


def test_an_undamaged_store_is_read_whole(damaged: Path) -> None:
    assert read_all(damaged) == 1505


def test_a_flipped_byte_of_the_log_is_noticed(damaged: Path) -> None:
    log = newest_segment(damaged)
    flip(log, log.read_bytes().index(b"value of 001502"))
    data = log.read_bytes()
    with pytest.raises(CorruptStore, match=rf"{log.name} is damaged at byte \d+; nothing was changed.*backup"):
        read_all(damaged)
    assert log.read_bytes() == data


def test_flipped_bytes_of_tables_are_noticed(crashed: Path, tmp_path: Path) -> None:
    rng = random.Random(1)
    tables = sorted(path.name for path in crashed.glob("*.sst"))
    noticed = 0
    for number in range(10):
        folder = tmp_path / str(number)
        shutil.copytree(crashed, folder)
        table = folder / rng.choice(tables)
        flip(table, rng.randrange(table.stat().st_size))
        try:
            rows = read_all(folder)
        except CorruptStore as error:
            text = str(error)
        else:
            assert rows == 1505  # a byte that holds nothing of ours, such as a statistic
            continue
        noticed += 1
        assert table.name in text or "MANIFEST" in text
        assert "backup" in text
        shutil.rmtree(folder, ignore_errors=True)  # RocksDB may still be closing its files
    assert noticed > 5


@pytest.mark.parametrize("pattern", ["*.sst", "CURRENT", "MANIFEST-*", "log/*.seg"])
def test_a_missing_file_is_noticed(damaged: Path, pattern: str) -> None:
    sorted(damaged.glob(pattern))[0].unlink()
    with pytest.raises(CorruptStore, match="backup"):
        read_all(damaged)


def test_salvage_keeps_what_was_written_before_the_damage(damaged: Path) -> None:
    log = newest_segment(damaged)
    data = log.read_bytes()
    flip(log, data.index(b"value of 001504"))
    salvage = options()
    salvage.salvage = True
    store = RocksStore(damaged, salvage, create=False)
    assert len(rows_of(store)) == 1503
    store.close()
    assert read_all(damaged) == 1503  # from then on the store is sound


def test_a_torn_tail_is_cut_and_told(damaged: Path) -> None:
    log = newest_segment(damaged)
    os.truncate(log, log.stat().st_size - 5)
    store = opened(damaged)
    assert store.torn_bytes > 0
    assert len(rows_of(store)) == 1504
    store.close()


def test_a_start_applies_what_the_tables_lack_and_a_stop_leaves_nothing_to_apply(damaged: Path) -> None:
    log = newest_segment(damaged)
    data = log.read_bytes()
    lost = data[: data.index(b"value of 001503")]
    assert read_all(damaged) == 1505
    newest_segment(damaged).unlink()
    log.write_bytes(lost)
    with pytest.raises(CorruptStore, match="damaged"):
        read_all(damaged)  # what is applied was in the log


# Writes rows of a thousand bytes until there are so many segments and tables; then it is gone.
ROLLER = """
import os, sys
from pathlib import Path
from folkmoot.runtime import commit_log
from folkmoot.runtime.rocks import RocksOptions, RocksStore
from folkmoot.store.batch import Batch
commit_log.SEGMENT_BYTES = 50_000
store = RocksStore(Path(sys.argv[1]), RocksOptions(), create=True)
most = 0
for number in range(1, 3000):
    batch = Batch(number)
    batch.put(b"k%06d" % number, b"v" * 1000)
    store.write([batch])
    store.apply(batch.ops, number)
    most = max(most, len(os.listdir(Path(sys.argv[1]) / "log")))
print(most, flush=True)
os._exit(0)
"""


def test_rows_that_are_not_applied_are_left_to_the_node(tmp_path: Path) -> None:
    store = opened(tmp_path / "s", create=True)
    ops: list[tuple[int, bytes, bytes]] = []
    for token in range(1, 6):
        batch = Batch(token)
        batch.put(b"k%d" % token, b"v")
        store.write([batch])
        ops += batch.ops
    store.apply(ops[:3], 3)
    three, five = ([(b"k%d" % token, b"v") for token in range(1, count + 1)] for count in (3, 5))
    assert rows_of(store) == three
    store.reopen()
    assert rows_of(store) == three, "the node has the others, and may take them back"
    store.write([Batch(6)])
    store.apply(ops[3:], 6)
    assert rows_of(store) == five
    store.close()


def test_rows_can_be_applied_again_when_segments_could_not_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 50_000)
    trim = commit_log.CommitLog.trim
    failures = [0]

    def failing(log: commit_log.CommitLog, position: int, spare_bytes: int) -> None:
        failures[0] += 1
        if failures[0] == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        trim(log, position, spare_bytes)

    store = opened(tmp_path / "s", create=True)
    monkeypatch.setattr(commit_log.CommitLog, "trim", failing)
    refused = 0
    for number in range(1, 1000):
        batch = Batch(number)
        batch.put(b"k%06d" % number, b"v" * 1000)
        store.write([batch])
        try:
            store.apply(batch.ops, number)
        except StoreFull:
            refused += 1
            store.reopen()
            store.apply(batch.ops, number)
    assert refused == 1
    assert len(rows_of(store)) == 999
    store.close()


def test_a_store_is_reopened_when_its_log_could_not_be_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While no file can be opened, the tables are closed again, so that the next attempt does not find them locked."""
    store = opened(tmp_path / "store", create=True)
    put(store, 1, (b"row", b"value"))
    replay = commit_log.CommitLog.replay
    attempts = []

    def failing(log: commit_log.CommitLog, position: int) -> Iterator[tuple[list[tuple[int, bytes, bytes]], int]]:
        attempts.append(position)
        if len(attempts) == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return replay(log, position)

    monkeypatch.setattr(commit_log.CommitLog, "replay", failing)
    store.sleep = lambda _s: None
    store.reopen()
    assert len(attempts) == 2
    assert store.get(b"row") == b"value"
    store.close()


def test_rows_that_were_not_applied_come_with_the_next_start(tmp_path: Path) -> None:
    store = opened(tmp_path / "s", create=True)
    for token in range(1, 6):
        batch = Batch(token)
        batch.put(b"k%d" % token, b"v")
        store.write([batch])
    store.apply([(0, b"k1", b"v")], 1)
    store.close()
    store = opened(tmp_path / "s")
    assert rows_of(store) == [(b"k%d" % token, b"v") for token in range(1, 6)]
    store.close()


def test_segments_go_when_tables_have_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 50_000)
    folder = tmp_path / "s"
    done = subprocess.run([sys.executable, "-c", ROLLER, str(folder)], check=True, timeout=60, stdout=subprocess.PIPE)
    assert 1 < int(done.stdout) < 40, "of sixty"
    assert read_all(folder) == 2999
    assert read_all(folder) == 2999
    assert sum(path.stat().st_size for path in (folder / "log").glob("*.seg")) < 110_000, "one segment, and part of one"
    store = opened(folder)
    groups = list(store.logged(40_000))
    store.close()
    assert 35 < len(groups) < 40
    assert [ops[0][1] for ops in groups] == [b"k%06d" % number for number in range(3000 - len(groups), 3000)]


def test_what_the_tables_have_is_not_written_again_and_needs_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log, "SEGMENT_BYTES", 50_000)
    folder = tmp_path / "s"
    store = opened(folder, create=True)
    for number in range(1, 120):
        put(store, number, (b"k%06d" % number, b"v" * 1000))
        assert store.log_bytes() > 1000 * number or number > 40
    store.close()
    store = opened(folder)
    kept = sum(path.stat().st_size for path in (folder / "log").glob("*.seg"))
    assert kept > 60_000
    assert store.log_bytes() < 50_000
    for number in range(120, 400):
        put(store, number, (b"k%06d" % number, b"v" * 1000))
    kept = sum(path.stat().st_size for path in (folder / "log").glob("*.seg"))
    assert store.log_bytes() < kept - 40_000
    store.close()


def test_rows_are_in_one_log_only(tmp_path: Path) -> None:
    store = opened(tmp_path / "s", create=True)
    put(store, 1, (b"a", b"1" * 10_000))
    assert newest_segment(tmp_path / "s").stat().st_size > 10_000
    assert sum(path.stat().st_size for path in (tmp_path / "s").glob("*.log")) == 0
    store.close()


def test_a_store_that_another_process_has_open_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path / "s", create=True)
    with pytest.raises(StoreError, match="cannot use the store"):
        opened(tmp_path / "s")
    store.close()


def test_how_many_bytes_rows_have_is_guessed(tmp_path: Path) -> None:
    store = opened(tmp_path / "store", create=True)
    assert store.bytes_between(b"\0\0", b"\0\4") < 100_000
    rng = random.Random(1)
    for partition in range(4):
        rows = [(bytes([0, partition, 9]) + number.to_bytes(4, "big"), rng.randbytes(1000)) for number in range(2000)]
        put(store, partition + 1, *rows)
    store.reclaim()
    put(store, 9, (b"\0\0\1", bytes(16)))
    store._spans_at = -10.0  # look again
    whole = store.bytes_between(b"\0\0", b"\0\5")
    assert 7_000_000 < whole < 12_000_000
    parts = [store.bytes_between(bytes([0, partition]), bytes([0, partition + 1])) for partition in range(5)]
    assert abs(sum(parts) - whole) < 100
    assert all(part > 10_000 for part in parts[:4]), "each table begins with rows of the node itself"
    assert store.bytes_between(b"\0\7", b"\0\x09") == 0
    store.close()


def test_a_snapshot_shows_what_was_and_ends_with_the_store(tmp_path: Path) -> None:
    store = opened(tmp_path / "store", create=True)
    put(store, 1, *[(b"k%03d" % number, b"old") for number in range(100)])
    snapshot = store.snapshot()
    batch = Batch(2)
    batch.put(b"k000", b"new")
    batch.delete(b"k001")
    batch.delete_range(b"k050", b"k100")
    write(store, [batch])
    rows = snapshot.scan(b"k", b"l", 1000, 1 << 20)
    assert rows == [(b"k%03d" % number, b"old") for number in range(100)]
    assert snapshot.scan(b"k", b"l", 3, 1 << 20) == rows[:3]
    assert snapshot.scan(b"k", b"l", 1000, 8) == rows[:2], "each has seven bytes"
    assert snapshot.scan(b"k", b"l", 1000, 7) == rows[:1]
    store.reclaim()  # memtables to files
    assert snapshot.scan(b"k", b"l", 1000, 1 << 20) == rows
    kept = store.snapshot()
    snapshot.close()
    store.reopen()  # would fail while a snapshot holds the files
    with pytest.raises(SnapshotGone):
        kept.scan(b"k", b"l", 1, 1)
    assert store.get(b"k000") == b"new"
    store.close()
