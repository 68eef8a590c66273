"""Gaps: changes that a follower has missed are asked for, again and again until they come.

Between two nodes nothing is lost, so a gap is rare: a copy that joined the stream late, or a leader that could not
answer when it was asked.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.replica.replica_states import ReplicaStates
from folkmoot.replica.suffix import fetch

__all__ = ["Gaps"]

_PATIENCE_US: Final = SECOND  # for what was asked for


class Gaps:
    """The partitions of which something is missing here, with the time when their leader was asked for it."""

    def __init__(self, replica_states: ReplicaStates) -> None:
        self.replica_states = replica_states
        self._asked: dict[int, int] = {}

    def installed(self) -> None:
        """A new view: followers join anew."""
        self._asked.clear()

    def due_us(self) -> int:
        """Return when something is to be asked for again, NEVER if nothing is missing."""
        return min(self._asked.values()) + _PATIENCE_US if self._asked else NEVER

    def found(self, partition: int) -> None:
        """What came does not follow what is here."""
        if partition not in self._asked:
            self._ask(partition)

    def closed(self, partition: int) -> None:
        """What is missing has come, or a copy begins."""
        self._asked.pop(partition, None)

    def step(self) -> None:
        """Ask again for what has not come."""
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
