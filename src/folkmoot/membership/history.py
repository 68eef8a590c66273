"""The history of a partition: in which epochs it was changed, each with the last sequence before it.

It shows where two copies parted (`fork`). It is a row of the partition, so a copy of the partition brings it along.

What is remembered: the first epoch, the newest ones, and for everybody who is away the newest ones of the time when he
left, with what came next: so it is known what he has of all this when he returns, however late. Nothing is forgotten
while a copy is being filled. What is forgotten leaves a gap.
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
    """Return the history with one more epoch, whose changes come after sequence `base`; all is kept that may be."""
    longer = [*history, (epoch, base)]
    return longer if len(longer) <= HISTORY_MAX else trimmed(longer, HISTORY_MAX // 2, [])


def trimmed(history: list[tuple[int, int]], newest: int, anchors: list[int]) -> list[tuple[int, int]]:
    """Return what has to be kept of a history.

    newest: so many entries are kept at the end, and before each anchor. anchors: for everybody who is away the epoch of
    the last view in which he was; if that is not known (0), all has to be kept.
    """
    count = len(history)
    if count <= newest + 1 or 0 in anchors:
        return history
    kept = [False] * count
    kept[0] = True
    _keep(kept, count - newest, count)
    for anchor in anchors:
        place = count
        while place and history[place - 1][0] > anchor:
            place -= 1
        while place and history[place - 1][0] == FORGOTTEN:
            place -= 1
        _keep(kept, place - newest, min(place + 1, count))
    found: list[tuple[int, int]] = []
    for place, entry in enumerate(history):
        if kept[place] and entry[0] != FORGOTTEN:
            found.append(entry)
        elif not found or found[-1][0] != FORGOTTEN:
            found.append((FORGOTTEN, entry[1]))
    return found


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
    """Return the history that a store has of a partition; raises CorruptStore."""
    value = reader.get(history_key(partition))
    if value is None:
        return []
    try:
        return decode_history(value)
    except ValueError as fault:
        raise CorruptStore(f"partition {partition} is damaged: {fault}") from None
