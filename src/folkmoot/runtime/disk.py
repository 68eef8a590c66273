"""The disk of a node: its data folder, its store, and whether there is room. What the committing thread writes to.

Owns the order in which folder and store are opened and closed. It never decides what a full disk means for clients.
"""

from __future__ import annotations

from typing import Final

from folkmoot.config.settings import Settings
from folkmoot.runtime.commit import WriteTarget
from folkmoot.runtime.directory import DataFolder
from folkmoot.runtime.rocks import RocksOptions, RocksStore
from folkmoot.store.batch import Batch
from folkmoot.store.reader import Reader

__all__ = ["Disk"]

# Besides the logs of the store, which are written once more as tables when it is opened again.
REOPEN_BYTES: Final = 8 << 20
# Twice what the store keeps in memory before it writes a table.
RECLAIM_BYTES: Final = 32 << 20


class Disk(WriteTarget):
    """Data folder and store of one node; raises StoreError with what to do when they cannot be used."""

    def __init__(self, settings: Settings) -> None:
        node = settings.node
        self.free_bytes_min = node.free_bytes_min
        self.folder = DataFolder(node.data, node.id, node.partitions)
        options = RocksOptions()
        options.sync = node.durability == "fsync"
        options.salvage = node.salvage
        try:
            self._store = RocksStore(self.folder.store, options, create=self.folder.fresh)
            self.folder.established()
        except BaseException:
            self.folder.close()
            raise
        self.torn_bytes = self._store.torn_bytes
        self.incomplete = node.salvage or self.folder.lost()  # what was acknowledged may be missing at the end
        self._forced = options.sync
        self._begun = False
        self._short = False

    @property
    def reader(self) -> Reader:
        """What the node reads."""
        return self._store

    def write(self, batches: list[Batch]) -> None:
        """Make batches durable as one atomic write."""
        self._store.write(batches)

    def has_room(self) -> bool:
        """Whether the store can be opened again and written to."""
        logs = sum(path.stat().st_size for path in self.folder.store.glob("*.log"))
        return self.folder.free_bytes() >= max(self.free_bytes_min, logs + REOPEN_BYTES)

    def reopen(self) -> None:
        """Close the store and open it again."""
        self._store.reopen()

    def reclaim(self) -> None:
        """Give back the space of deleted rows, if there is enough to write the file that says what is deleted."""
        if self.folder.free_bytes() >= RECLAIM_BYTES:
            self._store.reclaim()

    def shortage(self, waiting_bytes: int) -> str:
        """Return why nothing more should be stored, or "" while there is room; `waiting_bytes` are still to be written.

        Room has returned when a quarter more than the least is free: at the border it would come and go.
        """
        free = max(0, self.folder.free_bytes() - waiting_bytes)
        least = self.free_bytes_min + (self.free_bytes_min // 4 if self._short else 0)
        self._short = free < least
        if not self._short:
            return ""
        return f"{self.folder.path} has {free} bytes free, the least is {self.free_bytes_min}: free some space"

    def begun(self) -> None:
        """What the node found at its start is on the disk; idempotent."""
        if not self._begun:
            self._begun = True
            self.folder.begin(self._forced)

    def close(self) -> None:
        """Close the store and let the folder go."""
        if self._begun and self._store.sync():
            self.folder.end()
        self._store.close()
        self.folder.close()
