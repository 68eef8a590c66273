"""A9 for readers of replicas: within the bounds of its leader, a replica returns the same records as all other readers.

Passes bounds to the other nodes at once, when their copies have had the least time. Inspects nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.report.answer import bounds_of
from folkmoot.sim.check_stream import StreamChecker
from folkmoot.sim.host import Host
from folkmoot.sim.inside import member_at
from folkmoot.streams.log import StreamLog

__all__ = ["CopyChecker"]

_EVERY: Final = 16
"""Turns of a node between two readings from the copies of what it leads."""

_RECORDS: Final = 8
"""Of the newest records, which a copy may lack or have otherwise; older ones were once new."""

_READ_BYTES: Final = 65_536


class CopyChecker:
    """Reads the newest records of each stream partition from every copy."""

    def __init__(self, streams: StreamChecker, hosts: Sequence[Host]) -> None:
        self.streams = streams
        self.world = streams.world
        self.hosts = hosts

    def turn(self, host: Host) -> None:
        """A node has ended a turn."""
        node = member_at(host)
        if host.turns % _EVERY or node is None:
            return
        for stream in node.streams.streams:
            for log in stream.logs:
                if node.leads_stream(log) and log.readable_end > log.oldest:
                    # Nodes report damaged rows, see fault_disk.py.
                    with suppress(CorruptStore):
                        self.read_all(host, log, [*bounds_of(log), node.copies.fabric.epoch])

    def read_all(self, leader: Host, led: StreamLog, told: list[int]) -> None:
        """Read from all copies of the partitions of `leader`, with the bounds that it gives."""
        for other in self.hosts:
            if other is not leader and not other.hung:
                with suppress(CorruptStore):
                    self._read(other, led, told)

    def _read(self, other: Host, led: StreamLog, told: list[int]) -> None:
        node = member_at(other)
        stream = None if node is None else node.streams.get(led.config.name)
        if node is None or stream is None:
            return
        log = stream.logs[led.index]
        if node.leads_stream(log) or not node.copies.holds(log) or not node.copies.learn(log, told):
            return
        start = max(told[0], told[1] - _RECORDS)
        page = node.copies.read(log, start, told[1], _READ_BYTES)
        if page is None:
            self.world.mark("copy asks its leader")
            return
        if page.end > told[1] or page.next_offset > told[1]:
            self.world.violate("A9", f"{log}: {page} of a copy goes beyond {told[1]}")
        self.streams.compare((led.config.name, led.index), page, start)
        self.world.mark("stream read from a copy")
