"""The store: rows in RocksDB (through `rocksdict`, raw mode), and the commit log in front of it.

Owns the files of one store. It never decides when to write and starts no thread: see `commit`. A group of batches is
durable when it is in the commit log. Its rows follow when they are committed, without RocksDB's own log and in the same
write as the position up to which the log is applied; a start applies what the tables lack. A segment of the log goes
when the tables have it, and as many bytes behind it as a segment has. Damage is detected and refused: frames and blocks
have checksums, and the status of every iterator is checked at its end.
"""

from __future__ import annotations

import errno
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from folkmoot.kernel.errors import CorruptStore, SnapshotGone, StoreError
from folkmoot.kernel.pack import get_u64, u64
from folkmoot.runtime import commit_log
from folkmoot.runtime.commit_log import CommitLog
from folkmoot.store.batch import DELETE, DELETE_RANGE, PUT, Batch
from folkmoot.store.key import applied_key
from folkmoot.store.reader import Reader, Snapshot
from folkmoot.store.writer import VERSION_BYTES

__all__ = ["RocksOptions", "RocksStore", "StoreFull", "database_options"]

# Range tombstones slow reads down until they are compacted away: with 10,000 of them a read took 180 us, because the
# reader sorts them again after every write. Ranges of at most this many rows are deleted row by row instead.
RANGE_ROWS: Final = 256

SPANS_S: Final = 1.0  # maximum age of the cached sizes of tables
KEY_END: Final = b"\xff" * 16

_EVERYTHING: Final = 1 << 62
REPLAY_BYTES: Final = 1 << 20  # of the log, that one write applies at a start
TABLES_EVERY: Final = 64  # writes between two looks whether the tables have what a segment had

