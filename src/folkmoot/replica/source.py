"""Giving copies: pages of rows for those that are filled from this node, no faster than clients can bear."""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.kernel.clock import MILLISECOND, NEVER, SECOND
from folkmoot.kernel.errors import CorruptStore
from folkmoot.peer.kind import PAGE
from folkmoot.replica.lead import Lead
from folkmoot.replica.notice import PageNotice, PullNotice, encode_page
from folkmoot.replica.page import bytes_of, digest_of, read_page
from folkmoot.replica.replica_states import ReplicaStates
from folkmoot.store.key import partition_end

__all__ = ["Source"]

_SLOW_MAX: Final = 32  # copying goes on with a thirty-second of its speed at least, so that it ends
_ADJUST_US: Final = 50 * MILLISECOND
_IDLE_US: Final = SECOND  # without pulls for so long, commits show how long they take by themselves
_LONGER: Final = 2  # so many times as long as without copying a commit may take
_LEARNING: Final = 4
_LEARN_US: Final = 2 * SECOND  # hardly anything is copied for so long: what commits still take is not because of that
_CALM_MAX: Final = 4  # adjustments without need to slow down, before the speed is doubled
_EQUAL_DISCOUNT: Final = 8  # rows that are only compared cost reading, not sending and writing
_PULLS_MAX: Final = 65_536  # one per partition and node is all that there can be at a time


class Source:
    """Pulls that wait for their turn; a credit of bytes grows with time, slower while copying slows commits down.

    A commit may take `copy_latency_us`, or twice as long as it takes without copying where that is more: on a busy
    machine, or a slow disk, it is not copying that makes it slow, and to stop copying would help nobody. How long it
    takes without is seen before copying begins, and when hardly anything has been copied for a while (`quiet_us`); not
    at once, for disks have to catch up, and other nodes that give to the same one slow down at the same time.
    """

    def __init__(self, replica_states: ReplicaStates, lead: Lead) -> None:
        self.replica_states = replica_states
        self.lead = lead
        self.bytes_sent = 0
        self.slow = 1  # divides the speed
        self.quiet_us = 0
        self._pulls: deque[tuple[str, PullNotice]] = deque()
        self._credit = replica_states.config.page_bytes
        self._refilled_us = 0
        self._adjusted_us = 0
        self._asked_us = -_IDLE_US
        self._measured = 0
        self._slowest_us = 0
        self._calm = 0

    def installed(self) -> None:
        """A new view: those who still need pages ask again."""
        self._pulls.clear()

    def pull(self, node_id: str, pull: PullNotice) -> None:
        """A follower asks for a page."""
        replica_states = self.replica_states
        if replica_states.now - self._asked_us >= _IDLE_US:
            self.quiet_us = replica_states.pending.latency_us
        self._asked_us = replica_states.now
        if len(self._pulls) < _PULLS_MAX:
            self._pulls.append((node_id, pull))
        self.step()

    def due_us(self) -> int:
        """Return when there may be something to send, NEVER without pulls."""
        if not self._pulls:
            return NEVER
        if self._credit > 0:
            return self.replica_states.now + MILLISECOND  # it waits for the disk here, which calls too
        rate = max(self.replica_states.config.copy_bytes_per_s // self.slow, 1)
        return self._refilled_us + (1 - self._credit) * SECOND // rate + 1

    def step(self) -> None:
        """Serve what the credit allows, each pull once at most."""
        if not self._pulls:
            return
        self._refill()
        for _ in range(len(self._pulls)):
            if self._credit <= 0:
                return
            node_id, pull = self._pulls.popleft()
            follower = self.lead.follower(pull.partition, node_id)
            if follower is None or not follower.streaming:
                continue
            if self.replica_states.durable_seqs[pull.partition] < follower.copy_seq:
                self._pulls.append((node_id, pull))  # the store does not show yet what the copy began with
                continue
            self._serve(node_id, pull)

    def _refill(self) -> None:
        replica_states = self.replica_states
        now = replica_states.now
        if now - self._adjusted_us >= _ADJUST_US:
            self._adjusted_us = now
            self._adjust()
        rate = replica_states.config.copy_bytes_per_s // self.slow
        gained = (now - self._refilled_us) * rate // SECOND
        if gained > 0:
            self._credit = min(self._credit + gained, max(rate // 20, replica_states.config.page_bytes))
            self._refilled_us = now

    def _adjust(self) -> None:
        """Choose the speed by what commits have taken since the last time; without any, nobody is held up."""
        pending = self.replica_states.pending
        now = self.replica_states.now
        latency_us = pending.latency_us
        if self.slow < _SLOW_MAX:
            self._slowest_us = now
        if pending.measured == self._measured:
            latency_us = 0
        elif latency_us < self.quiet_us or now - self._slowest_us >= _LEARN_US:
            self.quiet_us += (latency_us - self.quiet_us) // _LEARNING
        self._measured = pending.measured
        if latency_us > max(self.replica_states.config.copy_latency_us, _LONGER * self.quiet_us):
            self.slow = min(2 * self.slow, _SLOW_MAX)
            self._calm = 0
        else:
            self._calm += 1
            if self._calm >= _CALM_MAX:
                self._calm = 0
                self.slow = max(self.slow // 2, 1)

    def _serve(self, node_id: str, pull: PullNotice) -> None:
        replica_states = self.replica_states
        try:
            rows, end = read_page(replica_states.reader, pull.start, pull.end, replica_states.config.page_bytes)
        except CorruptStore as fault:
            replica_states.spoil(pull.partition, str(fault))
            return
        equal = end == pull.end and pull.digest == digest_of(rows)
        size = bytes_of(rows)
        self._credit -= size // _EQUAL_DISCOUNT if equal else size
        self.bytes_sent += 0 if equal else size
        page = PageNotice(pull.partition, pull.start, end, equal, [] if equal else rows)
        partition_last = partition_end(pull.partition)
        page.left = replica_states.reader.bytes_between(end, partition_last) if end < partition_last else 0
        replica_states.out.append((node_id, PAGE, encode_page(replica_states.epoch, page)))
