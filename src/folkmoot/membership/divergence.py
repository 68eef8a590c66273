"""Where two copies of a partition diverged: what of one the other has, as far as their histories can tell.

A history lists the epochs of a copy's changes; an entry `holding.FORGOTTEN` stands for epochs that were forgotten. So
there are three answers, and the caller decides what "unknown" means in its case. Which copies are merged, the
configuration says (`projection.branches_of`): of those, what is unknown counts as not seen.

Why copies diverge in the newest epoch that both have: an epoch has one leader per partition, and a copy with one of its
changes has all changes before. So both are equal up to the end of that epoch in the copy that ends it first, and after
it they have no epoch in common; unless one of them has a gap there, which may hide a common epoch.
"""

from __future__ import annotations

from typing import Final

from folkmoot.membership.holding import FORGOTTEN, Holding

__all__ = ["NO", "UNKNOWN", "YES", "has_change", "includes", "shared"]

NO: Final = 0
YES: Final = 1
UNKNOWN: Final = 2


def _line(holding: Holding) -> list[tuple[int, int]]:
    """Return the history up to the position; a history that does not lead there proves nothing."""
    history = holding.history
    count = len(history)
    while count and history[count - 1][1] >= holding.seq:
        count -= 1  # an epoch that begins after it
    if count and history[count - 1][0] == holding.epoch:
        return history if count == len(history) else history[:count]
    return [(FORGOTTEN, 0), (holding.epoch, holding.seq - 1)]


def _end(line: list[tuple[int, int]], place: int, holding: Holding) -> int:
    """Return the last sequence of the epoch at a place."""
    return line[place + 1][1] if place + 1 < len(line) else holding.seq


def _is_open(line: list[tuple[int, int]], place: int) -> bool:
    """Tell whether a gap follows a place."""
    return place + 1 < len(line) and line[place + 1][0] == FORGOTTEN


def shared(one: Holding, other: Holding) -> tuple[int, bool]:
    """Return up to which sequence two copies are certainly equal, and whether they certainly differ after it."""
    if one.seq == 0 or other.seq == 0:
        return 0, True
    if one.epoch == other.epoch:
        return min(one.seq, other.seq), True
    mine = _line(one)
    theirs = _line(other)
    places: dict[int, int] = {}
    for place, entry in enumerate(theirs):
        if entry[0] != FORGOTTEN:
            places[entry[0]] = place
    for here in range(len(mine) - 1, -1, -1):
        there = places.get(mine[here][0], -1)
        if there < 0:
            continue
        my_end = _end(mine, here, one)
        their_end = _end(theirs, there, other)
        if my_end != their_end:
            return min(my_end, their_end), True
        return my_end, not _is_open(mine, here) and not _is_open(theirs, there)
    begun = mine[0][0] != FORGOTTEN and theirs[0][0] != FORGOTTEN and mine[0][1] == 0 and theirs[0][1] == 0
    return 0, begun  # both began empty, in different epochs: they have nothing in common


def includes(holder: Holding, other: Holding) -> int:
    """Tell whether a copy has all changes of another: YES means that the other is a prefix of it."""
    seq, certain = shared(holder, other)
    if seq >= other.seq:
        return YES
    return NO if certain else UNKNOWN


def has_change(holder: Holding, epoch: int, seq: int) -> int:
    """Tell whether a copy has one change, of a copy of which nothing else is known."""
    if seq == 0:
        return YES
    if seq > holder.seq:
        return NO
    if epoch == holder.epoch:
        return YES
    line = _line(holder)
    for place in range(len(line) - 1, -1, -1):
        if line[place][1] < seq:
            if line[place][0] == epoch:
                return YES
            return UNKNOWN if line[place][0] == FORGOTTEN and not _lists(line, epoch) else NO
    return UNKNOWN


def _lists(line: list[tuple[int, int]], epoch: int) -> bool:
    for known, _base in line:
        if known == epoch:
            return True
    return False
