from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from folkmoot.kernel.errors import CorruptStore, SnapshotGone, StoreError
from folkmoot.runtime.rocks import RANGE_ROWS, RocksOptions, RocksStore
from folkmoot.runtime.wal import newest_log
from folkmoot.store.batch import Batch
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
while True:
    number += 1
    batch = Batch(number)
    for row in range(3):
        batch.put(b"row" + number.to_bytes(8, "big") + bytes([row]), rng.randbytes(rng.choice((10, 400, 90_000))))
    batch.put(b"last", number.to_bytes(8, "big"))
    store.write([batch])
    sys.stdout.buffer.write(b"%d\\n" % number)
    sys.stdout.buffer.flush()
"""


def options(memtable_bytes: int = 1 << 20) -> RocksOptions:
    result = RocksOptions()
    result.memtable_bytes = memtable_bytes
    return result


def opened(folder: Path, create: bool = False) -> RocksStore:
    return RocksStore(folder, options(), create)


def put(store: RocksStore, token: int, *rows: tuple[bytes, bytes]) -> None:
    batch = Batch(token)
    for key, value in rows:
        batch.put(key, value)
    store.write([batch])


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
        store.write(group)
        start, end = sorted((rng.choice(keys), rng.choice(keys)))
        limit = rng.choice((1, 7, 1000))
        assert store.scan(start, end, limit) == twin.scan(start, end, limit)
        assert store.last(start, end) == twin.last(start, end)
        assert store.get(start) == twin.get(start)
    assert twin.items(), "the test must compare something"
    assert store.scan(b"", b"\xff", 10_000) == twin.items()
    store.close()


def test_a_large_range_goes_whole(tmp_path: Path) -> None:
    store = opened(tmp_path / "s", create=True)
    put(store, 1, *[(b"k%05d" % number, b"v") for number in range(RANGE_ROWS + 50)])
    batch = Batch(2)
    batch.put(b"k00003x", b"gone too")
    batch.delete_range(b"k00003", b"k%05d" % (RANGE_ROWS + 40))
    batch.put(b"k00004", b"put after")
    store.write([batch])
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
    assert store.scan(b"", b"z", 9) == [(b"a", b"1"), (b"b", b"2")]
    assert store.torn_bytes == 0
    store.reopen()
    assert store.get(b"b") == b"2"
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
options.sync = False
store = RocksStore(Path(sys.argv[1]), options, create=True)
for number in range(1, 1500):
    batch = Batch(number)
    batch.put(b"k%06d" % number, b"value of %06d" % number * 10)
    store.write([batch])
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
        rows = store.scan(b"", b"\xff", 100_000)
        assert all(store.get(key) == value for key, value in rows)
        return len(rows)
    finally:
        store.close()


def test_an_undamaged_store_is_read_whole(damaged: Path) -> None:
    assert read_all(damaged) == 1505


def test_every_flipped_byte_of_the_log_is_noticed(crashed: Path, tmp_path: Path) -> None:
    name = newest_log(crashed)
    assert name is not None
    size = name.stat().st_size
    assert 200 < size < 1000
    for position in range(0, size, 5):
        folder = tmp_path / str(position)
        shutil.copytree(crashed, folder)
        flip(folder / name.name, position)
        with pytest.raises(CorruptStore, match=rf"{name.name} is damaged at byte \d+; nothing was changed.*backup"):
            read_all(folder)
        shutil.rmtree(folder, ignore_errors=True)  # RocksDB may still be closing its files


def test_the_length_bytes_of_the_log_are_noticed(crashed: Path, tmp_path: Path) -> None:
    """RocksDB itself takes a record with a longer length for torn, and what follows it is gone without a word."""
    name = newest_log(crashed)
    assert name is not None
    data = name.read_bytes()
    position = 0
    while position < len(data):
        folder = tmp_path / str(position)
        shutil.copytree(crashed, folder)
        flip(folder / name.name, position + 5)
        with pytest.raises(CorruptStore, match=f"{name.name} is damaged at byte {position};"):
            read_all(folder)
        position += 7 + int.from_bytes(data[position + 4 : position + 6], "little")
    assert position == len(data)


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


@pytest.mark.parametrize("pattern", ["*.sst", "CURRENT", "MANIFEST-*", "*.log"])
def test_a_missing_file_is_noticed(damaged: Path, pattern: str) -> None:
    sorted(damaged.glob(pattern))[0].unlink()
    with pytest.raises(CorruptStore, match="backup"):
        read_all(damaged)


def test_a_finished_log_that_lost_its_end_or_vanished_is_noticed(tmp_path: Path) -> None:
    """Several logs are needed at once when tables lag behind; RocksDB skips a short or missing one in silence."""
    program = """
