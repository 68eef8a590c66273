"""The store on RocksDB (through `rocksdict`, raw mode): opening and checking, reading, writing groups of batches.

Owns the files of one store. It never decides when to write and starts no thread: see `commit`. Damage is detected and
refused: every log is read in the strictest mode, sizes of finished logs are verified against the manifest, blocks have
checksums, and the status of every iterator is checked at its end.
"""

from __future__ import annotations

import re
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from folkmoot.kernel.errors import CorruptStore, SnapshotGone, StoreError
from folkmoot.runtime.wal import cut_torn_tail, damaged, find_damage, newest_log
from folkmoot.store.batch import DELETE, DELETE_RANGE, PUT, Batch
from folkmoot.store.reader import Reader, Snapshot

__all__ = ["RocksOptions", "RocksStore", "StoreFull"]

# Options without a setter in rocksdict are set through an options file. Without track_and_verify_wals_in_manifest,
# RocksDB 9.8.4 silently skips a finished log that is missing or truncated, even in the strictest recovery mode.
OPTIONS_FILE: Final = """[Version]
  rocksdb_version=9.8.4
  options_file_version=1.1
[DBOptions]
  track_and_verify_wals_in_manifest=true
[CFOptions "default"]
[TableOptions/BlockBasedTable "default"]
"""
OPTIONS_JSON: Final = '{"raw_mode":true,"prefix_extractors":{}}'

# Range tombstones slow reads down until they are compacted away: with 10,000 of them a read took 180 us, because the
# reader sorts them again after every write. Ranges of at most this many rows are deleted row by row instead.
RANGE_ROWS: Final = 256

SPANS_S: Final = 1.0  # maximum age of the cached sizes of tables
KEY_END: Final = b"\xff" * 16

FULL_WORDS: Final = ("No space left", "Disk quota exceeded", "Max allowed space was reached")
SHORT_WORDS: Final = ("Too many open files",)  # EMFILE; ENFILE adds "in system"
# A read that finds no descriptor for a table is repeated after these pauses. It cannot wait for longer: it is made in
# the loop's thread. The first time the spare descriptors are released.
READ_PAUSES_S: Final = (0.0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.8)


Result = TypeVar("Result")


class StoreFull(StoreError):
    """A write failed because there is no room, or no descriptor; it can be repeated after `reopen`, once there is."""


class DescriptorsGone(StoreFull):
    """No file can be opened: the process, or the whole system, has too many open files."""


class RocksOptions:
    """Options of a store: `sync` waits for the disk at every write, `salvage` drops what follows damage in a log."""

    def __init__(self) -> None:
        self.sync = True
        self.salvage = False
        self.memtable_bytes = 16 << 20  # up to three exist: one is filled while the others are flushed
        self.cache_bytes = 32 << 20  # blocks, indexes and filters of the tables
        self.open_files_max = 256