FULL_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT)
SHORT_ERRORS: Final = (errno.EMFILE, errno.ENFILE)
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
    """Options of a store: `sync` waits for the disk at every write, `salvage` drops what follows damage in the log."""

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
        self.torn_bytes = 0  # of an unfinished write, found when the store was opened
        self._options = options
        self._database_options = database_options(options)
        self._unlogged = unlogged()
        self._db: Any = None
        self._closed = False  # for good
        self._log = CommitLog(folder / "log", options.sync, options.salvage)
        self._applied_key = applied_key()
        self._positions: deque[tuple[int, int]] = deque()  # of writes: the newest token, the position behind it
        self._applied = 0  # the position up to which the rows are applied
        self._in_tables = 0  # up to which tables are known to have them
        self._segments = 1  # of the log, when its rows were last sent to tables; the first one has none before it
        self._flushing = -1  # the position up to which they were sent, until they are there
        self._until_look = TABLES_EVERY
        self._snapshots: dict[RocksSnapshot, None] = {}
        self._spans: list[tuple[float, float, int]] = []
        self._spans_at = -SPANS_S
        self._creates = create
        if create:
            folder.mkdir(exist_ok=True)
            self._database_options.create_if_missing(True)
        elif not (folder / "CURRENT").exists():
            raise CorruptStore(f"the store {folder} has lost its file CURRENT; restore the data folder from a backup")
        self._open(_EVERYTHING)

    def _open(self, until: int) -> None:
        try:
            # Without the column family, rocksdict opens an existing store with the options of its old options file.
            self._db = Rdict(str(self.folder), self._database_options, {"default": self._database_options})
            if self._creates:
                self._log.create()
                self._creates = False
            self._replay(until)
        except Exception as error:
            self._close()  # what is open would keep the folder locked
            if isinstance(error, StoreError):
                raise
            raise self._explain(error) from error

    def _replay(self, until: int) -> None:
        """Apply what the log has up to a position, and the tables lack."""
        value = self._db.get(self._applied_key)
        in_tables = self._in_tables = 0 if value is None else get_u64(value, VERSION_BYTES)
        group = Batch(0)
        applied = position = in_tables
        for ops, end in self._log.replay(in_tables):
            if end > until:
                continue  # not applied: the node has these rows, and says when
            position = end
            group.ops.extend(ops)
            if position - applied >= REPLAY_BYTES:
                self._change_rows(group.ops, position)
                applied = position
                group = Batch(0)
        if position > applied:
            self._change_rows(group.ops, position)
        self._applied = position
        self.torn_bytes = self._log.torn_bytes
        self._trim(in_tables)

    def _trim(self, position: int) -> None:
        """Remove segments of the log whose rows are in the tables, but keep what other nodes may lack (`logged`)."""
        self._log.trim(position, commit_log.SEGMENT_BYTES)

    def _explain(self, error: Exception) -> StoreError:
        """Return an error that names the file, the damage and what to do."""
        text = " ".join(str(error).split())
        number = error.errno if isinstance(error, OSError) else 0
        if number in SHORT_ERRORS or any(word in text for word in SHORT_WORDS):
            return DescriptorsGone(
                f"no file can be opened in {self.folder}: {text}; "
                "raise the limit of open files (ulimit -n, LimitNOFILE)"
            )
        if number in FULL_ERRORS or any(word in text for word in FULL_WORDS):
            return StoreFull(f"no room to write in {self.folder}: {text}; free some space on this file system")
        if "Corruption" in text or "No such file" in text:
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

    def logged(self, bytes_max: int) -> Iterator[list[tuple[int, bytes, bytes]]]:
        """Yield the newest groups of the commit log, see `Reader.logged`."""
        return self._log.newest(bytes_max)

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
        """Put batches into the log as one atomic write, durable when this returns (with `sync`).

        Raises StoreFull or another StoreError; the batches may then be on disk or not, and the write can be repeated:
        a group that is applied twice in a row changes nothing the second time.
        """
        try:
            self._log.append(batches)
        except Exception as error:
            raise self._explain(error) from error
        self._positions.append((batches[-1].token, self._log.end))

    def apply(self, ops: list[tuple[int, bytes, bytes]], token: int) -> None:
        """Change the rows by what all batches up to `token`, the last one of a write, do beyond what was applied.

        Raises StoreFull or another StoreError; it can be repeated after `reopen`.
        """
        positions = self._positions
        position = next(behind for newest, behind in positions if newest == token)
        try:
            self._change_rows(ops, position)
            self._applied = position
            self._release_segments()
        except StoreError:
            raise
        except Exception as error:
            raise self._explain(error) from error
        while positions and positions[0][0] <= token:
            positions.popleft()

    def _change_rows(self, ops: list[tuple[int, bytes, bytes]], position: int) -> None:
        """Change the rows, and note the position of the log up to which that has been done."""
        group = WriteBatch(raw_mode=True)
        puts: list[bytes] = []
        for kind, key, value in ops:
            if kind == PUT:
                group.put(key, value)
                puts.append(key)
            elif kind == DELETE:
                group.delete(key)
            else:
                assert kind == DELETE_RANGE
                self._delete_range(group, puts, key, value)
        group.put(self._applied_key, bytes(VERSION_BYTES) + u64(position))
        self._db.write(group, self._unlogged)

    def _release_segments(self) -> None:
        """After a new segment of the log has begun, have tables made of the rows; then remove older segments."""
        if self._flushing < 0:
            if self._log.segments == self._segments:
                return
            self._segments = self._log.segments
            self._flushing = self._applied
            self._db.flush(False)
        self._until_look -= 1
        if self._until_look <= 0:
            self._until_look = TABLES_EVERY
            if self._db.property_int_value("rocksdb.num-immutable-mem-table") == 0:
                self._in_tables = self._flushing
                self._trim(self._flushing)
                self._flushing = -1

    def seal(self) -> None:
        """Let the log say that its last write was durable; after a failure, the next write is the one to report it."""
        try:
            self._log.seal()
        except OSError:
            return

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
        """Close the store and open it again: RocksDB refuses all writes after one has failed.

        A store that was closed stays closed.
        """
        if self._closed:
            return
        self._close()
        self._patiently(lambda: self._open(self._applied))  # the node has the rows that are not applied

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
        return self._log.size_bytes() + sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())

    def log_bytes(self) -> int:
        """Return the bytes of the commit log from which a start makes tables; raises OSError."""
        return self._log.bytes_from(self._in_tables)

    def sync(self) -> bool:
        """Wait until all writes are on disk; return whether they are."""
        try:
            self._log.sync()
        except OSError:  # the failure of the disk was reported at the last write
            return False
        return True

    def close(self) -> None:
        """Close the files for good; idempotent."""
        self._closed = True
        self._close()

    def _close(self) -> None:
        if self._db is None:
            return
        for snapshot in list(self._snapshots):  # an open one keeps the folder locked
            snapshot.close()
        database, self._db = self._db, None
        self._flushing = -1
        self._log.close()
        try:
            database.close()  # makes tables of the rows; what is in the log alone, the next start applies
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


def unlogged() -> Any:
    """Return the options of writes that RocksDB does not log."""
    make: Any = WriteOptions  # its stub takes the attribute for a method
    options = make()
    options.disable_wal = True
    return options


def database_options(options: RocksOptions) -> Options:
    """Return the options of RocksDB for a small node: about 100 MB of memory at most, two background threads."""
    result = Options(raw_mode=True)
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
