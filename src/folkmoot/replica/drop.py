"""Dropping copies that this node has to keep no more: in pages, and only when enough others have the partition."""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import INFO
from folkmoot.membership.holding import NONE, PARTIAL
from folkmoot.replica.page import read_page
from folkmoot.replica.replica_states import NOBODY, Standing
from folkmoot.store.batch import DELETE_RANGE
from folkmoot.store.key import partition_end, partition_start

__all__ = ["Drops"]


class Drops:
    """Partitions whose rows go, one page per step; each with the key from which on there may be rows."""

    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.active: dict[int, bytes] = {}
        self.quiet_since_us = 0  # the last view or promise

    def runnable(self) -> bool:
        """Whether there is something to drop, and nobody counts on it any more."""
        return bool(self.active) and self.due_us() <= self.standing.now

    def due_us(self) -> int:
        """Return when dropping goes on, NEVER when there is nothing to drop."""
        return self.quiet_since_us + self.standing.config.drop_wait_us if self.active else NEVER

    def look(self, partition: int) -> None:
        """Begin to drop a partition, if that is safe now."""
        standing = self.standing
        view = standing.view
        if partition in self.active or view is None or not view.replicas or not standing.holds(partition):
            return
        wanted = min(standing.config.replicas, len(view.members))
        enough = len(view.replicas[partition]) >= wanted and not view.learners[partition]
        safe = standing.opened[partition] and standing.settled[partition] and not standing.pending.waits(partition)
        if standing.roles[partition] == NOBODY and enough and safe:
            self.active[partition] = partition_start(partition)

    def installed(self) -> None:
        """A new view: a partition that this node gets again is filled anew, and of others it has to be seen again."""
        self.quiet_since_us = self.standing.now
        self.active.clear()

    def _begin(self, partition: int) -> None:
        """From here on the copy has holes."""
        epoch, seq = self.standing.writer.position(partition)
        self.standing.writer.adopt(partition, epoch, seq, PARTIAL)
        self.standing.recent.clear(partition)

    def step(self) -> None:
        """Remove one page of one partition."""
        standing = self.standing
        for partition in list(self.active):
            start = self.active[partition]
            end = partition_end(partition)
            if start == partition_start(partition):
                self._begin(partition)
            try:
                _rows, following = read_page(standing.reader, start, end, standing.config.page_bytes)
            except CorruptStore:
                following = end  # unread, but gone all the same
            standing.writer.raw([(DELETE_RANGE, start, following)], len(start) + len(following))
            self.active[partition] = following
            if following == end:
                del self.active[partition]
                standing.generations[partition] += 1
                standing.histories[partition] = []
                standing.writer.adopt(partition, 0, 0, NONE)
                standing.head_epochs[partition] = standing.head_seqs[partition] = 0
                standing.durable[partition] = 0
                standing.event(INFO, "replica_dropped", partition, "others have it")
            return
