"""A disk that reports late: batches become durable in order after a drawn delay, and a crash loses the rest.

Owns what survives a crash. The fault model: a batch is durable as a whole or not at all. Of the batches that were
handed over and not yet reported durable, a prefix of drawn length survives a crash (one that is torn in the middle has
a wrong checksum, and the store drops it with all that follow). Everything reported durable survives. A full disk stops
syncing until there is room. `bad`: durable rows that cannot be read any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from folkmoot.kernel.clock import MILLISECOND, NEVER
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.rng import Rng
from folkmoot.sim.world import World
from folkmoot.store.batch import DELETE_RANGE, Batch
from folkmoot.store.memory import MemoryStore
from folkmoot.store.reader import Reader, Snapshot

__all__ = ["Disk"]


class Disk:
    """The disk of one node: `store` holds all that is durable; `tables`, which the node reads, what is committed of it.

    `on_written(token)` is called for the newest batch of each sync, in token order.
    """

    def __init__(self, world: World, rng: Rng, name: str, sync_us: int) -> None:
        self.store = MemoryStore()
        self.tables = MemoryStore()
        self.bad: dict[bytes, bool] = {}  # rows whose checksums are wrong
        self.reader: Reader = _Checked(self)
        self.full = False
        self.stall_until_us = 0
        self.syncing_since_us = NEVER
        self.on_written: Callable[[int], None] = lambda _token: None
        self._world = world
        self._rng = rng
        self._name = name
        self._sync_us = sync_us
        self._waiting: list[Batch] = []
        self._syncing: list[Batch] = []
        self._reporting: list[int] = []
        self._life = 0  # a crash cancels the events of the earlier life

    @property
    def idle(self) -> bool:
        """Whether every batch is durable and was reported."""
        return not (self._waiting or self._syncing or self._reporting)

    @property
    def slow(self) -> bool:
        """Whether it stands still, or would if there were something to write."""
        return self.stall_until_us > self._world.now

    def begin(self) -> None:
        """A process starts: it applies what the log has and the tables lack."""
        self.tables = self.store.copy()

    def change_tables(self, ops: list[tuple[int, bytes, bytes]]) -> None:
        """Change the rows that the node reads; they are durable already."""
        batch = Batch(0)
        batch.ops = ops
        self.tables.apply(batch)

    def submit(self, batch: Batch) -> None:
        """Take a batch; it becomes durable with all that wait when the running sync is over (group commit)."""
        trace = self._world.trace
        for kind, key, value in batch.ops:
            trace.mix(b"%d" % kind + key + value)
        self._waiting.append(batch)
        self._start()

    def fill(self) -> None:
        """Fill the disk: nothing becomes durable until `free`."""
        self.full = True

    def free(self) -> None:
        """Make room again."""
        self.full = False
        self._start()

    def stall(self, duration_us: int) -> None:
        """Let the next sync take `duration_us` longer."""
        self.stall_until_us = max(self.stall_until_us, self._world.now + duration_us)

    def crash(self) -> None:
        """Lose what is not durable, except for a drawn prefix of it."""
        pending = self._syncing + self._waiting
        kept = self._rng.below(len(pending) + 1) if pending else 0
        for batch in pending[:kept]:
            self.store.apply(batch)
        if kept < len(pending):
            self._world.mark("crash lost unsynced batches")
            self.tear(pending[kept])
        if kept:
            self._world.mark("crash kept unreported batches")
        self._world.note(self._name, f"crash keeps {kept} of {len(pending)} pending batches")
        self._waiting = []
        self._syncing = []
        self._reporting = []
        self.syncing_since_us = NEVER
        self._life += 1

    def tear(self, batch: Batch) -> None:
        """The first batch that a crash loses: a store whose log has pages keeps a part of it, or zeros in its place.

        This store has no pages: what is torn is dropped.
        """

    def wipe(self) -> None:
        """Lose everything: the disk is replaced."""
        assert self.idle, "a disk is replaced while nobody writes"
        self.store = MemoryStore()
        self.bad.clear()

    def _start(self) -> None:
        if self._syncing or not self._waiting:
            return
        if self.full:
            self.syncing_since_us = min(self.syncing_since_us, self._world.now)  # it tries without success
            return
        self._syncing = self._waiting
        self._waiting = []
        self.syncing_since_us = self._world.now
        duration = self._sync_us // 4 + self._rng.below(self._sync_us)
        if self.stall_until_us > self._world.now:
            duration += self.stall_until_us - self._world.now
        self._world.after(duration, self._synced, self._life)

    def _synced(self, life: int) -> None:
        if life != self._life:
            return
        for batch in self._syncing:
            self.apply(batch)
        token = self._syncing[-1].token
        if len(self._syncing) > 1:
            self._world.mark("group commit")
        self._syncing = []
        self.syncing_since_us = NEVER
        # The core reads rows before it learns that they are durable: a worker thread commits, a loop reports.
        self._reporting.append(token)
        self._world.after(self._rng.below(MILLISECOND // 5), self._report, self._life)
        self._start()

    def _report(self, life: int) -> None:
        if life != self._life:
            return
        token = self._reporting.pop(0)
        self._world.note(self._name, f"durable {token}")
        self.on_written(token)

    def apply(self, batch: Batch) -> None:
        """Make `batch` durable."""
        self.store.apply(batch)
        if self.bad:
            self._mend(batch)

    def _mend(self, batch: Batch) -> None:
        """Rows that are written anew, or removed, are not damaged any more."""
        for kind, key, value in batch.ops:
            if kind == DELETE_RANGE:
                for bad in [bad for bad in self.bad if key <= bad < value]:
                    self._mended(bad)
            elif key in self.bad:
                self._mended(key)

    def _mended(self, key: bytes) -> None:
        del self.bad[key]
        self._world.mark("bad checksum repaired")


class _Checked(Reader):
    """The node's view of the store: rows with a wrong checksum raise."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def get(self, key: bytes) -> bytes | None:
        if key in self._disk.bad:
            raise CorruptStore(f"block checksum mismatch at {key!r}")
        return self._disk.tables.get(key)

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        rows = self._disk.tables.scan(start, end, limit)
        if self._disk.bad:
            for key, _ in rows:
                if key in self._disk.bad:
                    raise CorruptStore(f"block checksum mismatch at {key!r}")
        return rows

    def logged(self, bytes_max: int) -> Iterator[list[tuple[int, bytes, bytes]]]:
        return self._disk.store.logged(bytes_max)

    def snapshot(self) -> Snapshot:
        if self._disk.bad:
            raise CorruptStore("block checksum mismatch")
        return self._disk.tables.snapshot()

    def last(self, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        row = self._disk.tables.last(start, end)
        if row is not None and row[0] in self._disk.bad:
            raise CorruptStore(f"block checksum mismatch at {row[0]!r}")
        return row