import os, sys
from pathlib import Path
from folkmoot.runtime.rocks import RocksOptions, RocksStore, database_options
from folkmoot.store.batch import Batch
from rocksdict import Rdict
store = RocksStore(Path(sys.argv[1]), RocksOptions(), create=True)
store.close()
raw = database_options(RocksOptions())
raw.set_write_buffer_size(100_000)
raw.set_max_write_buffer_number(20)
raw.set_min_write_buffer_number_to_merge(10)
store._db = Rdict(sys.argv[1], raw, {"default": raw})
for number in range(1, 500):
    batch = Batch(number)
    batch.put(b"k%06d" % number, b"v" * 900)
    store.write([batch])
os._exit(0)
"""
    folder = tmp_path / "s"
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, timeout=60)
    logs = sorted(folder.glob("*.log"))
    assert len(logs) >= 3
    short, gone = tmp_path / "short", tmp_path / "gone"
    shutil.copytree(folder, short)
    shutil.copytree(folder, gone)
    os.truncate(short / logs[1].name, 7)
    with pytest.raises(CorruptStore, match="WAL"):
        read_all(short)
    (gone / logs[0].name).unlink()
    with pytest.raises(CorruptStore, match="WAL"):
        read_all(gone)
    assert read_all(folder) == 499


def test_salvage_keeps_what_was_written_before_the_damage(damaged: Path) -> None:
    log = newest_log(damaged)
    assert log is not None
    flip(log, log.stat().st_size - 3)
    salvage = options()
    salvage.salvage = True
    store = RocksStore(damaged, salvage, create=False)
    assert len(store.scan(b"", b"\xff", 100_000)) == 1504
    store.close()
    assert read_all(damaged) == 1504  # from then on the store is sound


def test_a_torn_tail_is_cut_and_told(damaged: Path) -> None:
    log = newest_log(damaged)
    assert log is not None
    os.truncate(log, log.stat().st_size - 5)
    store = opened(damaged)
    assert store.torn_bytes > 0
    assert len(store.scan(b"", b"\xff", 100_000)) == 1504
    store.close()


def test_a_store_that_another_process_has_open_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path / "s", create=True)
    with pytest.raises(StoreError, match="cannot use the store"):
        opened(tmp_path / "s")
    store.close()


class Recorder:
    """Stands before the database and notes the calls that write."""

    def __init__(self, database: Any) -> None:
        self.database = database
        self.calls: list[str] = []

    def write(self, *arguments: Any) -> None:
        self.calls.append("write")
        self.database.write(*arguments)

    def flush_wal(self, sync: bool) -> None:
        self.calls.append("sync" if sync else "flush")
        self.database.flush_wal(sync)

    def close(self) -> None:
        self.database.close()


@pytest.mark.parametrize("sync", [True, False])
def test_the_log_is_on_the_disk_when_a_write_returns_if_that_is_wanted(tmp_path: Path, sync: bool) -> None:
    wishes = options()
    wishes.sync = sync
    store = RocksStore(tmp_path / "store", wishes, create=True)
    recorder = store._db = Recorder(store._db)
    put(store, 1, (b"a", b"1"))
    put(store, 2, (b"b", b"2"))
    assert recorder.calls == (["write", "sync", "write", "sync"] if sync else ["write", "write"])
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
    assert all(part > 1_000_000 for part in parts[:3])
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
    store.write([batch])
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
