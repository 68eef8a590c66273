"""Placement: a pure function of the view. Nobody stores it, everyone computes it.

Each member has tokens on a 64-bit ring; the replicas of a partition are the next distinct members clockwise, in
different zones as far as there are enough, and the first of them leads. Karger et al.: Consistent Hashing and Random
Trees, STOC 1997; Mirrokni, Thorup, Zadimoghaddam: Consistent Hashing with Bounded Loads, SODA 2018.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from folkmoot.cluster.view import View
from folkmoot.kernel.hash import hash64
from folkmoot.kernel.pack import u16

__all__ = ["Ring"]

_TOKENS_PER_MEMBER: Final = 64
_LOAD_PERCENT_MAX: Final = 105


class Ring:
    """The placement of all partitions for one view."""

    def __init__(self, view: View, partitions: int, replicas: int) -> None:
        self.view = view
        self.partitions = partitions
        self.replicas = min(replicas, len(view.members))
        self._tokens: list[tuple[int, str]] = sorted(
            [
                (hash64(member.node_id.encode() + b"#" + u16(n)), member.node_id)
                for member in view.members
                for n in range(_TOKENS_PER_MEMBER)
            ]
        )
        self._zones: dict[str, str] = {member.node_id: member.zone for member in view.members}
        self._load: dict[str, int] = dict.fromkeys(self._zones, 0)
        self._owners: list[list[str]] = [self._place(partition) for partition in range(partitions)]

    def replicas_of(self, partition: int) -> list[str]:
        """Return the ids of the nodes that keep a partition; the first leads it."""
        return self._owners[partition]

    def leader_of(self, partition: int) -> str:
        """Return the id of the node that leads a partition."""
        return self._owners[partition][0]

    def _share_max(self) -> int:
        fair = self.partitions * self.replicas
        return -(-fair * _LOAD_PERCENT_MAX // (100 * len(self._zones)))

    def _place(self, partition: int) -> list[str]:
        owners: list[str] = []
        zones: list[str] = []
        walk = self._walk(partition)
        # First in different zones and within the bound; what is left over takes the next members without these wishes.
        for strict in (True, False):
            for node_id in walk:
                if len(owners) == self.replicas:
                    break
                full = self._load[node_id] >= self._share_max()
                if node_id in owners or (strict and (full or self._zones[node_id] in zones)):
                    continue
                owners.append(node_id)
                zones.append(self._zones[node_id])
                self._load[node_id] += 1
        return owners

    def _walk(self, partition: int) -> list[str]:
        """Return all members in the order in which they follow the partition on the ring."""
        start = bisect_right(self._tokens, (hash64(b"partition" + u16(partition)), ""))
        order: dict[str, None] = {}
        count = len(self._tokens)
        for step in range(count):
            order[self._tokens[(start + step) % count][1]] = None
            if len(order) == len(self._zones):
                break
        return list(order)
