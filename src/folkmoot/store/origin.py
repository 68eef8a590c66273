"""Origins: how a queue row came about, as far as it matters when two sides of a split are merged.

A row that a request brought has the name of who asked (`broker.mark`) and the number of the request: both sides may
have applied it, one of them without telling anybody. A row that its publisher's own leader wrote is `AT_HOME`: as long
as nobody was told of it, it can be taken back. All other rows (of wills, replays, retained messages) have none.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import get_u64, u64

__all__ = ["AT_HOME", "NUMBER_BITS", "name_of", "number_of", "origin_of"]

AT_HOME: Final = b"\0h"
NUMBER_BITS: Final = 38  # of the number of a request, below the counter of the view in which it was given


def origin_of(name: bytes, number: int) -> bytes:
    """Return the origin of what a request brought; name: of who asked, as in its MARK row."""
    return name + u64(number)


def name_of(origin: bytes) -> bytes:
    """Return who asked, empty when it came by no request."""
    return origin[:-8] if len(origin) > 8 else b""


def number_of(origin: bytes) -> int:
    """Return the number of the request that `name_of` has asked for."""
    return get_u64(origin, len(origin) - 8)
