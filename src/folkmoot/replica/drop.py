"""Dropping replicas that this node need not keep any more: in pages, and only while enough others exist."""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import INFO
from folkmoot.membership.holding import NONE, PARTIAL
from folkmoot.replica.page import read_page
from folkmoot.replica.replica_states import NO_ROLE, ReplicaStates
from folkmoot.store.batch import DELETE_RANGE
from folkmoot.store.key import partition_end, partition_start

__all__ = ["Drops"]


class Drops:
    """Partitions that are being deleted, one page per step; each with the key from which on there may be rows."""

    def __init__(self, replica_states: ReplicaStates) -> None:
        self.replica_states = replica_states
        self.active: dict[int, bytes] = {}
        self.quiet_since_us = 0  # when roles have changed last, or this node was asked what it has

    def runnable(self) -> bool:
        """Whether there is something to drop that nobody relies on."""
        return bool(self.active) and self.due_us() <= self.replica_states.now

    def due_us(self) -> int:
        """Return when dropping continues, NEVER when there is nothing to drop."""
        return self.quiet_since_us + self.replica_states.config.drop_wait_us if self.active else NEVER

    def look(self, partition: int) -> None:
        """Begin to drop a partition, if that is safe now."""
        replica_states = self.replica_states
        view = replica_states.view
        if partition in self.active or view is None or not view.replicas or not replica_states.holds(partition):
            return
        wanted = min(replica_states.config.replicas, len(view.members))
        enough = len(view.replicas[partition]) >= wanted and not view.learners[partition]
        safe = (
            replica_states.opened[partition]
            and replica_states.settled[partition]
            and not replica_states.pending.waits(partition)
        )
        if replica_states.roles[partition] == NO_ROLE and enough and safe:
            self.active[partition] = partition_start(partition)

    def installed(self) -> None:
        """A new view: partitions that return here are filled anew, and all others must prove safe to drop again."""
        self.quiet_since_us = self.replica_states.now
        self.active.clear()

    def _begin(self, partition: int) -> None:
        """Mark the copy as partial before its first row goes."""
        epoch, seq = self.replica_states.writer.position(partition)
        self.replica_states.writer.adopt(partition, epoch, seq, PARTIAL)
        self.replica_states.recent.clear(partition)

    def step(self) -> None:
        """Remove one page of one partition."""
        replica_states = self.replica_states
        for partition in list(self.active):
            start = self.active[partition]
            end = partition_end(partition)
            if start == partition_start(partition):
                self._begin(partition)
            try:
                _rows, following = read_page(replica_states.reader, start, end, replica_states.config.page_bytes)
            except CorruptStore:
                following = end  # unreadable rows are deleted all the same
            replica_states.writer.raw([(DELETE_RANGE, start, following)], len(start) + len(following))
            self.active[partition] = following
            if following == end:
                del self.active[partition]
                replica_states.generations[partition] += 1
                replica_states.histories[partition] = []
                replica_states.writer.adopt(partition, 0, 0, NONE)
                replica_states.head_epochs[partition] = replica_states.head_seqs[partition] = 0
                replica_states.durable_seqs[partition] = 0
                replica_states.event(INFO, "replica_dropped", partition, "other replicas have it")
            return
