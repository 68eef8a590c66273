"""Sending copies: pages of rows for nodes that are filled from here, without slowing clients down."""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.kernel.clock import MILLISECOND, NEVER, SECOND
from folkmoot.kernel.errors import CorruptStore
from folkmoot.peer.kind import PAGE
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.notice import PageNotice, PullNotice, encode_page
from folkmoot.replica.page import bytes_of, digest_of, read_page
from folkmoot.replica.replica import Replica
from folkmoot.store.key import partition_end

__all__ = ["Source"]

_SLOW_MAX: Final = 32  # copying never gets slower than a thirty-second of its speed, so that it ends
_ADJUST_US: Final = 50 * MILLISECOND
_IDLE_US: Final = SECOND  # after this time without pulls, commits show their latency without copying
_LONGER: Final = 2  # a commit may take so many times as long as without copying
_LEARNING: Final = 4
_LEARN_US: Final = 2 * SECOND  # after this time with hardly any copying, the latency of commits has other causes
_CALM_MAX: Final = 4  # adjustments without a slowdown, before the speed is doubled
_EQUAL_DISCOUNT: Final = 8  # rows that are only compared cost reading, but no sending and writing
_PULLS_MAX: Final = 65_536  # one per partition and node is the most that is possible


class Source:
    """Pulls that wait for their turn; a credit of bytes grows with time, slower while copying slows commits down.

    A commit may take `copy_latency_us`, or twice its latency without copying where that is more: on a busy machine or
    a slow disk the latency has other causes, and stopping the copy would not help. The latency without copying is
    measured before copying begins, and when hardly anything has been copied for a while (`quiet_us`); not at once,
    because disks have to catch up, and other nodes that send to the same one slow down at the same time.
    """

    def __init__(self, context: ReplicaContext) -> None:
        self.context = context
        self.bytes_sent = 0
        self.slow = 1  # divides the speed
        self.quiet_us = 0
        self._pulls: deque[tuple[Replica, str, PullNotice]] = deque()
        self._credit = context.config.page_bytes
        self._refilled_us = 0
        self._adjusted_us = 0
        self._asked_us = -_IDLE_US
        self._measured = 0
        self._slowest_us = 0
        self._calm = 0

    def installed(self) -> None:
        """A new view: nodes that still need pages ask again."""
        self._pulls.clear()

    def pull(self, replica: Replica, node_id: str, pull: PullNotice) -> None:
        """Queue a follower's request for a page."""
        context = self.context
        if context.now - self._asked_us >= _IDLE_US:
            self.quiet_us = context.pending.latency_us
        self._asked_us = context.now
        if len(self._pulls) < _PULLS_MAX:
            self._pulls.append((replica, node_id, pull))
        self.step()

    def due_us(self) -> int:
        """Return when there may be something to send, NEVER without pulls."""
        if not self._pulls:
            return NEVER
        if self._credit > 0:
            return self.context.now + MILLISECOND  # it waits for the disk here, and `written` calls too
        rate = max(self.context.config.copy_bytes_per_s // self.slow, 1)
        return self._refilled_us + (1 - self._credit) * SECOND // rate + 1

    def step(self) -> None:
        """Serve what the credit allows, each pull at most once."""
        if not self._pulls:
            return
        self._refill()
        for _ in range(len(self._pulls)):
            if self._credit <= 0:
                return
            replica, node_id, pull = self._pulls.popleft()
            follower = replica.follower(node_id)
            if follower is None or not follower.streaming:
                continue
            if replica.durable_seq < follower.copy_seq:
                self._pulls.append((replica, node_id, pull))  # the store does not show the beginning of the copy yet
                continue
            self._serve(replica, node_id, pull)

    def _refill(self) -> None:
        context = self.context
        now = context.now
        if now - self._adjusted_us >= _ADJUST_US:
            self._adjusted_us = now
            self._adjust()
        rate = context.config.copy_bytes_per_s // self.slow
        gained = (now - self._refilled_us) * rate // SECOND
        if gained > 0:
            self._credit = min(self._credit + gained, max(rate // 20, context.config.page_bytes))
            self._refilled_us = now

    def _adjust(self) -> None:
        """Choose the speed by the latency of recent commits; without any, the copy slows nobody down."""
        pending = self.context.pending
        now = self.context.now
        latency_us = pending.latency_us
        if self.slow < _SLOW_MAX:
            self._slowest_us = now
        if pending.measured == self._measured:
            latency_us = 0
        elif latency_us < self.quiet_us or now - self._slowest_us >= _LEARN_US:
            self.quiet_us += (latency_us - self.quiet_us) // _LEARNING
        self._measured = pending.measured
        if latency_us > max(self.context.config.copy_latency_us, _LONGER * self.quiet_us):
            self.slow = min(2 * self.slow, _SLOW_MAX)
            self._calm = 0
        else:
            self._calm += 1
            if self._calm >= _CALM_MAX:
                self._calm = 0
                self.slow = max(self.slow // 2, 1)

    def _serve(self, replica: Replica, node_id: str, pull: PullNotice) -> None:
        context = self.context
        try:
            rows, end = read_page(context.reader, pull.start, pull.end, context.config.page_bytes)
        except CorruptStore as fault:
            replica.spoil(str(fault))
            return
        equal = end == pull.end and pull.digest == digest_of(rows)
        size = bytes_of(rows)
        self._credit -= size // _EQUAL_DISCOUNT if equal else size
        self.bytes_sent += 0 if equal else size
        page = PageNotice(pull.partition, pull.start, end, equal, [] if equal else rows)
        partition_last = partition_end(pull.partition)
        page.left = context.reader.bytes_between(end, partition_last) if end < partition_last else 0
        context.send(node_id, PAGE, encode_page(context.epoch, page))
