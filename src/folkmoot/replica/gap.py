"""Gaps: changes that a follower has missed; it asks for them until they come.

Links lose nothing, so a gap is rare: a copy joined the stream late, or a leader could not answer.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.replica.replica_states import ReplicaStates
from folkmoot.replica.suffix import fetch

__all__ = ["Gaps"]

_PATIENCE_US: Final = SECOND  # for the answer


class Gaps:
    """The partitions with a gap, each with the time when their leader was asked."""

    def __init__(self, replica_states: ReplicaStates) -> None:
        self.replica_states = replica_states
        self._asked: dict[int, int] = {}

    def installed(self) -> None:
        """A new view: followers join anew."""
        self._asked.clear()

    def due_us(self) -> int:
        """Return when to ask again, NEVER when there is no gap."""
        return min(self._asked.values()) + _PATIENCE_US if self._asked else NEVER

    def found(self, partition: int) -> None:
        """A change came that does not follow the head."""
        if partition not in self._asked:
            self._ask(partition)

    def closed(self, partition: int) -> None:
        """The missing changes have come, or a copy begins."""
        self._asked.pop(partition, None)

    def step(self) -> None:
        """Ask again for changes that have not come."""
        now = self.replica_states.now
        for partition in [one for one, asked_us in self._asked.items() if now - asked_us >= _PATIENCE_US]:
            if self.replica_states.follows(partition):
                self._ask(partition)
            else:
                del self._asked[partition]

    def _ask(self, partition: int) -> None:
        replica_states = self.replica_states
        self._asked[partition] = replica_states.now
        fetch(replica_states, replica_states.leaders[partition], replica_states.report(partition))