class RocksStore(Reader):
    """Rows in RocksDB, for one reading and one writing thread; neither may be active during `reopen` and `close`."""

    def __init__(self, folder: Path, options: RocksOptions, create: bool) -> None:
        self.folder = folder
        self.sleep: Callable[[float], None] = time.sleep
        self.relieve: Callable[[], None] = _nothing  # releases descriptors that are kept for this case
        self.torn_bytes = 0  # of an unfinished write, removed when the store was opened
        self._options = options
        self._database_options = database_options(options)
        self._buffered = WriteOptions()
        self._db: Any = None
        self._snapshots: dict[RocksSnapshot, None] = {}
        self._spans: list[tuple[float, float, int]] = []
        self._spans_at = -SPANS_S
        if create:
            folder.mkdir(exist_ok=True)
            self._database_options.create_if_missing(True)
        elif not (folder / "CURRENT").exists():
            raise CorruptStore(f"the store {folder} has lost its file CURRENT; restore the data folder from a backup")
        self._open()

    def _open(self) -> None:
        log = newest_log(self.folder)
        if log is None and (self.folder / "CURRENT").exists():
            raise CorruptStore(
                f"the store {self.folder} has lost its log (*.log); restore the data folder from a backup"
            )
        if log is not None and not self._options.salvage:
            self.torn_bytes = cut_torn_tail(log)
        try:
            # Without the column family, rocksdict opens an existing store with the options of its old options file.
            self._db = Rdict(str(self.folder), self._database_options, {"default": self._database_options})
        except Exception as error:
            raise self._explain(error) from error

    def _explain(self, error: Exception) -> StoreError:
        """Return an error that names the file, the damage and what to do."""
        text = " ".join(str(error).split())
        if any(word in text for word in SHORT_WORDS):
            return DescriptorsGone(
                f"no file can be opened in {self.folder}: {text}; "
                "raise the limit of open files (ulimit -n, LimitNOFILE)"
            )
        if any(word in text for word in FULL_WORDS):
            return StoreFull(f"no room to write in {self.folder}: {text}; free some space on this file system")
        if "Corruption" in text or "No such file" in text:
            if not re.search(r"\.sst|MANIFEST|CURRENT|WAL|log number", text):
                for log in sorted(self.folder.glob("*.log")):
                    if (position := find_damage(log)) >= 0:
                        return damaged(log, position)
            return CorruptStore(
                f"the store {self.folder} is damaged: {text}; nothing was changed. "
                "Restore the data folder from a backup or a replica"
            )
        return StoreError(f"cannot use the store {self.folder}: {text}")

    def _patiently(self, read: Callable[[], Result]) -> Result:
        """Return what `read` returns; repeat it while no file can be opened for it."""
        for pause_s in READ_PAUSES_S:
            try:
                return read()
            except Exception as error:
                fault = error if isinstance(error, StoreError) else self._explain(error)
                if not isinstance(fault, DescriptorsGone):
                    raise fault from error
            self.relieve()
            self.sleep(pause_s)
        try:
            return read()
        except Exception as error:
            raise self._explain(error) from error

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None; raises CorruptStore if its block is damaged."""
        try:
            value: bytes | None = self._db.get(key)
        except Exception:  # noqa: BLE001 - explained there
            value = self._patiently(lambda: self._db.get(key))
        return value

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` rows with start <= key < end, in key order; raises CorruptStore at a damaged block."""
        try:
            return self._scan(start, end, limit)
        except Exception:  # noqa: BLE001 - explained there
            return self._patiently(lambda: self._scan(start, end, limit))

    def _scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        bound = ReadOptions()
        bound.set_iterate_upper_bound(end)
        rows: list[tuple[bytes, bytes]] = []
        # Not `items()`: it ends without an error at a damaged block.
        iterator = self._db.iter(bound)
        iterator.seek(start)
        valid, key, value, following = iterator.valid, iterator.key, iterator.value, iterator.next
        while len(rows) < limit and valid():
            rows.append((key(), value()))
            following()
        iterator.status()
        return rows

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the current rows; `reopen` and `close` close it."""
        return RocksSnapshot(self._db.iter(ReadOptions()), self._snapshots, self._patiently)

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """Return the row with the greatest key in start <= key < end, or None; raises CorruptStore as `scan` does."""
        return self._patiently(lambda: self._last(start, end))

    def _last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        bound = ReadOptions()
        bound.set_iterate_upper_bound(end)
        iterator = self._db.iter(bound)
        iterator.seek_to_last()
        row = (iterator.key(), iterator.value()) if iterator.valid() else None
        iterator.status()
        # Compared here, because rocksdict 0.3.29 ignores a lower bound in `seek_to_last`.
        return None if row is None or row[0] < start else row

    def bytes_between(self, start: bytes, end: bytes) -> int:
        """Estimate the bytes of the rows with start <= key < end from the sizes of tables and memtables."""
        now = time.monotonic()
        if now - self._spans_at > SPANS_S:
            self._spans_at = now
            self._spans = self._look_at_tables()
        low, high = place_of(start), place_of(end)
        total = 0.0
        for first, last, size in self._spans:
            common = min(high, last) - max(low, first)
            if common > 0:
                total += size * common / (last - first)
        return int(total)

    def _look_at_tables(self) -> list[tuple[float, float, int]]:
        """Return the range of keys and the bytes of each table, and of the memtables together."""
        spans: list[tuple[float, float, int]] = []
        for table in self._db.live_files():
            first, last = place_of(bytes(table["start_key"])), place_of(bytes(table["end_key"]))
            spans.append((first, max(last, first + 1e-9), int(table["size"])))
        memory = int(self._db.property_int_value("rocksdb.cur-size-all-mem-tables") or 0)
        newest = self.last(b"", KEY_END)
        end = 0.0 if newest is None else place_of(newest[0])
        spans.append((0.0, max([end, *[span[1] for span in spans]]) + 1e-9, memory))
        return spans

    def write(self, batches: list[Batch]) -> None:
        """Apply batches in order as one atomic write, durable when this returns (with `sync`).

        Raises StoreFull or another StoreError; the batches may then be on disk or not, and the write can be repeated.
        """
        group = WriteBatch(raw_mode=True)
        puts: list[bytes] = []
        try:
            for batch in batches:
                for kind, key, value in batch.ops:
                    if kind == PUT:
                        group.put(key, value)
                        puts.append(key)
                    elif kind == DELETE:
                        group.delete(key)
                    else:
                        assert kind == DELETE_RANGE
                        self._delete_range(group, puts, key, value)
            self._db.write(group, self._buffered)
            if self._options.sync:
                # Not by the write itself: rocksdict holds the GIL while it writes, which would block the loop for as
                # long as the disk takes. It releases the GIL here.
                self._db.flush_wal(True)
        except StoreError:
            raise
        except Exception as error:
            raise self._explain(error) from error

    def _delete_range(self, group: WriteBatch, puts: list[bytes], start: bytes, end: bytes) -> None:
        """Delete a range; if it has few rows, row by row, including those that this group has put."""
        rows = self.scan(start, end, RANGE_ROWS + 1)
        if len(rows) > RANGE_ROWS:
            group.delete_range(start, end)
            return
        for key, _ in rows:
            group.delete(key)
        puts.sort()
        for position in range(bisect_left(puts, start), bisect_left(puts, end)):
            group.delete(puts[position])

    def reopen(self) -> None:
        """Close the store and open it again: RocksDB refuses all writes after one has failed."""
        self._close()
        self._patiently(self._open)

    def reclaim(self) -> None:
        """Flush the memtables: RocksDB then compacts tables full of tombstones, which frees the space of deleted rows.

        Otherwise a queue that was drained keeps its space until other rows have filled a memtable.
        """
        try:
            self._db.flush()
        except Exception:  # noqa: BLE001, S110 - no room for the flush: the next write reports it and is repeated
            pass

    def size_bytes(self) -> int:
        """Return the bytes of all files of the store."""
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())

    def sync(self) -> bool:
        """Wait until all writes are on disk; return whether they are."""
        try:
            self._db.flush_wal(True)
        except Exception:  # noqa: BLE001 - the failure of the disk was reported at the last write
            return False
        return True

    def close(self) -> None:
        """Close the files; idempotent."""
        if self._db is not None:
            self._close()

    def _close(self) -> None:
        for snapshot in list(self._snapshots):  # an open one keeps the folder locked
            snapshot.close()
        database, self._db = self._db, None
        try:
            database.close()
        except Exception:  # noqa: BLE001, S110 - repeats the error of the last write; the files are closed
            pass


class RocksSnapshot(Snapshot):
    """An iterator of RocksDB: it shows the rows as they were when it was created, wherever it is moved.

    Not a snapshot of rocksdict: an iterator on one shows the newest rows (0.3.29). While the iterator is open, RocksDB
    keeps the files and the memtables of that moment.
    """

    def __init__(
        self,
        iterator: Any,
        living: dict[RocksSnapshot, None],
        patiently: Callable[[Callable[[], list[tuple[bytes, bytes]]]], list[tuple[bytes, bytes]]],
    ) -> None:
        self._iterator = iterator
        self._living = living
        self._patiently = patiently
        living[self] = None

    def scan(self, start: bytes, end: bytes, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        """Return rows of the snapshot, see `Snapshot.scan`."""
        if self._iterator is None:
            raise SnapshotGone("the snapshot of the store is closed")
        return self._patiently(lambda: self._scan(start, end, rows_max, bytes_max))

    def _scan(self, start: bytes, end: bytes, rows_max: int, bytes_max: int) -> list[tuple[bytes, bytes]]:
        iterator = self._iterator
        rows: list[tuple[bytes, bytes]] = []
        size = 0
        iterator.seek(start)
        while len(rows) < rows_max and size < bytes_max and iterator.valid():
            key = iterator.key()
            if key >= end:
                break
            value = iterator.value()
            rows.append((key, value))
            size += len(key) + len(value)
            iterator.next()
        iterator.status()
        return rows

    def close(self) -> None:
        """Release the iterator; idempotent."""
        self._iterator = None
        self._living.pop(self, None)


def _nothing() -> None:
    """No descriptors are kept."""


def place_of(key: bytes) -> float:
    """Return the position of a key among all keys: its partition, plus a fraction for its place in the partition."""
    return int.from_bytes(key[:2].ljust(2, b"\0"), "big") + int.from_bytes(key[2:8].ljust(6, b"\0"), "big") / (1 << 48)


def database_options(options: RocksOptions) -> Options:
    """Return the options of RocksDB for a small node: about 100 MB of memory at most, two background threads."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "OPTIONS-000001").write_text(OPTIONS_FILE)
        (Path(folder) / "rocksdict-config.json").write_text(OPTIONS_JSON)
        result, _ = Options.load_latest(folder)
    if options.salvage:
        result.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    else:
        result.set_wal_recovery_mode(DBRecoveryMode.absolute_consistency())
    result.create_if_missing(False)
    result.set_paranoid_checks(True)
    result.set_write_buffer_size(options.memtable_bytes)
    result.set_max_write_buffer_number(3)
    result.set_max_background_jobs(2)
    result.set_max_open_files(options.open_files_max)
    # Short-lived rows (queues) are mostly gone before the second level. Rows that stay (streams, retained messages) are
    # compressed there: a third of the size for about 2 us per row.
    result.set_compression_per_level([DBCompressionType.none(), *[DBCompressionType.lz4()] * 6])
    # A queue leaves tombstones at its head, and every scan steps over them: compact tables that are full of them.
    result.add_compact_on_deletion_collector_factory(8192, 4096, 0.5)
    result.set_bytes_per_sync(1 << 20)
    result.set_keep_log_file_num(2)
    result.set_max_log_file_size(1 << 20)
    result.set_stats_dump_period_sec(0)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(options.cache_bytes))
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_bloom_filter(10, False)
    table.set_block_size(8192)
    result.set_block_based_table_factory(table)
    return result
