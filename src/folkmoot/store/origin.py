"""Origins: where a queue row came from, as far as it matters when the two sides of a split are merged.

A row that was written by a request has the name of the requester (`partition.mark`) and the number of the request: both
sides may have applied it, one of them without having acknowledged it. All other rows have no origin.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import get_u64, u64

__all__ = ["NUMBER_BITS", "name_of", "number_of", "origin_of"]

NUMBER_BITS: Final = 38  # of the number of a request, below the counter of the view in which it was given


def origin_of(name: bytes, number: int) -> bytes:
    """Return the origin of a request's rows; name: of the requester, as in its MARK row."""
    return name + u64(number)


def name_of(origin: bytes) -> bytes:
    """Return the requester; empty if the row was not written by a request."""
    return origin[:-8] if len(origin) > 8 else b""


def number_of(origin: bytes) -> int:
    """Return the number of the request, as counted by the requester that `name_of` returns."""
    return get_u64(origin, len(origin) - 8)
