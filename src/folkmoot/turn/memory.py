"""The memory of a node: an estimate that is kept as things come and go, the driver's measurement, and what follows.

Owns the stages: beyond each threshold of the budget one more thing happens, and it ends well below it.

    70 %  publishers are slowed, up to level 7 at 84 % (`overload`): further levels would only hurt those who do no harm
    85 %  connections, sessions and subscriptions are refused; what is there stays
    95 %  the clients for which most waits in memory are disconnected (`leadership.shedding`); also when clients have
          been refused for ten seconds: whoever does not read must not keep others out

The driver measures what the process has in memory; the estimate adds what has changed since. A client is refused or
disconnected only because of a measurement: a message that waits for a thousand sessions is counted a thousand times,
and is there once. A driver that measures nothing leaves it to the estimate.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.limits import Limits
from folkmoot.metrics.counters import Counters
from folkmoot.session.account import CONNECTION_BYTES, SESSION_BYTES
from folkmoot.session.subscription import SUBSCRIPTION_BYTES

__all__ = ["CALM", "DROPPING", "ENTRY_BYTES", "FLIGHT_BYTES", "REFUSING", "Memory"]

# Stages
CALM: Final = 0
REFUSING: Final = 1
DROPPING: Final = 2

# Percent of the budget
_SLOW_FROM: Final = 70
_SLOW_FULL: Final = 90  # would make level 10
_REFUSE_FROM: Final = 85
_DROP_FROM: Final = 95
_CALM_BELOW: Final = 78

_ROUTE_BYTES: Final = 1_000
ENTRY_BYTES: Final = 256
"""A message that waits in memory, besides its topic and payload."""
FLIGHT_BYTES: Final = 128
"""A message in flight to a client."""

_PRESSURE_MAX: Final = 700  # of a thousand: a client that publishes once waits for an eighth of a second

_LONG_US: Final = 10 * SECOND  # after which somebody has to go
_LOOK_US: Final = MILLISECOND  # a turn without much work is not made longer by this
_STALE_US: Final = 10_000  # a measurement that is older is asked for again before somebody is refused


class Memory:
    """The counts are public: each is changed by the part that has what it counts.

    ready_bytes, ready_count: messages that wait in memory; unsent_bytes: handed to transports that are full;
    parts_bytes: of packets that are incomplete; alias_bytes: topics of aliases; relay_bytes: packets that wait for the
    leaders of their sessions; hosted_bytes: packets of clients at other nodes that wait for their turn here;
    interest_bytes: filters that other nodes have announced.
    """

    def __init__(self, limits: Limits, counters: Counters) -> None:
        self.counters = counters
        self.budget = max(limits.memory_bytes_max, 0)  # 0: none
        self.ready_bytes = 0
        self.ready_count = 0
        self.unsent_bytes = 0
        self.parts_bytes = 0
        self.alias_bytes = 0
        self.relay_bytes = 0
        self.hosted_bytes = 0
        self.interest_bytes = 0
        self.stage = CALM
        self.used = 0
        self.wanted = False  # the driver is asked to measure
        self._refusing_us = 0  # since when clients are refused
        self._estimate = 0
        self._offset = 0  # what was measured, less the estimate of that moment
        self._measured_us = -1  # when; -1: never
        self._due_us = 0  # when to look again
        counters.memory_budget_bytes = self.budget

    @property
    def refuses(self) -> bool:
        """Whether nothing is accepted that stays in memory."""
        return self.stage >= REFUSING

    def is_due(self, now: int) -> bool:
        """Whether it is time to look: not in every turn of a busy node, but after each measurement."""
        return now >= self._due_us

    def look(self, sessions: int, others: int, now: int) -> bool:
        """Compute what is used; return whether the stage has changed.

        sessions: how many there are; others: bytes on their way to disks, to other nodes, and in stashes; of unusual
        filters, and of wills.
        """
        counters = self.counters
        self._due_us = now + _LOOK_US
        self._estimate = (
            sessions * SESSION_BYTES
            + (counters.subscriptions_persistent + counters.subscriptions_transient) * SUBSCRIPTION_BYTES
            + counters.connections * CONNECTION_BYTES
            + counters.route_cached * _ROUTE_BYTES
            + self.ready_bytes
            + self.ready_count * ENTRY_BYTES
            + self.unsent_bytes
            + self.parts_bytes
            + self.alias_bytes
            + self.relay_bytes
            + self.hosted_bytes
            + self.interest_bytes
            + others
        )
        self.used = max(self._estimate + self._offset, 0)
        counters.memory_bytes = self.used
        if not self.budget:
            return False
        before = self.stage
        self.stage = self._next(now)
        if before == CALM:
            self._refusing_us = now
        counters.memory_stage = self.stage
        return self.stage != before

    def measured(self, size: int, now: int) -> None:
        """The process has so many bytes in memory."""
        self.wanted = False
        self._measured_us = now
        self._due_us = now
        self._offset = size - self._estimate

    def ask(self) -> None:
        """Have the driver measure before the next decision, if it does."""
        self.wanted = self._measured_us >= 0

    def _next(self, now: int) -> int:
        used = self.used * 100
        stage = self.stage
        if used < self.budget * (_REFUSE_FROM if stage == CALM else _CALM_BELOW):
            return CALM
        long = stage == REFUSING and now - self._refusing_us >= _LONG_US
        wanted = DROPPING if stage == DROPPING or long or used >= self.budget * _DROP_FROM else REFUSING
        if wanted > stage and self._measured_us >= 0 and now - self._measured_us > _STALE_US:
            self.wanted = True
            return stage
        return wanted

    def pressure(self) -> int:
        """Return how much publishers must be slowed, in thousandths of the highest level."""
        if not self.budget:
            return 0
        above = self.used * 100 - self.budget * _SLOW_FROM
        return min(max(above, 0) * 1000 // (self.budget * (_SLOW_FULL - _SLOW_FROM)), _PRESSURE_MAX)

    def excess(self) -> int:
        """Return how many bytes must go until nobody is refused any more."""
        return max(self.used - self.budget * _CALM_BELOW // 100, 0) if self.budget else 0

    def __repr__(self) -> str:
        return f"Memory({self.used} of {self.budget} stage={self.stage})"
