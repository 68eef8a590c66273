"""Removing expired retained messages that nobody reads from the partitions that this node leads.

MQTT 5 section 3.3.1.3: when the retained message of a topic expires, it is discarded, and the topic has none.

Partitions are visited a few at a time, and each of them once in `retained_sweep_interval`. Only one in which a message
may have expired is read, page by page, with a pause after about `page_rows` rows. Owns when a partition is read and how
far; what has expired says `State.has_expired`, and `Retained` removes it.
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
_READ: Final = 1

_ROW_US: Final = 50
"""The pause after a page, for each of its rows: 20,000 rows in a second, of which each takes about a microsecond."""

_SCAN_ROWS: Final = 8  # what a scan costs, in rows: a partition may have few
_PAUSE_US: Final = 5_000  # at least


class _Due:
    """A partition to be read. token: the store must show this batch before; overdue_us: why it is read."""

    def __init__(self, token: int, overdue_us: int, start: bytes) -> None:
        self.token = token
        self.overdue_us = overdue_us
        self.start = start  # of the next page
        self.expires_us = 0  # when the first row that was read and stays expires


class RetainedSweep:
    """Reads the partitions in `due`, in their order."""

    def __init__(self, state: State, commits: Commits, retained: Retained) -> None:
        self.state = state
        self.commits = commits
        self.retained = retained
        self.due: dict[int, _Due] = {}
        self.pages = 0  # that were read, for tests and figures
        self._slot = 0

    def on_timer(self, subject: int) -> None:
        """A deadline of TIMER_SWEEP has passed."""
        if subject == _VISIT:
            self._visit()
        else:
            self._read()

    def _visit(self) -> None:
        """Look which partitions of the next slot have to be read.

        The time of expiry of each of these is computed anew: from the rows that are read, and from those that are set
        from now on.
        """
        state = self.state
        led = self.retained.led
        idle = not self.due
        for partition in range(self._slot, state.partitions, SWEEP_SLOTS):
            memory = led.get(partition)
            if memory is not None and state.has_expired(memory.retained_expires_us) and partition not in self.due:
                start = kind_prefix(partition, RETAINED)
                self.due[partition] = _Due(self.commits.newest_token(), memory.retained_expires_us, start)
                memory.retained_expires_us = 0
        self._slot = (self._slot + 1) % SWEEP_SLOTS
        if idle and self.due:
            self._pause(0)
        self.retained.sweeping = False
        if self.due or any(memory.retained_expires_us for memory in led):
            self.retained.plan_sweep()

    def _pause(self, rows: int) -> None:
        self.state.timers.set(self.state.now + max(_PAUSE_US, rows * _ROW_US), TIMER_SWEEP, _READ)

    def _read(self) -> None:
        """Read about `page_rows` rows, of as many partitions as have them."""
        rows = 0
        while self.due and rows < self.state.limits.page_rows:
            partition = next(iter(self.due))
            if self.commits.durable_token < self.due[partition].token:
                break  # what is in that batch is neither in the store nor set since the visit
            rows += _SCAN_ROWS + self._page(partition, self.due[partition])
        if self.due:
            self._pause(rows)

    def _page(self, partition: int, due: _Due) -> int:
        """Read a page of the partition; return its rows."""
        memory = self.retained.led.get(partition)
        if memory is None:
            del self.due[partition]  # its leader sweeps it
            return 0
        self.pages += 1
        rows_max = self.retained.rows_at_once(partition)
        try:
            rows = self.state.reader.scan(due.start, end_of(kind_prefix(partition, RETAINED)), rows_max)
        except CorruptStore as fault:
            self._report(fault)
            rows = []
            due.expires_us = earlier(due.expires_us, due.overdue_us)  # it is tried again
        for _, value in rows:
            self._row(value, due)
        if len(rows) < rows_max:
            del self.due[partition]
            memory.retained_expires_us = earlier(memory.retained_expires_us, due.expires_us)
        else:
            due.start = rows[-1][0] + b"\0"
        return len(rows)

    def _row(self, value: bytes, due: _Due) -> None:
        try:
            expires_us = expires_us_at(value, VERSION_BYTES)
            if self.state.has_expired(expires_us):  # [MQTT-3.3.2-5] nobody gets it any more
                self.retained.expire(decode_message(value, VERSION_BYTES))
            else:
                due.expires_us = earlier(due.expires_us, expires_us)
        except CorruptStore as fault:
            self._report(fault)  # whoever reads it or replaces it meets it

    def _report(self, fault: CorruptStore) -> None:
        self.state.event(ERROR, "corrupt_store", {"what": str(fault)})
