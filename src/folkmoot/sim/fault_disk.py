"""Bit flips on disks: of rows that are on enough other disks, never of more copies than the cluster must survive.

Two kinds. A row with a wrong checksum cannot be read (`CorruptStore`); the copy counts as failed until it has been
repaired. A row that reads as something else is found by comparing copies only, and only where the other copies can
outvote it: no other fault is allowed until then. Owns which rows are damaged, and since when.
"""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.kernel.rng import Rng
from folkmoot.sim.disk import Disk
from folkmoot.sim.host import Host
from folkmoot.sim.inside import in_sync, rows_of, view_of
from folkmoot.sim.site import Site
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.world import World
from folkmoot.store.batch import Batch
from folkmoot.store.key import RETAINED

__all__ = ["DiskFaults"]


class _Lie:
    """A row that reads as something else on one disk."""

    def __init__(self, host: Host, partition: int, key: bytes, true: bytes, false: bytes) -> None:
        self.host = host
        self.disk: Disk = host.disk
        self.births = host.births
        self.partition = partition
        self.key = key
        self.true = true
        self.false = false

    @property
    def stands(self) -> bool:
        """Whether the wrong row is still there."""
        return self.host.births == self.births and self.disk.store.get(self.key) == self.false

    def undo(self) -> None:
        """Put the right row back."""
        _put(self.disk, self.key, self.true)


def _put(disk: Disk, key: bytes, value: bytes) -> None:
    batch = Batch(0)
    batch.put(key, value)
    disk.store.apply(batch)
    disk.tables.apply(batch)


class DiskFaults:
    """Flips bits; `whole` when all have been repaired."""

    def __init__(self, world: World, rng: Rng, site: Site, trouble: Trouble) -> None:
        self.world = world
        self.rng = rng
        self.site = site
        self.trouble = trouble
        self._lies: list[_Lie] = []

    def actions(self) -> list[tuple[int, str, Callable[[], None]]]:
        """Return (weight, name, action) of each fault."""
        return [(2, "bit flips", self.flip), (2, "bad checksums", self.spoil)]

    @property
    def whole(self) -> bool:
        """Whether no damage is left."""
        if self._lies:
            self._look()
        return not self._lies and not any(host.disk.bad for host in self.site.hosts)

    @property
    def damage(self) -> str:
        """Say what is damaged, for readers."""
        lies = [f"{lie.host.name} has a wrong row {lie.key!r}" for lie in self._lies]
        return "; ".join(
            lies + [f"{host.name} cannot read {list(host.disk.bad)}" for host in self.site.hosts if host.disk.bad]
        )

    def _look(self) -> None:
        """Forget lies that were found; take back those that could be believed now, because roles have changed."""
        for lie in list(self._lies):
            if not lie.stands:
                self.world.mark("flipped bit repaired")
                self._lies.remove(lie)
            elif not self._is_outvoted(lie.host, lie.partition):
                lie.undo()
                self._lies.remove(lie)

    def _is_outvoted(self, host: Host, partition: int) -> bool:
        """Whether at least two others have the partition complete, one of them as its leader."""
        view = view_of(host)
        if view is None or host.hung:
            return False
        replicas = view.replicas[partition]
        return len(replicas) >= 3 and host.node_id in replicas[1:]

    def _place(self, outvoted: bool) -> tuple[Host, int, bytes, bytes] | None:
        """Draw a row that is on several disks."""
        running = [host for host in self.site.running if host.up and host.member]
        if not running:
            return None
        host = running[self.rng.below(len(running))]
        view = view_of(host)
        if view is None:
            return None
        partition = self.rng.below(len(view.replicas))
        if host.node_id not in view.replicas[partition] or len(view.replicas[partition]) < 2:
            return None
        if outvoted and not self._is_outvoted(host, partition):
            return None
        if not in_sync(self.site.running, view, partition):
            return None
        rows = rows_of(host, partition)
        if outvoted:  # retained messages are read from followers too, before copies are compared
            rows = [row for row in rows if row[0][2] != RETAINED]
        if not rows:
            return None
        key, value = rows[self.rng.below(len(rows))]
        return host, partition, key, value

    def flip(self) -> None:
        """Let a row read as something else, where all others outvote it."""
        if not self.trouble.calm or self._lies:
            return
        place = self._place(outvoted=True)
        if place is None:
            return
        host, partition, key, value = place
        at = self.rng.below(len(value))
        false = value[:at] + bytes([value[at] ^ (1 << self.rng.below(8))]) + value[at + 1 :]
        self.trouble.exhaust()
        self.world.mark("bit flip")
        self.world.note("world", f"bit flip at {host.name} in {key!r}")
        self._lies.append(_Lie(host, partition, key, value, false))
        _put(host.disk, key, false)

    def spoil(self) -> None:
        """Let a row be unreadable."""
        place = self._place(outvoted=False)
        if place is None or not self.trouble.affords([place[0]]):
            return
        host, _, key, _ = place
        self.trouble.weaken([host])
        self.world.mark("bad checksum")
        self.world.note("world", f"bad checksum at {host.name} in {key!r}")
        host.disk.bad[key] = True
