"""Gaps: changes that a follower has missed; it asks for them until they come.

Links lose nothing, so a gap is rare: a copy joined the stream late, or a leader could not answer.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.replica.context import ReplicaContext
from folkmoot.replica.replica import Replica
from folkmoot.replica.suffix import fetch

__all__ = ["Gaps"]

_PATIENCE_US: Final = SECOND  # for the answer


class Gaps:
    """The partitions with a gap, each with the time when their leader was asked."""

    def __init__(self, context: ReplicaContext) -> None:
        self.context = context
        self._asked: dict[Replica, int] = {}

    def installed(self) -> None:
        """A new view: followers join anew."""
        self._asked.clear()

    def due_us(self) -> int:
        """Return when to ask again, NEVER when there is no gap."""
        return min(self._asked.values()) + _PATIENCE_US if self._asked else NEVER

    def found(self, replica: Replica) -> None:
        """A change came that does not follow the head."""
        if replica not in self._asked:
            self._ask(replica)

    def closed(self, replica: Replica) -> None:
        """The missing changes have come, or a copy begins."""
        self._asked.pop(replica, None)

    def step(self) -> None:
        """Ask again for changes that have not come."""
        now = self.context.now
        for replica in [one for one, asked_us in self._asked.items() if now - asked_us >= _PATIENCE_US]:
            if replica.follows():
                self._ask(replica)
            else:
                del self._asked[replica]

    def _ask(self, replica: Replica) -> None:
        self._asked[replica] = self.context.now
        fetch(self.context, replica.leader, replica.report())
