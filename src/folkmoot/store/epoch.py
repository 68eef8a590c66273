"""Epochs: the numbers of views, by which versions of rows and of requests are ordered, also across a split.

An epoch is a counter (`ClusterConfiguration.changed`), which grows with each change of roles, and a tag of the lineage,
which makes equal counters differ.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.hash import hash64
from folkmoot.store.origin import NUMBER_BITS

__all__ = ["COUNTER_MAX", "counter_of", "is_sane", "make_epoch", "tag_of"]

COUNTER_MAX: Final = (1 << 64 - NUMBER_BITS) - 1  # numbers of requests begin with it; two entries a second: a year

_TAG_BITS: Final = 24
_TAG_MASK: Final = (1 << _TAG_BITS) - 1
_LEAP_MAX: Final = 1 << 22  # by which others may be ahead: weeks of constant changes; more is nonsense


def make_epoch(counter: int, lineage: str) -> int:
    """Return the epoch with a counter in a lineage, by its name: ordered by counter, unique across a split."""
    assert 0 <= counter <= COUNTER_MAX, "numbers of requests begin with it, in 64 bits"
    return counter << _TAG_BITS | hash64(lineage.encode()) & _TAG_MASK


def counter_of(epoch: int) -> int:
    """Return the counter in an epoch."""
    return epoch >> _TAG_BITS


def tag_of(epoch: int) -> int:
    """Return the tag that distinguishes the lineages of equal counters, 24 bits."""
    return epoch & _TAG_MASK


def is_sane(counter: int, own: int) -> bool:
    """Tell whether the counter of another node is plausible; own: the highest known here, 0 = none.

    A wild one would be adopted by all and leave no numbers for later configurations.
    """
    return counter <= COUNTER_MAX and (own == 0 or counter <= own + _LEAP_MAX)
