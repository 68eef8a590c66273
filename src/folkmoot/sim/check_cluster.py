"""What the nodes of a cluster must agree on: views, leaders, and the meaning of a version of a row.

Inspects nodes (`folkmoot.sim.inside`), unlike the checkers of promises. Violations are named: "views" (one epoch, one
view; epochs grow), "leaders" (one leader of a partition per epoch), "rows" (one version, one value), "copies" (replicas
at rest are equal, A12), "eviction" (a dead node leaves the view in time, a live one stays).
"""

from __future__ import annotations

from typing import Final

from folkmoot.membership.view import View
from folkmoot.sim.host import Host
from folkmoot.sim.inside import Seen, difference, installed_view, leading, view_of
from folkmoot.sim.machine import Machine
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.world import World
from folkmoot.store.batch import PUT, Batch
from folkmoot.store.epoch import counter_of
from folkmoot.store.key import META, kind_of
from folkmoot.store.writer import VERSION_BYTES

__all__ = ["ClusterChecker"]

_ROWS_MAX: Final = 200_000
"""Rows that are remembered; more than any run writes between two healings."""


_LEADERS_EVERY: Final = 8
"""Turns of a node between two checks of what it leads: every leadership lasts longer."""


class ClusterChecker:
    """Judges every installed view, every leader that starts and every written row."""

    def __init__(self, world: World, trouble: Trouble, partitions: int) -> None:
        self.world = world
        self.trouble = trouble
        self.partitions = partitions
        self._views: dict[int, tuple[object, ...]] = {}
        self._installed: dict[str, View] = {}  # the view object of each machine at its last turn
        self._epochs: dict[str, tuple[int, int]] = {}  # (life, newest epoch), by machine
        self._members: dict[str, list[str]] = {}  # of the newest view, by machine
        self._leaders: dict[tuple[int, int], str] = {}  # by (epoch, partition)
        self._values: dict[tuple[bytes, bytes], bytes] = {}  # by (key, version)

    def turn(self, host: Host) -> None:
        """A node has ended a turn."""
        installed = installed_view(host)
        if installed is None:
            return
        if installed is self._installed.get(host.name):
            if host.turns % _LEADERS_EVERY == 0:
                self._look_at_leaders(host, installed.epoch)
            return
        self._installed[host.name] = installed
        newest = installed.epoch
        life, epoch = self._epochs.get(host.name, (0, -1))
        if life != host.life or epoch != newest:
            view = view_of(host)
            assert view is not None, "it has an epoch"
            if life == host.life and counter_of(view.epoch) <= counter_of(epoch):
                self.world.violate("views", f"{host.name} goes from {epoch:#x} to {view}, whose number is not higher")
            self._epochs[host.name] = (host.life, view.epoch)
            if self.trouble.calm and life == host.life:
                self._look_for_evicted(host, view)
            self._members[host.name] = view.ids
            signature = self._views.setdefault(view.epoch, view.signature)
            if signature != view.signature:
                self.world.violate("views", f"{host.name} has {view} with {view.signature}, others {signature}")
            self.world.mark("view")
            if installed.crowded:
                self.world.mark("full disk leads nothing that another can lead")
            self.world.note(host.name, f"view {view.epoch:x} of {' '.join(view.ids)}")

    def _look_for_evicted(self, host: Host, view: Seen) -> None:
        """Without a fault, no running member is missing in the next view."""
        for other in self.trouble.hosts:
            left_out = other.node_id in self._members.get(host.name, []) and other.node_id not in view.ids
            if left_out and other.up and other.member and not other.told_to_leave:
                self.world.violate("eviction", f"{host.name} installs {view} without {other.node_id}, which is well")

    def expect_out(self, host: Machine, limit_us: int, more_us: int) -> None:
        """A machine has just failed: without other faults, the views of all others must exclude it in time.

        more_us: additional time when others fail with it, because a slow node must not cost copies.
        """
        count = self.trouble.faults
        silent = host.hung or host.dark
        lives = {other.name: other.life for other in self.trouble.hosts}
        self.world.later(limit_us, self._look_out, host, host.node_id, lives, silent, count, more_us)

    def _look_out(
        self, host: Machine, node_id: str, lives: dict[str, int], silent: bool, count: int, more_us: int
    ) -> None:
        alive = host.node is not None if not silent else not (host.hung or host.dark)
        if alive or host.life != lives[host.name] or self.trouble.faults != count:
            return
        others = [other for other in self.trouble.hosts if other is not host and other.member]
        # A machine that failed with it may have just returned: the others waited for that one until then.
        if more_us and any(not other.up or other.life != lives[other.name] for other in others):
            self.world.later(more_us, self._look_out, host, node_id, lives, silent, count, 0)
            return
        for other in self.trouble.hosts:
            view = view_of(other)
            if other is not host and other.up and view is not None and node_id in view.ids:
                self.world.violate("eviction", f"{other.name} has {view} with {node_id}, which fails for long enough")
        self.world.mark("failed node left the view in time")

    def _look_at_leaders(self, host: Host, epoch: int) -> None:
        for partition in leading(host, self.partitions):
            leader = self._leaders.setdefault((epoch, partition), host.node_id)
            if leader != host.node_id:
                text = f"{leader} and {host.node_id} both lead partition {partition} in {epoch:#x}"
                self.world.violate("leaders", text)

    def write(self, host: Host, batch: Batch) -> None:
        """A node writes a batch."""
        values = self._values
        # A turn may write a row twice under one version: the last counts.
        rows = {key: value for kind, key, value in batch.ops if kind == PUT and len(value) >= VERSION_BYTES}
        for key, value in rows.items():
            if kind_of(key) == META:
                continue
            version = (key, value[:VERSION_BYTES])
            known = values.setdefault(version, value)
            if known != value:
                text = f"{host.name} writes {key!r} as {value!r}, elsewhere the same version is {known!r}"
                self.world.violate("rows", text)
        if len(values) > _ROWS_MAX:
            values.clear()

    def finish(self, hosts: list[Host]) -> None:
        """The cluster is at rest and whole: the copies of each partition are equal."""
        text = difference(hosts)
        if text:
            self.world.violate("copies", text)
