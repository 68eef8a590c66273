"""The history of a partition: in which epochs it was changed, each with the last sequence before it.

It shows where two copies diverged (`divergence`). It is a row of the partition, so it is copied with the partition.

What is kept: the first epoch, the newest ones, for each absent node the newest ones of the time when it went away, with
the next one, and for each other copy those of the place where it ends. A copy in sync goes on from there, so all that
follow are kept too. So it is known which changes a node has when it returns, however late. Nothing is dropped while a
copy is being filled, or while a member has not reported what it has; nor, up to a hundred entries or so, while somebody
who is away has not. Dropped epochs leave a gap.
"""

from __future__ import annotations

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import varint
from folkmoot.membership.holding import FORGOTTEN, HISTORY_MAX
from folkmoot.peer.cursor import Cursor
from folkmoot.store.key import history_key
from folkmoot.store.reader import Reader
from folkmoot.store.writer import VERSION_BYTES

__all__ = ["decode_history", "encode_history", "extended", "put_history", "read_history", "take_history", "trimmed"]

_FORMAT = b"\1"


def extended(history: list[tuple[int, int]], epoch: int, base: int) -> list[tuple[int, int]]:
    """Return the history with one more epoch, whose changes follow sequence `base`."""
    longer = [*history, (epoch, base)]
    return longer if len(longer) <= HISTORY_MAX else trimmed(longer, HISTORY_MAX // 2, [], [])


def trimmed(history: list[tuple[int, int]], newest: int, anchors: list[int], since: list[int]) -> list[tuple[int, int]]:
    """Return the part of a history that must be kept.

    newest: so many entries are kept at the end, and before each anchor. anchors: for each absent node the epoch of its
    last view; if that is unknown (0), everything is kept. since: the epochs in which copies in sync ended when they
    were heard of last: everything is kept from there on.
    """
    count = len(history)
    if count <= newest + 1 or 0 in anchors:
        return history
    kept = [False] * count
    kept[0] = True
    _keep(kept, count - newest, count)
    for anchor in anchors:
        place = _place_of(history, anchor)
        _keep(kept, place - newest, min(place + 1, count))
    for epoch in since:
        _keep(kept, _place_of(history, epoch) - 1, count)
    found: list[tuple[int, int]] = []
    for place, entry in enumerate(history):
        if kept[place] and entry[0] != FORGOTTEN:
            found.append(entry)
        elif not found or found[-1][0] != FORGOTTEN:
            found.append((FORGOTTEN, entry[1]))
    return found


def _place_of(history: list[tuple[int, int]], epoch: int) -> int:
    """Return the place behind the newest entry that is not newer than an epoch."""
    place = len(history)
    while place and (history[place - 1][0] == FORGOTTEN or history[place - 1][0] > epoch):
        place -= 1
    return place


def _keep(kept: list[bool], start: int, end: int) -> None:
    for place in range(max(start, 0), end):
        kept[place] = True


def put_history(history: list[tuple[int, int]]) -> bytes:
    """Return the bytes of a history within a message."""
    parts: list[bytes] = [varint(len(history))]
    for epoch, base in history:
        parts.append(varint(epoch))
        parts.append(varint(base))
    return b"".join(parts)


def take_history(cursor: Cursor) -> list[tuple[int, int]]:
    """Read what `put_history` wrote; raises ValueError."""
    history: list[tuple[int, int]] = []
    for _ in range(cursor.count(HISTORY_MAX)):
        epoch = cursor.integer()
        history.append((epoch, cursor.integer()))
    return history


def encode_history(history: list[tuple[int, int]]) -> bytes:
    """Return the value of a HISTORY row, without its version."""
    return _FORMAT + put_history(history)


def decode_history(value: bytes) -> list[tuple[int, int]]:
    """Read the value of a HISTORY row, version included; raises ValueError."""
    if value[VERSION_BYTES : VERSION_BYTES + 1] != _FORMAT:
        raise ValueError("the history of a partition has a format that this version does not read")
    return take_history(Cursor(value[VERSION_BYTES + 1 :], "the history of a partition"))


def read_history(reader: Reader, partition: int) -> list[tuple[int, int]]:
    """Return the stored history of a partition; raises CorruptStore."""
    value = reader.get(history_key(partition))
    if value is None:
        return []
    try:
        return decode_history(value)
    except ValueError as fault:
        raise CorruptStore(f"partition {partition} is damaged: {fault}") from None
