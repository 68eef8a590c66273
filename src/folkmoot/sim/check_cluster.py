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


class _Failure:
    """A machine that has failed, and what was so then."""

    def __init__(self, host: Machine, faults: int, voters: list[str], more_us: int, fork_us: int) -> None:
        self.host = host
        self.node_id = host.node_id
        self.faults = faults
        self.voters = voters
        self.more_us = more_us
        self.fork_us = fork_us
        self.forks = fork_us > 0
        self.is_waited_for = host.hung or host.dark or host.off  # what is silent has its longer time from the beginning
        self._life = host.life
        self._silent = host.hung or host.dark

    def is_over(self) -> bool:
        """Tell whether the machine is well again, or has failed in another way."""
        host = self.host
        well = not (host.hung or host.dark) if self._silent else host.node is not None
        return well or host.life != self._life


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
            if left_out and other.up and other.member and not (other.told_to_leave or other.stopping):
                self.world.violate("eviction", f"{host.name} installs {view} without {other.node_id}, which is well")

    def expect_out(self, host: Machine, limit_us: int, more_us: int, fork_us: int) -> None:
        """A machine has just failed: without other faults, the views of all others must exclude it in time.

        limit_us: for the case that the others are well. more_us: since the last of the others that had failed with it
        has returned. fork_us: additional time where too few voters are left, so that the others have to fork; 0: they
        may not.
        """
        failure = _Failure(host, self.trouble.faults, self.trouble.voters(), more_us, fork_us)
        self.world.later(limit_us, self._look_out, failure, self._others(host))

    def _others(self, host: Machine) -> list[tuple[Host, int, bool]]:
        """Return the other members, with the number of their process, and whether they are well."""
        return [(other, other.life, other.up) for other in self.trouble.hosts if other is not host and other.member]

    def _look_out(self, failure: _Failure, before: list[tuple[Host, int, bool]]) -> None:
        if failure.is_over() or self.trouble.faults != failure.faults:
            return
        others = self._others(failure.host)
        down = [other for other, _life, up in others if not up]
        if others != before or (down and not failure.is_waited_for):
            failure.is_waited_for = True  # those that failed with it may be slow, or have just returned
            self.world.later(failure.more_us, self._look_out, failure, others)
            return
        well = [other.node_id for other, _life, up in others if up]
        if failure.voters and 2 * len([name for name in failure.voters if name in well]) <= len(failure.voters):
            fork_us, failure.fork_us = failure.fork_us, 0
            if fork_us:
                self.world.later(fork_us, self._look_out, failure, others)
                return
            if not failure.forks:
                return
        for other in self.trouble.hosts:
            view = view_of(other)
            if other is not failure.host and other.up and view is not None and failure.node_id in view.ids:
                text = f"{other.name} has {view} with {failure.node_id}, which fails for long enough"
                self.world.violate("eviction", text)
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
