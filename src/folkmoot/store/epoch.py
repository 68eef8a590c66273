"""Epochs: the numbers of views, by which versions of rows and of requests are ordered, also across a split.

An epoch is a counter, which grows with each view, and a tag of the proposer, which makes equal counters differ.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.hash import hash64
from folkmoot.store.origin import NUMBER_BITS

__all__ = ["COUNTER_MAX", "counter_of", "is_sane", "make_epoch", "tag_of"]

COUNTER_MAX: Final = (1 << 64 - NUMBER_BITS) - 1  # of a view: numbers of requests begin with it; two a second: a year

_TAG_BITS: Final = 24
_TAG_MASK: Final = (1 << _TAG_BITS) - 1
_LEAP_MAX: Final = 1 << 22  # views that others may be ahead: weeks of constant changes; more is nonsense


def make_epoch(counter: int, proposer: str) -> int:
    """Return the epoch of the view number `counter` by `proposer`: ordered by counter, unique across a split.

    `proposer` names one start of one node, so that a restarted node never makes an epoch twice.
    """
    assert 0 <= counter <= COUNTER_MAX, "numbers of requests begin with it, in 64 bits"
    return counter << _TAG_BITS | hash64(proposer.encode()) & _TAG_MASK


def counter_of(epoch: int) -> int:
    """Return the counter in an epoch."""
    return epoch >> _TAG_BITS


def tag_of(epoch: int) -> int:
    """Return the tag that distinguishes the proposers of equal counters, 24 bits."""
    return epoch & _TAG_MASK


def is_sane(counter: int, own: int) -> bool:
    """Tell whether a view number of another node is plausible; own: the highest known here, 0 = none.

    A wild one would be adopted by all and leave no numbers for later views.
    """
    return counter <= COUNTER_MAX and (own == 0 or counter <= own + _LEAP_MAX)
