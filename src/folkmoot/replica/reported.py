"""In which epochs the copies of a partition end at other nodes, as they have reported it to this leader.

A leader trims the history of a partition. What it trims must not be the place at which another copy ends: then nobody
could tell whether that copy has changes of its own, and it would be filled as a whole.

A report stays true as a lower bound until its node comes up again. A follower has gone on since, a node without a role
has not. One that is away keeps what it had.
"""

from __future__ import annotations

__all__ = ["Reported"]


class Reported:
    """By node the epoch in which its copy ends; only where this node leads."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}

    def installed(self, kept: list[str], up: list[str], known: list[str]) -> None:
        """A view was installed: a node that has come up again is unknown until it reports; `kept` have not."""
        for node_id in list(self._epochs):
            if node_id not in known or (node_id in up and node_id not in kept):
                del self._epochs[node_id]

    def note(self, node_id: str, epoch: int) -> None:
        """Note where a copy ends; 0: the node has none."""
        self._epochs[node_id] = epoch

    def forget(self) -> None:
        """This node leads the partition no more, so nobody reports to it."""
        self._epochs.clear()

    def epoch_of(self, node_id: str) -> int:
        """Return the epoch in which a copy ends; 0: there is none, -1: that is unknown."""
        return self._epochs.get(node_id, -1)
