"""Which packet ids a fork gives out: those of two sides of a split are far from each other.

A stored session goes on at each side of a split, and no side knows which packet ids another one gives. Its client may
have begun a flow of QoS 2 at one side. A message of another side under the same id is a repetition for it, and lost.

So the trunk goes on with the next id, and a leader in a fork begins further on. The range of ids has a part for each
node, because no node is in two lineages at one time. In a fork that has had several leaders, their distances add up,
perhaps to that of another fork. So the place in the part depends on the view: then ids coincide only by chance.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.hash import hash64
from folkmoot.kernel.pack import u64
from folkmoot.session.session import PACKET_IDS

__all__ = ["distance_in_fork"]

_PARTS: Final = (3, 5, 7, 11)  # primes: no node is back at the ids of the trunk after a few leaderships


def distance_in_fork(place: int, places: int, epoch: int) -> int:
    """Return by how many packet ids a leader in a fork begins further on than where the session was.

    Those of two nodes are half a part from each other at least, and so is each from the trunk, in both directions: that
    is 6,553 ids with up to four nodes, and 2,978 with up to ten. Of more than ten nodes some have the same part. Forks
    that know different nodes divide the range differently: then ids coincide only by chance, too.

    Args:
        place: Of the node among all nodes with data, from 0.
        places: How many these are.
        epoch: Of the view in which it leads.
    """
    assert 0 <= place < places, "the node is one of them"
    parts = next((parts for parts in _PARTS if parts > places), _PARTS[-1])
    size = PACKET_IDS // parts
    return size * (1 + place % (parts - 1)) + hash64(u64(epoch)) % (size // 2)
