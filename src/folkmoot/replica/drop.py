"""Dropping replicas that this node need not keep any more: in pages, and only while enough others exist.

In a fork nobody drops a copy. The trunk may count on it as in sync, and the fork not know of it: it was placed there
after they had parted, and its node has come over to the fork, and goes back in the end.
"""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import INFO
from folkmoot.membership.holding import PARTIAL
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.page import read_page
from folkmoot.replica.replica import NO_ROLE, Replica
from folkmoot.store.batch import DELETE_RANGE
from folkmoot.store.key import partition_end, partition_start

__all__ = ["Drops"]


class Drops:
    """Partitions that are being deleted, one page per step; each with the key from which on there may be rows."""

    def __init__(self, context: ReplicaContext) -> None:
        self.context = context
        self.active: dict[Replica, bytes] = {}
        self.quiet_since_us = 0  # when roles have changed last, or this node was asked what it has

    def runnable(self) -> bool:
        """Whether there is something to drop that nobody relies on."""
        return bool(self.active) and self.due_us() <= self.context.now

    def due_us(self) -> int:
        """Return when dropping continues, NEVER when there is nothing to drop."""
        return self.quiet_since_us + self.context.config.drop_wait_us if self.active else NEVER

    def look(self, replica: Replica) -> None:
        """Begin to drop a partition, if that is safe now."""
        context = self.context
        view = context.view
        if replica in self.active or view is None or not view.replicas or not replica.holds():
            return
        if not view.is_trunk and not context.planted.drops_in_fork:
            return
        wanted = min(context.config.replicas, len(view.members))
        enough = len(view.replicas[replica.number]) >= wanted and not view.learners[replica.number]
        safe = replica.opened and replica.settled and not replica.uncommitted
        if replica.role == NO_ROLE and enough and safe:
            self.active[replica] = partition_start(replica.number)

    def installed(self) -> None:
        """A new view: partitions that return here are filled anew, and all others must prove safe to drop again."""
        self.quiet_since_us = self.context.now
        self.active.clear()

    def _begin(self, replica: Replica) -> None:
        """Mark the copy as partial before its first row goes."""
        if not replica.included and replica.is_foreign():
            replica.tell_loss()
        replica.rate(PARTIAL)
        replica.forget()

    def step(self) -> None:
        """Remove one page of one partition."""
        context = self.context
        for replica in list(self.active):
            start = self.active[replica]
            end = partition_end(replica.number)
            if start == partition_start(replica.number):
                self._begin(replica)
            try:
                _rows, following = read_page(context.reader, start, end, context.config.page_bytes)
            except CorruptStore:
                following = end  # unreadable rows are deleted all the same
            context.writer.raw([(DELETE_RANGE, start, following)], len(start) + len(following))
            self.active[replica] = following
            if following == end:
                del self.active[replica]
                replica.clear()
                replica.event(INFO, "replica_dropped", "other replicas have it")
            return
