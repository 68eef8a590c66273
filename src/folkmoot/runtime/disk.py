"""The disk of a node: its data folder, its store, and its free space. The commit thread writes to it.

Owns the order in which folder and store are opened and closed. It never decides what a full disk means for clients.
"""

from __future__ import annotations

from typing import Final

from folkmoot.config.settings import Settings
from folkmoot.kernel.errors import StoreError
from folkmoot.runtime.commit import WriteTarget
from folkmoot.runtime.descriptors import Spare, available
from folkmoot.runtime.directory import DataFolder
from folkmoot.runtime.rocks import RocksOptions, RocksStore
from folkmoot.store.batch import Batch
from folkmoot.store.reader import Reader

__all__ = ["Disk"]

# Besides what the log of the store has: it is written again, as tables, when the store is closed or opened.
REOPEN_BYTES: Final = 8 << 20
# RocksDB opens its manifest, its logs and the first tables.
REOPEN_FILES: Final = 64
# Twice what the store keeps in memory before it writes a table.
RECLAIM_BYTES: Final = 32 << 20
# Of the free space that the node keeps: what is left for users with little on the disk.
LOW_PARTS: Final = 16


class Disk(WriteTarget):
    """Data folder and store of one node; raises StoreError if they cannot be used.

    open_files_max: tables that the store keeps open.
    """

    def __init__(self, settings: Settings, open_files_max: int = 256) -> None:
        node = settings.node
        self.free_bytes_min = node.free_bytes_min
        self.folder = DataFolder(node.data, node.id, node.partitions)
        options = RocksOptions()
        options.open_files_max = open_files_max
        options.sync = node.durability == "fsync"
        options.salvage = node.salvage
        try:
            self._store = RocksStore(self.folder.store, options, create=self.folder.fresh)
            self.folder.established()
        except BaseException:
            self.folder.close()
            raise
        self.spare = Spare()
        self._store.relieve = self.spare.release
        self.torn_bytes = self._store.torn_bytes
        self._lost = self.folder.lost()
        self.incomplete = node.salvage or self._lost  # what was acknowledged may be missing at the end
        self._forced = options.sync
        self._begun = False
        self._short = False
        self._low = False

    @property
    def reader(self) -> Reader:
        """The store, as the node reads it."""
        return self._store

    def write(self, batches: list[Batch]) -> None:
        """Make batches durable as one atomic write."""
        self._store.write(batches)

    def apply(self, ops: list[tuple[int, bytes, bytes]], token: int) -> None:
        """Change the rows."""
        self._store.apply(ops, token)

    def seal(self) -> None:
        """Let the log say that its last write was durable."""
        self._store.seal()

    def has_room(self) -> bool:
        """Whether there are enough room and enough descriptors to reopen the store and to write to it."""
        try:
            if not available(REOPEN_FILES):
                return False
            log = self._store.log_bytes()
            again = 0 if self._forced else log  # what no sync was waited for is written again, as a log
            return self.folder.free_bytes() >= max(self.free_bytes_min, log + again + REOPEN_BYTES)
        except OSError:  # the last descriptor was taken
            return False

    def reopen(self) -> None:
        """Close the store and open it again."""
        self._store.reopen()

    def reclaim(self) -> None:
        """Reclaim the space of deleted rows, if there is enough for the tombstones that have to be written first."""
        if self.folder.free_bytes() >= RECLAIM_BYTES:
            self._store.reclaim()

    def shortage(self, waiting_bytes: int) -> str:
        """Return why nothing more may be stored, or "" while there is room; `waiting_bytes` are still to be written.

        After a shortage, a quarter more than the minimum must be free: otherwise the state would flap at the limit.
        """
        free = max(0, self.folder.free_bytes() - waiting_bytes)
        least = self.free_bytes_min + (self.free_bytes_min // 4 if self._short else 0)
        self._short = free < least
        if not self._short:
            return ""
        return f"{self.folder.path} has {free} bytes free, the least is {self.free_bytes_min}: free some space"

    def is_low(self, waiting_bytes: int) -> bool:
        """Whether so little is free that users with much on the disk must leave the rest to the others.

        That is sixteen times the least, or a tenth of the file system if that is less; then a quarter more.
        """
        free = max(0, self.folder.free_bytes() - waiting_bytes)
        least = max(min(LOW_PARTS * self.free_bytes_min, self.folder.size_bytes() // 10), 2 * self.free_bytes_min)
        self._low = free < least + (least // 4 if self._low else 0)
        return self._low

    def begin(self) -> None:
        """Record that the node runs, before it tells anybody of a write that waits for no disk; raises StoreError.

        What says that the last node has lost writes stays until this one has written down that it doubts its disk.
        """
        if self._forced or self._lost:
            return
        try:
            self.begun()
        except OSError as error:
            raise StoreError(
                f"cannot write in the data folder {self.folder.path}: {error.strerror}; "
                "free some space, or make it writable for this user"
            ) from error

    def begun(self) -> None:
        """Record that the node runs, once its first writes are there; idempotent."""
        if not self._begun:
            self._begun = True
            self.folder.begin(self._forced)

    def close(self) -> None:
        """Close the store and release the folder."""
        if self._begun and self._store.sync():
            self.folder.end()
        self._store.close()
        self.folder.close()
