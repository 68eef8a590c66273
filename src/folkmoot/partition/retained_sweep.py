"""Removing expired retained messages that nobody reads from the partitions that this node leads.

MQTT 5 section 3.3.1.3: when the retained message of a topic expires, it is discarded, and the topic has none.

Partitions are visited a few at a time, and each of them once in `retained_sweep_interval`. Only one in which a message
may have expired is read, page by page, with a pause after each page. Owns when a partition is read and how far; what
has expired says `State.has_expired`, and `Retained` removes it.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR
from folkmoot.partition.retained import SWEEP_SLOTS, Retained, earlier
from folkmoot.store.key import RETAINED, end_of, kind_prefix
from folkmoot.store.message import decode_message, expires_us_at
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.turn.commit import Commits
from folkmoot.turn.state import TIMER_SWEEP, State

__all__ = ["RetainedSweep"]

# Subjects of the timer
_VISIT: Final = 0
_PAGE: Final = 1

_ROW_US: Final = 50
"""The pause after a page, for each of its rows: 20,000 rows in a second, of which each takes about a microsecond."""

_PAUSE_US: Final = 5_000  # at least, after a page
_DURABLE_PAUSE_US: Final = 100_000  # until it is looked again whether a batch is durable


class RetainedSweep:
    """Reads the partitions in `due`, the first of them from the key `_start` on."""

    def __init__(self, state: State, commits: Commits, retained: Retained) -> None:
        self.state = state
        self.commits = commits
        self.retained = retained
        self.due: dict[int, None] = {}  # in their order
        self.pages = 0  # that were read, for tests and figures
        self._slot = 0
        self._partition = -1  # the one that is being read; -1: none is
        self._start = b""
        self._token = 0  # the store must show this batch before the first page is read
        self._expires_us = 0  # when the first row that was read and stays expires
        self._overdue_us = 0  # the time because of which the partition is read

    def on_timer(self, subject: int) -> None:
        """A deadline of TIMER_SWEEP has passed."""
        if subject == _VISIT:
            self._visit()
        else:
            self._page()

    def _visit(self) -> None:
        """Look which partitions of the next slot have to be read."""
        state = self.state
        expires_us = self.retained.expires_us
        idle = not self.due
        for partition in range(self._slot, state.partitions, SWEEP_SLOTS):
            if state.has_expired(expires_us[partition]):
                self.due[partition] = None
        self._slot = (self._slot + 1) % SWEEP_SLOTS
        if idle and self.due:
            self._begin()
        self.retained.sweeping = False
        if self.due or any(expires_us):
            self.retained.plan_sweep()

    def _begin(self) -> None:
        """Begin to read the first of the partitions, with its next page.

        Its time of expiry is computed anew: from the rows that are read, and from those that are set from now on.
        """
        self._partition = next(iter(self.due))
        self._start = kind_prefix(self._partition, RETAINED)
        self._token = self.commits.newest_token()
        self._expires_us = 0
        self._overdue_us = self.retained.expires_us[self._partition]
        self.retained.expires_us[self._partition] = 0
        self._pause(_PAUSE_US)

    def _pause(self, us: int) -> None:
        self.state.timers.set(self.state.now + us, TIMER_SWEEP, _PAGE)

    def _page(self) -> None:
        """Read a page of the partition."""
        partition = self._partition
        rows = 0
        if not self.state.leads[partition]:
            self._end()  # its leader sweeps it
        elif self.commits.durable_token < self._token:
            self._pause(_DURABLE_PAUSE_US)  # what is in that batch is neither in the store nor set from now on
            return
        else:
            self.pages += 1
            rows_max = self.retained.rows_at_once(partition)
            try:
                found = self.state.reader.scan(self._start, end_of(kind_prefix(partition, RETAINED)), rows_max)
            except CorruptStore as fault:
                self._report(fault)
                found = []
                self._expires_us = earlier(self._expires_us, self._overdue_us)  # it is tried again
            for _, value in found:
                self._row(value)
            rows = len(found)
            if rows < rows_max:
                self._end()
            else:
                self._start = found[-1][0] + b"\0"
        if self._partition >= 0:
            self._pause(max(_PAUSE_US, rows * _ROW_US))

    def _row(self, value: bytes) -> None:
        try:
            expires_us = expires_us_at(value, VERSION_BYTES)
            if self.state.has_expired(expires_us):  # [MQTT-3.3.2-5] nobody gets it any more
                self.retained.expire(decode_message(value, VERSION_BYTES))
            else:
                self._expires_us = earlier(self._expires_us, expires_us)
        except CorruptStore as fault:
            self._report(fault)  # whoever reads it or replaces it meets it

    def _report(self, fault: CorruptStore) -> None:
        self.state.event(ERROR, "corrupt_store", {"what": str(fault)})

    def _end(self) -> None:
        """The partition is read, or led elsewhere: go on with the next one."""
        partition = self._partition
        expires_us = self.retained.expires_us
        if self.state.leads[partition]:
            expires_us[partition] = earlier(expires_us[partition], self._expires_us)
        self._partition = -1
        del self.due[partition]
        if self.due:
            self._begin()
